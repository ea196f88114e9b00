"""Activations of a frozen network, or of its frozen first sections: computed once, cached, and trained on.

    cache_dir()/activations/<key>/<block>.bin    up to `BLOCK` samples of one domain in one view, memory-mapped
                                  <block>.npz    their type, shape and checksums, written last

The key is a digest of the network (its name, all of its weights, where it is cut) and of the preprocessing (size, mean,
standard deviation, interpolation); the name of a block is a digest of its images and of the view. An interrupted
extraction resumes with the first missing block, several processes share the work, and a folder of images that is moved
keeps its activations. A sample is verified when a process first reads it. The cache may be deleted at any time.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, cast
from weakref import WeakValueDictionary

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from fgmix.data.augment import ImageInputs
from fgmix.data.dataset import ArrayInputs, Domain, DomainDataset, HostArray, Indices, fingerprint_of
from fgmix.data.files import read_arrays, require_space, write_arrays
from fgmix.data.image_cache import CachedImages, wait_for_lock
from fgmix.data.loading import CPU, HostBatch, deliver
from fgmix.errors import UserError
from fgmix.progress import Progress
from fgmix.records.digests import Damaged, damage_error
from fgmix.records.files import cache_dir, make_folder, write_bytes
from fgmix.seeding import torch_generator
from fgmix.terminal import print_notes

Floats = npt.NDArray[Any]  # float32 or float16
Precision = Literal["float32", "float16"]

FORMAT = "activations 1"  # part of the key: change it with anything that changes the stored numbers
BLOCK = 1024  # samples per file: at most as many are lost by an interruption
BATCH = 64  # images per forward pass
CLEAN = 0  # the view for evaluation; 1, 2, … are augmented

_opened: WeakValueDictionary[str, Activations] = WeakValueDictionary()  # shared by the runs of a process


class Activations:
    """Activations (n, …) of a domain in one view, in memory-mapped blocks; every sample is verified on first access."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self.paths = paths
        self.blocks, checksums = zip(*map(_open_block, paths))
        self.checksums = np.concatenate(checksums)
        self.verified = np.zeros(len(self.checksums), dtype=np.bool_)

    def __len__(self) -> int:
        return len(self.checksums)

    @property
    def shape(self) -> tuple[int, ...]:
        """(n, …), as of an array."""
        return (len(self), *self.blocks[0].shape[1:])

    @property
    def dtype(self) -> np.dtype[Any]:
        dtype: np.dtype[Any] = self.blocks[0].dtype
        return dtype

    def __getitem__(self, indices: Indices) -> Floats:
        """Return the activations of samples, (m, …)."""
        return np.stack([self.row(int(index)) for index in indices])

    def row(self, index: int) -> Floats:
        """Return the activations of one sample."""
        block, place = divmod(index, BLOCK)
        row: Floats = self.blocks[block][place]
        if not self.verified[index]:
            if zlib.crc32(row.data) != self.checksums[index]:
                path = self.paths[block]
                path.with_suffix(".npz").unlink(missing_ok=True)
                _opened.clear()
                raise UserError(f"{path} is damaged. Run the same command again: it is computed again.")
            self.verified[index] = True
        return row


@dataclass(frozen=True)
class ViewInputs(ArrayInputs):
    """Activations of one domain in several views: clean for evaluation, a random view of each sample for training."""

    views: tuple[Activations, ...] = ()  # of augmented images; training also uses the clean ones

    def prepare(self, indices: Indices, generator: torch.Generator | None = None) -> HostArray:
        if generator is None or not self.views:
            return super().prepare(indices)
        arrays = (cast("Activations", self.x), *self.views)
        chosen = torch.randint(len(arrays), (len(indices),), generator=generator).tolist()
        rows = np.stack([arrays[view].row(int(index)) for view, index in zip(chosen, indices)])
        return HostArray(torch.from_numpy(rows if self.standard is None else self.standard(rows)))


@dataclass(frozen=True)
class ActivationCache:
    """The activations of a dataset's images, normalised as the network expects, in `views` augmented views and clean.

    Args:
        dataset: the images.
        front: images → activations (n, …), frozen.
        name: of the network and of where it is cut.
        views: number of augmented views.
        precision: in which activations are stored.
        device: where missing ones are computed.
    """

    dataset: DomainDataset
    front: nn.Module
    name: str
    views: int = 0
    precision: Precision = "float32"
    device: torch.device = CPU

    def __post_init__(self) -> None:
        if self.dataset.kind != "images":
            found = f"{self.dataset.name}, which holds {self.dataset.kind.replace('_', ' ')}"
            raise UserError(f"Expected images in files. Found {found}. Drop --frozen or --views.")
        self.front.to(self.device).eval()

    def count_missing(self) -> int:
        """Count the images, of all views, whose activations are not in the cache."""
        return sum(len(block.indices) for block in self._list_blocks() if not block.is_complete())

    def sample(self, n: int) -> DomainDataset:
        """Compute the activations of the first n images of every domain, which are not kept: to try a run."""
        bar, domains = Progress("", n, show=False), []
        for domain in self.dataset.domains:
            rows = np.arange(min(n, len(domain)))
            x = self._compute(_Block(domain, CLEAN, rows, Path()), bar)
            domains.append(Domain(domain.name, ArrayInputs(x), domain.y[rows]))
        return self._replace(domains, x.shape[1:])

    def fill(self, *, progress: bool | Progress = True) -> None:
        """Compute what is missing, beside other processes that do the same."""
        missing = [block for block in self._list_blocks() if not block.is_complete()]
        if not missing:
            return
        make_folder(missing[0].path.parent, "FGMIX_CACHE")
        images = sum(len(block.indices) for block in missing)
        with torch.inference_mode():
            size = self.front(torch.zeros(1, *self.dataset.input_shape, device=self.device)).numel()
        needed = images * size * np.dtype(self.precision).itemsize
        require_space(missing[0].path.parent, needed, "activations", "set FGMIX_CACHE to a folder with more")
        with Progress("activations", images, "images", show=progress, counts=False) as bar:
            for wait in (False, True):  # first what no other process computes, then what one may have left
                taken = []
                for block in missing:
                    lock = block.path.with_suffix(".lock")
                    with wait_for_lock(lock, show=bool(progress), wait=wait) as free:
                        if not free:
                            taken.append(block)
                        elif block.is_complete():
                            bar.skip(len(block.indices))
                        else:
                            block.write(self._compute(block, bar))
                        if free:
                            lock.unlink(missing_ok=True)
                missing = taken

    def read(self) -> DomainDataset:
        """Return the dataset with activations, all in the cache, instead of images. It keeps its fingerprint."""
        views: dict[tuple[str, int], list[_Block]] = {}
        for block in self._list_blocks():
            views.setdefault((block.domain.name, block.view), []).append(block)
        opened = {key: _open(blocks) for key, blocks in views.items()}
        domains = [
            replace(d, inputs=ViewInputs(cast("Floats", clean), views=tuple(augmented)))
            for d in self.dataset.domains
            for clean, *augmented in [[opened[d.name, view] for view in range(self.views + 1)]]
        ]
        return self._replace(domains, next(iter(opened.values())).shape[1:])

    def _replace(self, domains: Sequence[Domain], shape: tuple[int, ...]) -> DomainDataset:
        kind = "features" if len(shape) == 1 else self.dataset.kind
        return replace(self.dataset, domains=tuple(domains), input_shape=shape, kind=kind)

    def _list_blocks(self) -> Iterator[_Block]:
        folder = cache_dir() / "activations" / self._key
        for domain in self.dataset.domains:
            for view in range(self.views + 1):
                for start in range(0, len(domain), BLOCK):
                    yield _Block(domain, view, np.arange(start, min(start + BLOCK, len(domain))), folder)

    @property
    def _key(self) -> str:
        """A digest of everything that determines the activations of an image in the decoded cache."""
        weights = (part for key, t in self.front.state_dict().items() for part in (key, t.detach().cpu().numpy()))
        inputs = cast("ImageInputs", self.dataset.domains[0].inputs)
        about = (FORMAT, self.name, self.precision, f"S={inputs.size} {inputs.normalisation}")
        return fingerprint_of([*about, *weights])

    @torch.inference_mode()
    def _compute(self, block: _Block, bar: Progress) -> Floats:
        batches = [block.indices[start : start + BATCH] for start in range(0, len(block.indices), BATCH)]
        rows = []
        for [(x, _)] in deliver(lambda batch: [block.prepare(batch)], batches, device=self.device):
            h: Tensor = self.front(x.contiguous(memory_format=torch.channels_last)).float()
            rows.append(h.cpu().contiguous().numpy().astype(self.precision))
            bar.advance(len(x))
        if not all(np.isfinite(each).all() for each in rows):
            raise UserError(
                f"Expected activations of {self.name} that fit into {self.precision}. Found larger or infinite ones. "
                "Drop --views, or freeze another part of the network."
            )
        return np.concatenate(rows)


@dataclass(frozen=True)
class _Block:
    """Some samples of a domain in one view, `CLEAN` or the number of an augmented one."""

    domain: Domain
    view: int
    indices: Indices
    folder: Path

    @property
    def path(self) -> Path:
        inputs = cast("ImageInputs", self.domain.inputs)
        images = cast("CachedImages", inputs.images)
        view = "clean" if self.view == CLEAN else f"view {self.view} of {self.domain.name} from {self.indices[0]}"
        return self.folder / f"{fingerprint_of([images.key, inputs.rows[self.indices], view])}.bin"

    def is_complete(self) -> bool:
        """Say whether the block is in the cache: its checksums are written last. A damaged one is reported."""
        path = self.path
        try:
            rows, _ = _open_block(path)
            if len(rows) != len(self.indices):
                raise damage_error(str(path))
        except FileNotFoundError:
            return False
        except (Damaged, OSError) as error:
            print_notes(f"{error} The activations in it are computed again.")
            with suppress(OSError):
                path.with_suffix(".npz").unlink(missing_ok=True)
            return False
        return True

    def prepare(self, indices: Indices) -> HostBatch:
        """Prepare images for the network: the augmentation depends on the view and on the first image, not on a seed,
        so that all runs share the activations.
        """
        if self.view == CLEAN:
            return HostBatch.of(self.domain, indices)
        generator = torch_generator("view", self.view, self.domain.name, int(indices[0]))
        return HostBatch.of(self.domain, indices, generator)

    def write(self, rows: Floats) -> None:
        """Write the block, its index last."""
        write_bytes(self.path, rows.tobytes())
        checksums = np.array([zlib.crc32(row.data) for row in rows], dtype=np.uint32)
        about = {"shape": np.array(rows.shape), "dtype": np.array(rows.dtype.str), "checksums": checksums}
        write_arrays(self.path.with_suffix(".npz"), about)


def _open_block(path: Path) -> tuple[Floats, npt.NDArray[np.uint32]]:
    """Return the rows of a block, memory-mapped, and their checksums; `Damaged` if the index or a length is wrong."""
    index = read_arrays(path.with_suffix(".npz"))
    shape, dtype = tuple(map(int, index["shape"])), np.dtype(str(index["dtype"]))
    if os.stat(path).st_size != np.prod(shape) * dtype.itemsize:
        raise damage_error(str(path))
    # mode "c", because torch requires writable arrays
    return np.asarray(np.memmap(path, dtype, mode="c", shape=shape)), index["checksums"]


def _open(blocks: Sequence[_Block]) -> Activations:
    paths = [block.path for block in blocks]
    name = " ".join(map(str, paths))
    if name not in _opened:
        _opened[name] = activations = Activations(paths)
        return activations
    return _opened[name]
