"""Any byte of any file that others are made from may change or be lost: that is harmless, or it is reported.

Runs have this test in tests/training/test_damage.py, decoded images in tests/data/test_cache_damage.py. More changes,
and others: FGMIX_EXAMPLES=1500 pytest tests/test_damage.py
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from data.pictures import two_domains
from fgmix import load_model, read_record
from fgmix.data import LoadOptions, activations
from fgmix.data.image_dataset import load_images
from fgmix.deploy.soup import soup
from fgmix.errors import UserError
from fgmix.figures.kinds import load_arrays
from fgmix.networks import build_featurizer
from fgmix.records.schema import to_plain
from fgmix.records.status import read_status
from fgmix.records.store import pack
from fgmix.results.read import read_runs
from fgmix.results.report import tabulate
from properties.quickly import MANY
from training.test_damage import change
from workbench import Workbench, fgmix

CHANGES = MANY or 60
Look = Callable[[], Any]


def altered(root: Path, look: Look, capsys: pytest.CaptureFixture[str], pattern: str = "*") -> None:
    """Change a file below `root` again and again: each look finds the same, names the file, or prints a note."""
    rng = random.Random() if MANY else random.Random(0)
    files = [path for path in sorted(root.rglob(pattern)) if path.is_file() and path.stat().st_size]
    assert files
    whole = {path: path.read_bytes() for path in files}
    sound = look()
    for i in range(CHANGES):
        capsys.readouterr()
        path = rng.choice(files)
        path.write_bytes(change(whole[path], rng, cut=i % 2 == 0))
        try:
            found = look()
        except UserError as error:
            assert path.name in str(error) or path.parent.name in str(error)  # noqa: PT017 (one of two right answers)
        else:
            assert found == sound or path.name in capsys.readouterr().err, path
        path.write_bytes(whole[path])


def test_packed_records(bench: Workbench, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "a.records.xz"
    pack(read_runs(bench.sweep).all_records(), file)
    altered(tmp_path, lambda: tabulate(read_runs(file)).to_text(), capsys)


def test_plans_and_records_of_a_sweep(bench: Workbench, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A report skips what is damaged with a note in `Runs.notes`; `status` names it among the failed."""
    out = shutil.copytree(bench.sweep, tmp_path / "sweep")

    def look() -> object:
        results = read_runs(out)
        if results.notes:
            raise UserError(results.notes[0])
        status = read_status(out)
        if status.errors:
            raise UserError(str(status.errors))
        return tabulate(results).to_text(), status.lines()

    altered(out, look, capsys, "*.json")


@pytest.mark.parametrize("kind", ["uniform", "ensemble"])
def test_a_soup(kind: Any, bench: Workbench, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "soup"
    soup([bench.erm, bench.fgmix], out, kind=kind, progress=False)
    (out / "card.md").unlink()  # for people: nothing is made from it
    with np.load(bench.arrays) as arrays:
        x = arrays["X"]

    def look() -> object:
        model = load_model(out)
        return model.predict(x).probabilities.tobytes(), str(model.info), to_plain(read_record(out))

    altered(out, look, capsys)


def test_features_of_a_frozen_backbone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FGMIX_CACHE", str(tmp_path / "cache"))
    data = load_images(two_domains(tmp_path / "pets"), LoadOptions(image_size=8, progress=False))
    backbone = build_featurizer("small_cnn", (3, 8, 8)).eval().requires_grad_(False)

    def look() -> object:
        monkeypatch.setattr(activations, "_opened", {})
        cache = activations.ActivationCache(data, backbone, "small_cnn", 1, "float16")
        cache.fill(progress=False)
        arrays = [array for d in cache.read().domains for array in (d.inputs.x, *d.inputs.views)]  # type: ignore[attr-defined]
        return [array[np.arange(len(array))].tobytes() for array in arrays]

    look()
    altered(tmp_path / "cache" / "activations", look, capsys)


def test_arrays_of_a_figure(bench: Workbench, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert fgmix("plot", "results", bench.erm, "--kind", "curves", "--out", tmp_path) == 0
    (file,) = tmp_path.glob("*.npz")
    altered(tmp_path, lambda: repr(load_arrays(file)), capsys, "*.npz")
