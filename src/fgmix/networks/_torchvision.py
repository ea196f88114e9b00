"""Make `import torchvision` work with a CPU-only torch.

The torchvision of the package index is built for CUDA: with a CPU build of torch its compiled operators do not load,
and the import fails on the missing `torchvision::nms`. Neither timm, which imports torchvision, nor fgmix calls the two
operators declared here. A program of your own calls `ensure_torchvision` before it imports timm or torchvision.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

import torch

_declared: list[torch.library.Library] = []  # keeps each Library alive: its operators are removed with it


def ensure_torchvision() -> None:
    """Import torchvision."""
    _declare_missing_operators()
    import torchvision  # noqa: F401


def _declare_missing_operators() -> None:
    """Declare two operators if torchvision's compiled part does not load."""
    spec = find_spec("torchvision")
    if spec is None or spec.origin is None:
        return  # the import raises the error
    if "torchvision" not in sys.modules and not hasattr(torch.ops.torchvision, "nms"):
        try:
            torch.ops.load_library(Path(spec.origin).with_name("_C.so"))
        except OSError:
            library = torch.library.Library("torchvision", "DEF")
            for operator in ("nms", "qnms"):
                library.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
            _declared.append(library)
