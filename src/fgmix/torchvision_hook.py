"""Let every program of an environment import torchvision, and so timm, with a CPU build of torch.

`python -m fgmix.torchvision_hook` writes a .pth file into the environment, which imports this module when Python
starts; `make venv` does so. It costs a millisecond and has an effect only if a program imports torchvision: it then
declares the operators that are missing (see `fgmix.networks._torchvision`). Calling them still fails: for boxes and
their suppression, install a torchvision that was built for your torch.
"""

from __future__ import annotations

import sys
import sysconfig
from pathlib import Path
from typing import Any

FILE = "fgmix_torchvision.pth"
# Python runs a line of a .pth file that begins with `import`; this one does nothing once fgmix is uninstalled.
LINE = "import importlib.util as u; u.find_spec('fgmix') and __import__('fgmix.torchvision_hook')\n"


class Finder:
    """An import hook that finds no module: it declares the operators when torchvision is first imported."""

    def find_spec(self, name: str, *_: Any) -> None:
        if name == "torchvision":
            sys.meta_path.remove(self)
            from fgmix.networks._torchvision import declare_missing_operators

            declare_missing_operators()


def install(folder: Path) -> Path:
    """Write the .pth file into a folder of packages."""
    path = folder / FILE
    path.write_text(LINE)
    return path


if __name__ == "__main__":
    print(install(Path(sysconfig.get_path("purelib"))))
else:
    sys.meta_path.insert(0, Finder())
