"""`fgmix predict`: one row per image in files and folders, or per row of a table or of an array in an .npz file."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from fgmix.data.arrays import finite_rows, read_npz
from fgmix.data.augment import ImageInputs
from fgmix.data.folders import EXTENSIONS, is_manifest, manifest_paths
from fgmix.data.images import Unreadable, quiet_decoding, read_image
from fgmix.data.tables import encode_table
from fgmix.deploy.model import Model, Predictions
from fgmix.errors import UserError, reason_of, unknown
from fgmix.escape import escape_csv
from fgmix.progress import Progress

BATCH = 64  # images decoded and predicted at a time, which bounds the memory
Row = dict[str, Any]
Format = Literal["csv", "jsonl"]


def predict_paths(
    model: Model, paths: Sequence[Path], *, probabilities: bool = False, progress: bool = True, adapt: bool = False
) -> Iterator[Row]:
    """Yield a row for every image or array row, in order, with an error if it cannot be predicted.

    Args:
        model: the model.
        paths: image files, folders of them and CSV manifests with a column `path`; or one .npz file with X; or one
            table, for a model of tables.
        probabilities: also give the probability of every class.
        progress: show a bar.
        adapt: adapt the model to all images, or to all rows of a file, as a batch of one new domain.
    """
    tables = (".csv", ".parquet") if model.info.columns else ()
    if files := [path for path in paths if path.suffix.lower() in (".npz", *tables)]:
        if len(paths) > 1:
            raise UserError(f"Expected one .npz file, one table, or images. Found {len(paths)} paths.")
        predict_file = _predict_array if files[0].suffix.lower() == ".npz" else _predict_table
        yield from predict_file(model, files[0], probabilities, adapt)
        return
    if model.info.kind != "images":
        expected = "a table (.csv, .parquet)" if model.info.columns else "an .npz file with X"
        raise UserError(f"This model takes {model.info.kind} as arrays. Found other files. Pass {expected}.")
    files = list_images(paths)
    if adapt:
        with Progress("adapt", len(files), "images", show=progress) as bar:
            model = model.adapt(_decode_all(model, files, bar))
    with Progress("predict", len(files), "images", show=progress) as bar:
        for start in range(0, len(files), BATCH):
            rows = _predict_images(model, files[start : start + BATCH], probabilities)
            yield from rows
            bar.advance(len(rows))


def list_images(paths: Sequence[Path]) -> list[Path]:
    """List given files, existing or not; all images below given folders, sorted; files named in manifests."""
    files: list[Path] = []
    for path in paths:
        if path.is_dir():
            below = [Path(place, name) for place, _, names in os.walk(path, onerror=_refuse) for name in names]
            images = sorted(file for file in below if file.suffix.lower() in EXTENSIONS)
            if not images:
                raise UserError(f"Expected images under {path}. Found none.")
            files += images
        elif is_manifest(path):
            files += manifest_paths(path)
        else:
            files.append(path)
    return files


def _refuse(error: OSError) -> None:
    """Raise an error for a folder that cannot be read, so that its images are not skipped silently."""
    raise UserError(
        f"Expected a folder that can be read at {error.filename}. It cannot ({reason_of(error)}). Change its "
        "permissions, or name other folders."
    ) from error


@dataclass
class Written:
    """Number of rows written, how many of them have an error, and the first of these."""

    rows: int = 0
    failed: int = 0
    first: Row = field(default_factory=dict)

    def count(self, row: Row) -> None:
        if row["error"] and not self.failed:
            self.first = row
        self.rows += 1
        self.failed += bool(row["error"])


def write_rows(rows: Iterator[Row], file: IO[str], format: Format = "csv") -> Written:
    """Write rows one by one.

    Args:
        rows: from `predict_paths`.
        file: an open text file.
        format: "csv", or "jsonl" for a JSON object per line, with typed values and null for missing ones.
    """
    if format not in get_args(Format):
        raise unknown("format", format, get_args(Format))
    written, writer = Written(), None
    for row in rows:
        written.count(row)
        if format == "jsonl":
            values = {name: _to_json(name, value) for name, value in row.items()}
            file.write(json.dumps(values, ensure_ascii=False) + "\n")
            continue
        if writer is None:
            writer = csv.DictWriter(file, list(row))
            writer.writeheader()
        writer.writerow({name: escape_csv(str(value)) for name, value in row.items()})
    return written


def _to_json(name: str, value: Any) -> Any:
    """Convert a value of a CSV row to its JSON type."""
    if value == "":
        return None
    if name == "trusted" or name.startswith("flag("):
        return value == "yes"
    if name == "batch":
        return int(value)
    return float(value) if name in ("confidence", "novelty") or name.startswith("p(") else value


def _decode_all(model: Model, files: Sequence[Path], bar: Progress) -> Iterator[ImageInputs]:
    """Decode the images that can be read, a few at a time."""
    for start in range(0, len(files), BATCH):
        yield _decode(model, files[start : start + BATCH])[0]
        bar.advance(len(files[start : start + BATCH]))


def _predict_images(model: Model, files: Sequence[Path], probabilities: bool) -> list[Row]:
    inputs, errors = _decode(model, files)
    names = [{"file": os.fsencode(path).decode(errors="backslashreplace")} for path in files]  # a CSV is valid UTF-8
    return list(_make_rows(names, errors, model.predict_inputs(inputs), probabilities))


def _decode(model: Model, files: Sequence[Path]) -> tuple[ImageInputs, list[str]]:
    """Decode images; return those that can be read, and for each file why it cannot, or an empty text."""
    size = model.info.input_shape[-1]
    with quiet_decoding(), ThreadPoolExecutor() as pool:
        decoded = list(pool.map(lambda path: read_image(path, size, model.info.spec.window), files))
    pixels = [np.array(image) for image in decoded if not isinstance(image, Unreadable)]
    errors = [image.reason if isinstance(image, Unreadable) else "" for image in decoded]
    return ImageInputs(pixels, np.arange(len(pixels)), size, model.normalisation), errors


def _predict_array(model: Model, path: Path, probabilities: bool, adapt: bool) -> Iterator[Row]:
    arrays, _ = read_npz(path, ("X",))
    model.check_shape(arrays["X"].shape)
    x = model.convert_samples(arrays["X"])
    if not len(x):
        raise UserError(f"Expected rows in the array X of {path}. Found none.")
    yield from _predict_rows(model, x, finite_rows(x), "NaN or infinity", probabilities, adapt)


def _predict_table(model: Model, path: Path, probabilities: bool, adapt: bool) -> Iterator[Row]:
    x = model.convert_samples(encode_table(path, model.info.columns))
    yield from _predict_rows(model, x, ~np.isinf(x).any(axis=1), "infinity", probabilities, adapt)


def _predict_rows(
    model: Model, x: npt.NDArray[Any], finite: npt.NDArray[np.bool_], wrong: str, probabilities: bool, adapt: bool
) -> Iterator[Row]:
    """Predict the rows of an array that are `finite`; the others get the error `wrong`."""
    errors = np.where(finite, "", wrong).astype(object)
    predicted = model.predict(x[finite], adapt=adapt)
    sane = np.isfinite(predicted.confidence) & np.isfinite(predicted.novelty)
    errors[np.flatnonzero(finite)[~sane]] = "numbers too large for the network"
    names = [{"row": i} for i in range(len(x))]
    kept = replace(predicted, probabilities=predicted.probabilities[sane], novelty=predicted.novelty[sane])
    yield from _make_rows(names, errors.tolist(), kept, probabilities)


def _make_rows(
    names: Sequence[Row], errors: Sequence[str], predicted: Predictions, probabilities: bool
) -> Iterator[Row]:
    """Yield a row for each name, all with the same columns; `predicted` has those without an error, in order."""
    shares = [f"p({name})" for name in predicted.classes] if probabilities else []
    flags = [f"flag({name})" for name in predicted.flags]
    batch = {"batch": str(predicted.batch)} if predicted.batch else {}  # the samples that a prediction depends on
    blank = {**dict.fromkeys(["label", "confidence", "novelty", "trusted", "error", *flags, *shares], ""), **batch}
    each, flagged = predicted, np.array(list(predicted.flags.values())).reshape(len(flags), len(predicted)).T
    columns = (each.labels, each.confidence, each.novelty, each.trusted, each.probabilities, flagged)
    predictions = zip(*columns, strict=True)
    for name, error in zip(names, errors, strict=True):
        row = {**name, **blank, "error": error}
        if not error:
            label, confidence, novelty, trusted, p, marks = next(predictions)
            row |= {"label": label, "confidence": f"{confidence:.4f}", "novelty": f"{novelty:.4f}"}
            row |= {"trusted": "yes" if trusted else "no", **{c: f"{v:.4f}" for c, v in zip(shares, p)}}
            row |= {name: "yes" if mark else "no" for name, mark in zip(flags, marks)}
        yield row
