"""Make `import torchvision` work beside a CPU-only torch.

The registry's torchvision is built against CUDA: beside a CPU build of torch its compiled operators do not load and
the import dies on the missing `torchvision::nms`. timm imports torchvision but calls neither of the two operators
declared here, and neither do we.
"""

from __future__ import annotations

import sys

import torch

_declared: list[torch.library.Library] = []  # a Library that is collected takes its operators with it


def ensure_torchvision() -> None:
    """Import torchvision, declaring its two missing operators only when the plain import fails."""
    try:
        import torchvision
    except RuntimeError as error:
        if "torchvision::nms" not in str(error):
            raise
        for name in [m for m in sys.modules if m.split(".")[0] == "torchvision"]:
            del sys.modules[name]  # half-imported modules of the failed attempt
        library = torch.library.Library("torchvision", "DEF")
        for operator in ("nms", "qnms"):
            library.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        _declared.append(library)
        import torchvision  # noqa: F401
