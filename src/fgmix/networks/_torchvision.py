"""Make `import torchvision` work beside a CPU-only torch.

The registry's torchvision is built against CUDA: beside a CPU build of torch its compiled operators do not load and
the import dies on the missing `torchvision::nms`. timm imports torchvision but calls neither of the two operators
declared here, and neither do we. `fgmix.torchvision_hook` does the same for every program of an environment.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

import torch

_declared: list[torch.library.Library] = []  # a Library that is collected takes its operators with it


def ensure_torchvision() -> None:
    """Import torchvision."""
    declare_missing_operators()
    import torchvision  # noqa: F401


def declare_missing_operators() -> None:
    """Before torchvision is imported: declare two operators, only where its compiled part does not load."""
    found = find_spec("torchvision")  # where the hook is installed, it comes here first
    if found is None or found.origin is None:
        return  # the import says so
    if "torchvision" in sys.modules or hasattr(torch.ops.torchvision, "nms"):
        return
    try:
        torch.ops.load_library(Path(found.origin).with_name("_C.so"))
    except OSError:
        library = torch.library.Library("torchvision", "DEF")
        for operator in ("nms", "qnms"):
            library.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        _declared.append(library)
