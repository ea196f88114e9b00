"""Images loaded as in DomainBed: each file is opened, decoded and transformed every time it is read.

The reference of `python -m benchmarks data`: Pillow, torchvision's transforms (the first version, which DomainBed
uses) and torch's DataLoader. Nothing here may use our cache or our augmentation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from fgmix.data.dataset import Indices
from fgmix.networks._torchvision import ensure_torchvision

Transform = Callable[[Image.Image], Tensor]

MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]


class ImageFiles(Dataset[tuple[Tensor, int]]):
    """Files and their labels, as torchvision's ImageFolder returns them."""

    def __init__(self, files: Sequence[tuple[Path, int]], transform: Transform) -> None:
        self.files, self.transform = files, transform

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        path, label = self.files[index]
        with open(path, "rb") as file:
            image = Image.open(file).convert("RGB")
        return self.transform(image), label


def read(dataset: ImageFiles, batches: Sequence[Indices]) -> list[tuple[Tensor, Tensor]]:
    """(x, y) of each batch of indices, in this process."""
    indices = [batch.tolist() for batch in batches]
    loader: DataLoader[tuple[Tensor, int]] = DataLoader(dataset, batch_sampler=indices, num_workers=0)
    return [(x, y) for x, y in loader]


def training_transform(size: int) -> Transform:
    """DomainBed's augmentation of source domains."""
    ensure_torchvision()
    from torchvision import transforms

    steps: Transform = transforms.Compose(
        [
            transforms.RandomResizedCrop(size, scale=(0.7, 1.0)),
            transforms.RandomHorizontalFlip(),
            transforms.ColorJitter(0.3, 0.3, 0.3, 0.3),
            transforms.RandomGrayscale(),
            transforms.ToTensor(),
            transforms.Normalize(MEAN, STD),
        ]
    )
    return steps


def evaluation_transform(size: int) -> Transform:
    """DomainBed's preprocessing of the test domain."""
    ensure_torchvision()
    from torchvision import transforms

    steps: Transform = transforms.Compose(
        [transforms.Resize((size, size)), transforms.ToTensor(), transforms.Normalize(MEAN, STD)]
    )
    return steps
