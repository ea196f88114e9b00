"""Serve an exported model over HTTP with the standard library, onnxruntime, numpy and Pillow: no torch, no fgmix.

fgmix export model                                          # writes model/model.onnx
python serve_onnx.py model/model.onnx --port 8000           # on 127.0.0.1
curl --data-binary @scan.png http://127.0.0.1:8000/predict  # an image file, or JSON {"x": [[…], …]} for arrays
curl http://127.0.0.1:8000/                                 # classes, domains, input and version of the model

It has no access control and no encryption: put it behind a server that has both.
"""

import argparse
import io
import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import onnxruntime
from onnx_without_torch import pixels
from PIL import UnidentifiedImageError

LARGEST = 50_000_000  # bytes of a request
TYPES = {
    "tensor(float)": np.float32,
    "tensor(double)": np.float64,
    "tensor(uint8)": np.uint8,
    "tensor(uint16)": np.uint16,
}


class Refused(Exception):
    """A request that cannot be answered: a status and a sentence."""

    def __init__(self, status, sentence):
        super().__init__(sentence)
        self.status = status


class ServedModel:
    """An ONNX file that `fgmix export` wrote."""

    def __init__(self, path):
        self.session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        about = self.session.get_modelmeta().custom_metadata_map
        texts = ("fgmix.version", "fgmix.data")  # the others are JSON
        self.about = {name[6:]: value if name in texts else json.loads(value) for name, value in about.items()}
        self.input = self.session.get_inputs()[0]

    def predict(self, body):
        """Predict the samples in the body of a request: a dictionary for each."""
        x = self._read_image(body) if "interpolation" in self.about else self._read_array(body)
        probabilities, novelty, trusted = self.session.run(None, {self.input.name: x})
        return [
            {
                "label": self.about["classes"][int(p.argmax())],
                "confidence": float(p.max()),
                "novelty": float(distance),
                "trusted": bool(is_trusted),
                "probabilities": dict(zip(self.about["classes"], map(float, p))),
            }
            for p, distance, is_trusted in zip(probabilities, novelty, trusted)
        ]

    def _read_image(self, body):
        size, window = self.input.shape[1], self.about.get("window", "")
        try:
            return pixels(io.BytesIO(body), size, self.about["interpolation"], window)[None]
        except UnidentifiedImageError as error:
            raise Refused(400, "Expected an image file, such as PNG. Found another format.") from error
        except Exception as error:  # Pillow's readers of damaged files raise anything
            raise Refused(400, f"Expected an image file. It cannot be read ({error}).") from error

    def _read_array(self, body):
        try:
            given, dtype = np.asarray(json.loads(body)["x"]), TYPES[self.input.type]
            x = given.astype(dtype)
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
            raise Refused(400, 'Expected JSON {"x": […]} with a list of samples.') from error
        if x.dtype.kind == "u" and not np.array_equal(x, given):
            raise Refused(400, f"Expected integers from 0 to {np.iinfo(dtype).max}.")
        if x.ndim != len(self.input.shape) or list(x.shape[1:]) != self.input.shape[1:]:
            raise Refused(400, f"Expected samples of shape {self.input.shape[1:]}. Found {list(x.shape[1:])}.")
        if not ("columns" in self.about or np.isfinite(x).all()):  # columns: of a table, where NaN is a missing value
            raise Refused(400, "Expected finite numbers.")
        return x


class Handler(BaseHTTPRequestHandler):
    """Answers in JSON; `model` is set by `make_server`."""

    model = None
    timeout = 60  # seconds without a byte, after which a connection is closed

    def do_GET(self):
        self._answer(lambda: self.model.about if self.path == "/" else self._refuse_path())

    def do_POST(self):
        self._answer(lambda: self.model.predict(self._read_body()) if self.path == "/predict" else self._refuse_path())

    def _refuse_path(self):
        raise Refused(404, "Expected GET / or POST /predict.")

    def _read_body(self):
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal():
            raise Refused(411, "Expected a Content-Length.")
        if int(length) > LARGEST:
            raise Refused(413, f"Expected at most {LARGEST:,} bytes.")
        return self.rfile.read(int(length))

    def _answer(self, compute):
        try:
            status, content = 200, compute()
        except Refused as refused:
            status, content = refused.status, {"error": str(refused)}
            self.close_connection = True  # the rest of the request was not read
        data = json.dumps(content, ensure_ascii=False).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json; charset=utf-8")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def make_server(path, port, address="127.0.0.1"):
    """Make a server of a model; port 0 for any free one."""
    handler = type("ModelHandler", (Handler,), {"model": ServedModel(path)})
    return ThreadingHTTPServer((address, port), handler)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Serve an exported model over HTTP.")
    parser.add_argument("model", help="the .onnx file")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--address", default="127.0.0.1", help="0.0.0.0 for other machines, too")
    options = parser.parse_args()
    with make_server(options.model, options.port, options.address) as server:
        print(f"http://{options.address}:{server.server_port}", flush=True)
        server.serve_forever()
