"""Features of a frozen backbone: computed once, cached by content, then used for training as vectors.

They are in `cache_dir()/features/<key>/<block>.npz`, where a block has at most `BLOCK` samples of one domain in one
view. The key is a digest of the backbone (its name and all of its weights) and of the preprocessing (size, mean,
standard deviation, interpolation); the name of a block is a digest of its images and of the view. An interrupted
extraction resumes with the first missing block, and a folder that is moved keeps its features. The cache may be deleted
at any time.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast
from weakref import WeakValueDictionary

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from fgmix.data.augment import ImageInputs
from fgmix.data.dataset import ArrayInputs, Domain, DomainDataset, HostArray, Indices, fingerprint_of
from fgmix.data.files import read_arrays, write_arrays
from fgmix.data.image_cache import CachedImages, cache_dir
from fgmix.data.loading import CPU, HostBatch, deliver
from fgmix.errors import UserError
from fgmix.progress import Progress
from fgmix.records.digests import Damaged, damage_error
from fgmix.records.files import make_folder
from fgmix.seeding import torch_generator

Codes = npt.NDArray[np.float32]

FORMAT = "codes 1"  # part of the key: change it with anything that changes the stored numbers
BLOCK = 1024  # samples per file: at most as many are lost by an interruption
BATCH = 64  # images per forward pass
CLEAN = 0  # the view for evaluation; 1, 2, … are augmented

_loaded: WeakValueDictionary[str, Codes] = WeakValueDictionary()  # shared by the runs with the same backbone


@dataclass(frozen=True)
class ViewInputs(ArrayInputs):
    """Features of one domain in several views: clean for evaluation, a random view of each sample for training."""

    views: tuple[Codes, ...] = ()  # features (n, d) of augmented images; training also uses the clean ones

    def prepare(self, indices: Indices, generator: torch.Generator | None = None) -> HostArray:
        if generator is None or not self.views:
            return super().prepare(indices)
        arrays = (self.x, *self.views)
        chosen = torch.randint(len(arrays), (len(indices),), generator=generator).tolist()
        rows = np.stack([arrays[view][index] for view, index in zip(chosen, indices)])
        return HostArray(torch.from_numpy(rows if self.standard is None else self.standard(rows)))


def frozen_features(
    dataset: DomainDataset,
    backbone: nn.Module,
    *,
    name: str,
    views: int = 0,
    device: torch.device = CPU,
    progress: bool = True,
) -> DomainDataset:
    """Replace the images of a dataset, normalised as g expects, by their codes z = g(x), for training on vectors.

    It keeps its fingerprint, which identifies the images. Every image has `views` augmented views in addition to the
    clean one. Codes that are not in the cache are computed on the device by the backbone g called `name`.
    """
    if dataset.kind != "images":
        kind = dataset.kind.replace("_", " ")
        raise UserError(f"Expected images in files. Found {dataset.name}, which holds {kind}. Drop --frozen.")
    backbone = backbone.to(device).eval()
    folder = cache_dir() / "features" / _key(dataset, backbone, name)
    make_folder(folder, "FGMIX_CACHE")
    all_views = {
        (domain.name, view): _DomainView(domain, view, folder)
        for domain in dataset.domains
        for view in range(views + 1)
    }
    missing = sum(each.missing() for each in all_views.values())
    with Progress(f"features of {name}", missing, show=progress and missing > 0) as bar:
        codes = {key: each.codes(backbone, device, bar) for key, each in all_views.items()}
    domains = [
        replace(d, inputs=ViewInputs(codes[d.name, CLEAN], views=tuple(codes[d.name, v + 1] for v in range(views))))
        for d in dataset.domains
    ]
    width = codes[dataset.domains[0].name, CLEAN].shape[1]
    return replace(dataset, domains=tuple(domains), input_shape=(width,), kind="features")


def _key(dataset: DomainDataset, backbone: nn.Module, name: str) -> str:
    """Compute a digest of everything that determines the code of an image in the decoded cache."""
    weights = (part for key, t in backbone.state_dict().items() for part in (key, t.detach().cpu().numpy()))
    inputs = cast("ImageInputs", dataset.domains[0].inputs)
    return fingerprint_of([FORMAT, name, f"S={inputs.size} {inputs.normalisation}", *weights])


@dataclass(frozen=True)
class _DomainView:
    """One domain in one view, `CLEAN` or the number of an augmented one, in blocks in a folder."""

    domain: Domain
    view: int
    folder: Path

    def missing(self) -> int:
        """Count the samples that are neither in a file nor in memory."""
        if self._name in _loaded:
            return 0
        return sum(len(indices) for indices in self._blocks() if not self._path(indices).exists())

    def codes(self, backbone: nn.Module, device: torch.device, bar: Progress) -> Codes:
        """Return z (n, d) of all samples, from memory, from the cache, or from the backbone."""
        codes = _loaded.get(self._name)
        if codes is None:
            codes = np.concatenate([self._block(indices, backbone, device, bar) for indices in self._blocks()])
            _loaded[self._name] = codes
        return codes

    def _block(self, indices: Indices, backbone: nn.Module, device: torch.device, bar: Progress) -> Codes:
        path = self._path(indices)
        if path.exists():
            try:
                codes: Codes | None = read_arrays(path).get("z")
                if codes is None or len(codes) != len(indices):
                    raise damage_error(str(path))
                return codes
            except (Damaged, OSError) as error:
                print(f"note: {error} The features in it are computed again.", file=sys.stderr)
        codes = np.concatenate(list(self._compute(indices, backbone, device, bar)))
        write_arrays(path, {"z": codes})
        return codes

    @torch.inference_mode()
    def _compute(self, indices: Indices, backbone: nn.Module, device: torch.device, bar: Progress) -> Iterator[Codes]:
        batches = [indices[start : start + BATCH] for start in range(0, len(indices), BATCH)]
        for [(x, _)] in deliver(lambda batch: [self._batch(batch)], batches, device=device):
            yield backbone(x.contiguous(memory_format=torch.channels_last)).float().cpu().numpy()
            bar.advance(len(x))

    def _batch(self, indices: Indices) -> HostBatch:
        if self.view == CLEAN:
            return HostBatch.of(self.domain, indices)
        # The augmentation depends on the view and the start of the batch, not on a seed: all runs share the features.
        generator = torch_generator("view", self.view, self.domain.name, int(indices[0]))
        return HostBatch.of(self.domain, indices, generator)

    def _blocks(self) -> Iterator[Indices]:
        n = len(self.domain)
        return (np.arange(start, min(start + BLOCK, n)) for start in range(0, n, BLOCK))

    def _path(self, indices: Indices) -> Path:
        return self.folder / f"{self._digest(indices)}.npz"

    @property
    def _name(self) -> str:
        return f"{self.folder} {self._digest(np.arange(len(self.domain)))}"

    def _digest(self, indices: Indices) -> str:
        inputs = cast("ImageInputs", self.domain.inputs)
        view = "clean" if self.view == CLEAN else f"view {self.view} of {self.domain.name} from {indices[0]}"
        return fingerprint_of([cast("CachedImages", inputs.images).key, inputs.rows[indices], view])
