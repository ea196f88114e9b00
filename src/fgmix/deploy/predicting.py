"""`fgmix predict`: rows about images in files and folders, or about arrays in an .npz file."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any

import numpy as np

from fgmix.data.augment import ImageInputs
from fgmix.data.decoded import DecodedImages, Unreadable, quiet_decoding, reduced
from fgmix.data.folders import EXTENSIONS
from fgmix.deploy.model import DeployedModel, Predictions
from fgmix.errors import UserError
from fgmix.progress import Progress

BATCH = 64  # images decoded and predicted at a time: a bound on memory
Row = dict[str, Any]


def predict_paths(
    model: DeployedModel, paths: Sequence[Path], *, probabilities: bool = False, progress: bool = True
) -> Iterator[Row]:
    """A row for every image or array row, in order; a file that cannot be decoded gets one with the reason.

    Args:
        model: the model.
        paths: image files and folders of them, or one .npz file with X.
        probabilities: also give every class's.
        progress: show a bar.
    """
    if any(path.suffix == ".npz" for path in paths):
        if len(paths) > 1:
            raise UserError(f"Expected one .npz file, or images. Found {len(paths)} paths with an .npz among them.")
        yield from _array_rows(model, paths[0], probabilities)
        return
    if model.info.kind != "images":
        raise UserError(f"This model takes {model.info.kind} as arrays. Found images. Pass an .npz file with X.")
    files = image_files(paths)
    with Progress("predict", len(files), show=progress) as bar:
        for start in range(0, len(files), BATCH):
            rows = _image_rows(model, files[start : start + BATCH], probabilities)
            yield from rows
            bar.advance(len(rows))


def image_files(paths: Sequence[Path]) -> list[Path]:
    """Files as given, folders as all images below them in sorted order."""
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            below = sorted(p for p in path.rglob("*") if p.suffix.lower() in EXTENSIONS and p.is_file())
            if not below:
                raise UserError(f"Expected images under {path}. Found none.")
            found += below
        elif path.exists():
            found.append(path)
        else:
            raise UserError(f"Expected an image or a folder at {path}. Found nothing there.")
    return found


def write_csv(rows: Iterator[Row], file: IO[str]) -> int:
    """Write rows as they come; returns how many could not be predicted."""
    writer, failed = None, 0
    for row in rows:
        if writer is None:
            writer = csv.DictWriter(file, list(row))
            writer.writeheader()
        writer.writerow(row)
        failed += bool(row["error"])
    return failed


def _image_rows(model: DeployedModel, files: Sequence[Path], probabilities: bool) -> list[Row]:
    size = model.info.input_shape[-1]
    with quiet_decoding(), ThreadPoolExecutor() as pool:
        decoded = list(pool.map(lambda path: reduced(path, size), files))
    pixels = [np.asarray(image) for image in decoded if not isinstance(image, Unreadable)]
    predictions = model.predict_inputs(_inputs(pixels, size))
    rows: list[Row] = []
    taken = 0
    for path, image in zip(files, decoded, strict=True):
        if isinstance(image, Unreadable):
            rows.append(_row({"file": str(path)}, predictions, None, probabilities, error=image.reason))
        else:
            rows.append(_row({"file": str(path)}, predictions, taken, probabilities))
            taken += 1
    return rows


def _inputs(pixels: Sequence[np.ndarray[Any, np.dtype[np.uint8]]], size: int) -> ImageInputs:
    """Decoded images in memory, prepared exactly as evaluation prepares those of the cache."""
    lengths = np.array([image.size for image in pixels], dtype=np.int64)
    images = DecodedImages(
        key="",
        pixels=np.concatenate([image.ravel() for image in pixels]) if pixels else np.empty(0, np.uint8),
        offsets=np.cumsum(lengths) - lengths,
        heights=np.array([image.shape[0] for image in pixels], dtype=np.int64),
        widths=np.array([image.shape[1] for image in pixels], dtype=np.int64),
    )
    return ImageInputs(images, images.readable, size)


def _array_rows(model: DeployedModel, path: Path, probabilities: bool) -> Iterator[Row]:
    if model.info.kind == "images":
        raise UserError(f"This model takes image files. Found {path}. Pass images or a folder of them.")
    try:
        with np.load(path, allow_pickle=False) as archive:
            x = archive[next(key for key in archive.files if key.lower() == "x")]
    except (OSError, ValueError, StopIteration) as error:
        raise UserError(
            f"Expected an array X in {path}. Found none that can be read. Save one with numpy.savez."
        ) from error
    predictions = model.predict(x)
    for i in range(len(predictions)):
        yield _row({"row": i}, predictions, i, probabilities)


def _row(named: Row, predictions: Predictions, i: int | None, probabilities: bool, error: str = "") -> Row:
    """One row; every row of a file has the same columns."""
    row = {**named, "label": "", "confidence": "", "novelty": "", "trusted": "", "error": error}
    shares = {f"p({name})": "" for name in predictions.classes} if probabilities else {}
    if i is not None:
        row |= {
            "label": predictions.labels[i],
            "confidence": f"{predictions.confidence[i]:.4f}",
            "novelty": f"{predictions.novelty[i]:.4f}",
            "trusted": "yes" if predictions.trusted[i] else "no",
        }
        if probabilities:
            shares = {name: f"{p:.4f}" for name, p in zip(shares, predictions.probabilities[i], strict=True)}
    return {**row, **shares}
