"""Text embeddings of the classes of a run: computed once, kept in the cache with a digest."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from torch import Tensor

from fgmix.errors import UserError, unknown
from fgmix.networks.clip import TextTower, build_text_tower
from fgmix.networks.text import TEMPLATES, clean_name, embed_classes
from fgmix.records.digests import Damaged, digest_of
from fgmix.records.files import cache_dir, read_bytes
from fgmix.records.schema import ResolvedSpec
from fgmix.seeding import seed_torch
from fgmix.training.state import read_weights, write_tensors


class TextEmbeddings(NamedTuple):
    """Embeddings of the classes of a run."""

    embeddings: Tensor  # (C, d), of norm 1
    scale: float  # 1/τ of the model
    digest: str  # of both


def embed_texts(spec: ResolvedSpec) -> TextEmbeddings:
    """Return the text embeddings of a run's classes, from the cache if they were computed before."""
    templates = TEMPLATES[spec.templates or "photo"]
    # The weights of a tag are identified by its name, those of a file by their digest, random ones by the seed.
    seed = None if spec.pretrained or spec.weights else spec.seed
    key = digest_of(json.dumps([spec.backbone, spec.weights_digest, seed, templates, spec.texts]).encode())
    path = cache_dir() / "texts" / f"{key}.pt"
    try:
        content = read_weights(path) if path.exists() else {}
    except Damaged:
        content = {}
    if not content:
        tower = build_text(spec)
        content = {"embeddings": embed_classes(tower, spec.texts, templates), "scale": tower.scale}
        path.parent.mkdir(parents=True, exist_ok=True)
        write_tensors(path, content)
    embeddings, scale = content["embeddings"], content["scale"]
    return TextEmbeddings(embeddings, scale, digest_of(embeddings.numpy().tobytes() + repr(scale).encode()))


def build_text(spec: ResolvedSpec, *, blank: bool = False) -> TextTower:
    """Build the text tower of a run's backbone; with `blank`, with random weights that a file replaces."""
    seed_torch("init", spec.seed)  # as before the image tower: with random weights, both are of one model
    weights = None if blank or not spec.weights else spec.weights
    return build_text_tower(spec.backbone, pretrained=spec.pretrained and not blank, weights=weights)


def name_classes(classes: Sequence[str], file: str) -> tuple[str, ...]:
    """Return the names of classes as texts have them: from a CSV file class,name, or else their own in words."""
    if not file:
        return tuple(map(clean_name, classes))
    rows = [row for row in csv.reader(_read_text(file).splitlines()) if row]
    if rows[:1] == [["class", "name"]] and "class" not in classes:
        rows = rows[1:]  # a header
    wrong = next((row for row in rows if len(row) != 2 or not row[1].strip()), None)
    if wrong:
        raise UserError(f"Expected lines class,name in {file}. Found {','.join(wrong)!r}. Give each class one name.")
    names = {folder.strip(): name.strip() for folder, name in rows}
    if len(names) < len(rows):
        raise UserError(f"Expected a line for each class in {file}. Found two for one class. Give each class one name.")
    for folder in names:
        if folder not in classes:
            raise unknown("class", folder, classes)
    missing = [folder for folder in classes if folder not in names]
    if missing:
        raise UserError(f"Expected a name for every class in {file}. Found none for {missing[0]}. Add a line for it.")
    return tuple(names[folder] for folder in classes)


def _read_text(file: str) -> str:
    try:
        return read_bytes(Path(file).expanduser()).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"Expected a CSV file in UTF-8 at {file}. Found other bytes. Save it as UTF-8.") from error
