"""examples/serve_onnx.py: a service on 127.0.0.1, in a process that cannot import torch."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import numpy as np
import pytest
from PIL import Image

from deploy.made import vectors
from fgmix import load_model
from fgmix.deploy.export import export_model
from fgmix.deploy.model import Model
from fgmix.deploy.predict import predict_paths

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
START = """
import runpy, sys
sys.modules.update(dict.fromkeys(["fgmix", "onnx", "torch"]))  # to import one of them is an error
sys.path.insert(0, sys.argv[1])
sys.argv = ["serve_onnx.py", sys.argv[2], "--port", "0"]
runpy.run_path(sys.path[0] + "/serve_onnx.py", run_name="__main__")
"""


def serve(onnx: Path) -> Iterator[str]:
    words = [sys.executable, "-c", START, str(EXAMPLES), str(onnx)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout
        try:
            yield process.stdout.readline().strip()
        finally:
            process.terminate()


@pytest.fixture(scope="module")
def image_service(image_onnx: Path) -> Iterator[str]:
    yield from serve(image_onnx)


@pytest.fixture(scope="module")
def vector_service(vectors_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    pytest.importorskip("onnxruntime")
    yield from serve(export_model(load_model(vectors_folder), tmp_path_factory.mktemp("onnx") / "vectors.onnx"))


def ask(url: str, body: bytes | None = None) -> Any:
    with urlopen(Request(url, data=body), timeout=20) as answer:
        return json.load(answer)


def refuse(url: str, body: bytes | None = None) -> tuple[int, str]:
    with pytest.raises(HTTPError) as refused:
        ask(url, body)
    with refused.value as answer:
        return answer.code, json.load(answer)["error"]


def test_an_image_is_predicted_as_by_the_command(image_service: str, image_model: Model, pictures: Path) -> None:
    path = pictures / "wide" / "rows" / "3.png"
    (row,) = predict_paths(image_model, [path], progress=False)
    (answer,) = ask(f"{image_service}/predict", path.read_bytes())
    assert answer["label"] == row["label"]
    assert answer["confidence"] == pytest.approx(float(row["confidence"]), abs=5e-3)
    assert answer["trusted"] is (row["trusted"] == "yes")
    assert sum(answer["probabilities"].values()) == pytest.approx(1, abs=1e-5)
    assert ask(f"{image_service}/")["classes"] == list(image_model.info.classes)


def test_arrays_are_predicted_as_by_the_model(vector_service: str, vectors_folder: Path) -> None:
    x = vectors(seed=2).domains[0].inputs.x[:4]
    answers = ask(f"{vector_service}/predict", json.dumps({"x": x.tolist()}).encode())
    expected = load_model(vectors_folder).predict(x)
    assert [each["label"] for each in answers] == expected.labels
    np.testing.assert_allclose([each["confidence"] for each in answers], expected.confidence, atol=1e-4)


def test_bad_requests_get_a_sentence(image_service: str, vector_service: str) -> None:
    status, sentence = refuse(f"{image_service}/predict", b"no image")
    assert (status, "object at" in sentence) == (400, False)
    assert refuse(f"{image_service}/admin")[0] == 404
    assert refuse(f"{image_service}/admin", b"")[0] == 404
    chunks = io.BytesIO()
    Image.effect_noise((64, 64), 50).save(chunks, "png")
    damaged = bytearray(chunks.getvalue())
    damaged[60:70] = b"\0" * 10  # its length and checksum do not agree any more
    assert refuse(f"{image_service}/predict", bytes(damaged))[0] == 400
    assert refuse(f"{vector_service}/predict", b"[1, 2")[0] == 400
    assert refuse(f"{vector_service}/predict", b'{"x": [[%s, 1, 1, 1, 1]]}' % (b"9" * 400))[0] == 400
    assert refuse(f"{vector_service}/predict", b'{"x": [[1, 2]]}') == (400, "Expected samples of shape [5]. Found [2].")
    assert refuse(f"{vector_service}/predict", b'{"x": [[NaN, 1, 1, 1, 1]]}') == (400, "Expected finite numbers.")
    too_long = Request(f"{image_service}/predict", data=b"", headers={"Content-Length": "99999999999"})
    with pytest.raises(HTTPError) as refused:
        urlopen(too_long, timeout=20)
    with refused.value as answer:
        assert answer.code == 413
