"""A model of a table: trained, saved, used on new tables and exported."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from deploy.made import QUICK
from fgmix import fit, load_model
from fgmix.deploy.export import export_model
from fgmix.deploy.monitor import monitor
from fgmix.deploy.predict import predict_paths
from fgmix.errors import UserError


def write_table(path: Path, seed: int = 0, n: int = 150) -> Path:
    """Three domains whose classes differ in a number, a category and what is missing."""
    rng = np.random.default_rng(seed)
    lines = ["label,domain,value,colour"]
    for i in range(n):
        ill = rng.random() < 0.5
        value = "" if rng.random() < 0.2 else f"{rng.normal(3 * ill + i % 3):.3f}"
        colour = rng.choice(["red", "blue"], p=[0.9, 0.1] if ill else [0.1, 0.9])
        lines.append(
            f"{'ill' if ill else 'well'},{'abc'[i % 3]},{value},{colour if rng.random() < 0.9 else 'c' * (i % 3)}"
        )
    path.write_text("\n".join(lines) + "\n")
    return path


def test_a_table_becomes_a_model(tmp_path: Path) -> None:
    model = fit(write_table(tmp_path / "t.csv"), tmp_path / "model", **QUICK)
    assert model.info.estimate is not None
    assert model.info.estimate.accuracy > 0.8
    new = write_table(tmp_path / "new.csv", seed=1)
    loaded = load_model(tmp_path / "model")
    assert loaded.info.columns == model.info.columns
    rows = list(predict_paths(loaded, [new], progress=False))
    assert [row["error"] for row in rows] == [""] * 150
    truth = [line.split(",")[0] for line in new.read_text().splitlines()[1:]]
    assert np.mean([row["label"] == label for row, label in zip(rows, truth)]) > 0.8
    for paths in ([tmp_path / "image.png"], [new, new]):
        with pytest.raises(UserError, match="table"):
            list(predict_paths(loaded, paths, progress=False))
    assert monitor(loaded, [new, new], progress=False).samples == 300
    with pytest.raises(UserError, match="standardize"):
        fit(tmp_path / "t.csv", tmp_path / "other", standardize=False, **QUICK)

    onnxruntime = pytest.importorskip("onnxruntime")
    session = onnxruntime.InferenceSession(export_model(loaded, tmp_path / "model.onnx"))
    x = np.full((1, *loaded.info.input_shape), np.nan, dtype=np.float32)
    np.testing.assert_allclose(session.run(None, {"x": x})[0], loaded.predict(x).probabilities, atol=1e-5)
    assert "fgmix.columns" in session.get_modelmeta().custom_metadata_map
