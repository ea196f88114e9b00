"""A model as one file for other software: ONNX, or torch.export's .pt2.

The exported graph includes normalisation, calibration, novelty and the trust rule:

    images     x: uint8 (n, S, S, 3), RGB pixels, resized to S×S by the interpolation in the metadata
    others     x: uint8, uint16, float32 or float64 (n, …), as in training; integers are scaled to [0, 1]
    outputs    probabilities (n, C), novelty (n,), trusted (n,)

The file is written only after it has been run and its probabilities and novelty agree with the model's.
"""

from __future__ import annotations

import copy
import io
import json
import logging
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor, nn

from fgmix.deploy.model import Model
from fgmix.deploy.network import Ensemble, Network
from fgmix.deploy.trust import fill_thresholds
from fgmix.errors import UserError, unknown
from fgmix.records.files import new_file, write_bytes
from fgmix.records.model import ModelInfo
from fgmix.records.schema import to_plain

Format = Literal["onnx", "pt2"]
INPUT, OUTPUTS = "x", ("probabilities", "novelty", "trusted")
OPSET = 18
CHECKED = (1, 3)  # batch sizes that the exported graph is run on
TOLERANCE = 1e-4  # absolute: other runtimes sum in another order


class ExportedNetwork(nn.Module):
    """The network with preprocessing before it and the trust rule after it.

    Args:
        network: the model's.
        info: the model's.
    """

    def __init__(self, network: Network | Ensemble, info: ModelInfo) -> None:
        super().__init__()
        self.network = network
        self.pixels, self.dtype = info.kind == "images", getattr(torch, info.dtype)
        self.register_buffer("least", torch.tensor(fill_thresholds(info.min_confidence), dtype=torch.float64))
        if self.pixels:
            self.register_buffer("mean", torch.tensor(info.spec.mean).view(3, 1, 1))
            self.register_buffer("std", torch.tensor(info.spec.std).view(3, 1, 1))

    least: Tensor
    mean: Tensor
    std: Tensor

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        if not self.dtype.is_floating_point:
            x = x.float() / torch.iinfo(self.dtype).max
        if self.pixels:
            x = (x.permute(0, 3, 1, 2) - self.mean) / self.std
        p, novelty = self.network(x)
        confident = p.amax(1) >= self.least[p.argmax(1)]
        return p, novelty, confident & (novelty <= 1)


def export_model(model: Model, path: Path, format: Format = "onnx", *, progress: bool = False) -> Path:
    """Write a model as one file, which must not exist.

    Args:
        model: the model.
        path: the file.
        format: "onnx", or "pt2" for torch.export.
        progress: print a line at the start, because it takes a while.
    """
    if format not in get_args(Format):
        raise unknown("format", format, get_args(Format))
    if path.suffix != f".{format}":
        raise UserError(f"Expected a name that ends in .{format}. Found {path.name}. Rename it, or give its --format.")
    new_file(path)
    if progress:
        print(f"exporting to {path}, and running the file to check it", file=sys.stderr)
    exported = ExportedNetwork(copy.deepcopy(model.network).cpu(), model.info).eval()  # the model stays on its device
    with _silence():
        data = {"onnx": _export_onnx, "pt2": _export_pt2}[format](exported, model.info)
    write_bytes(path, data)
    return path


def make_example_inputs(info: ModelInfo, n: int) -> Tensor:
    """Draw noise in the input format of the exported model."""
    generator = torch.Generator().manual_seed(n)
    size = info.input_shape[-1]
    shape = (size, size, 3) if info.kind == "images" else info.input_shape
    dtype = getattr(torch, info.dtype)
    if not dtype.is_floating_point:
        return torch.randint(0, torch.iinfo(dtype).max + 1, (n, *shape), generator=generator).to(dtype)
    return torch.randn(n, *shape, generator=generator).to(dtype)


def _export_onnx(exported: ExportedNetwork, info: ModelInfo) -> bytes:
    try:
        import onnx
        import onnxruntime
        import onnxscript  # noqa: F401 (torch's exporter needs it)
    except ImportError as error:
        raise UserError(
            f"ONNX export needs the extra packages of fgmix[export]. Missing: {error.name}. "
            "Install them: pip install 'fgmix[export]'."
        ) from error
    batch = torch.export.Dim("n", min=1, max=2**16)
    program = torch.onnx.export(
        exported,
        (make_example_inputs(info, 2),),
        input_names=[INPUT],
        output_names=list(OUTPUTS),
        dynamic_shapes={INPUT: {0: batch}},
        opset_version=OPSET,
        dynamo=True,
        verbose=False,
    )
    if program is None:
        raise AssertionError("torch.onnx.export(dynamo=True) returns a program")
    proto = program.model_proto
    for key, value in _collect_metadata(info).items():
        proto.metadata_props.add(key=key, value=value)
    onnx.checker.check_model(proto)
    data: bytes = proto.SerializeToString()
    session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    _check(exported, info, lambda x: session.run(None, {INPUT: x.numpy()}))
    return data


def _export_pt2(exported: ExportedNetwork, info: ModelInfo) -> bytes:
    batch = torch.export.Dim("n", min=1, max=2**16)
    program = torch.export.export(exported, (make_example_inputs(info, 2),), dynamic_shapes={INPUT: {0: batch}})
    file = io.BytesIO()
    torch.export.save(program, file, extra_files={"fgmix.json": json.dumps(_collect_metadata(info))})
    loaded = torch.export.load(io.BytesIO(file.getvalue())).module()
    _check(exported, info, lambda x: [out.detach().numpy() for out in loaded(x)])
    return file.getvalue()


def _collect_metadata(info: ModelInfo) -> dict[str, str]:
    """Collect metadata for software that runs the file, as texts."""
    expected = {} if info.estimate is None else {"fgmix.unseen_accuracy": f"{info.estimate.accuracy:.4f}"}
    if info.composition:
        expected["fgmix.composition"] = json.dumps(to_plain(info.composition), ensure_ascii=False)
    if info.estimate and info.estimate.operating:
        points = zip(info.classes, info.estimate.operating, strict=True)
        thresholds = {name: {str(each.wanted): each.threshold for each in row} for name, row in points}
        expected["fgmix.thresholds"] = json.dumps(thresholds, ensure_ascii=False)
    if info.columns:  # how the caller encodes a table
        expected["fgmix.columns"] = json.dumps([to_plain(column) for column in info.columns], ensure_ascii=False)
    # The graph normalises; the caller resizes, and shows grey values of more than 8 bits in the window.
    names = ("mean", "std", "interpolation", *(["window"] if info.spec.window else []))
    prepared = {name: json.dumps(getattr(info.spec, name)) for name in names}
    return {
        **({f"fgmix.{name}": value for name, value in prepared.items()} if info.kind == "images" else {}),
        "fgmix.version": info.fgmix_version,
        "fgmix.classes": json.dumps(info.classes, ensure_ascii=False),
        "fgmix.domains": json.dumps(info.domains, ensure_ascii=False),
        "fgmix.data": info.data_fingerprint,
        "fgmix.min_confidence": json.dumps(info.min_confidence),
        **expected,
    }


def _check(exported: ExportedNetwork, info: ModelInfo, run: Any) -> None:
    """Require that the file and the model agree in probabilities and novelty, for several batch sizes."""
    for n in CHECKED:
        x = make_example_inputs(info, n)
        with torch.inference_mode():
            expected = [out.numpy() for out in exported(x)]
        outputs = run(x)
        close = all(
            np.allclose(theirs, ours, rtol=1e-3, atol=TOLERANCE)
            for theirs, ours in zip(outputs[:2], expected[:2], strict=True)
        )
        if not close:
            raise UserError(
                f"The exported model differs from the trained one on {n} samples. Nothing was written. "
                "Please report the backbone and the versions of torch and onnxruntime."
            )


@contextmanager
def _silence() -> Iterator[None]:
    """Hide the exporters' logs and warnings, which are of no use to users."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
