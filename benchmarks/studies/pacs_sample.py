"""Write the manifest of 1,500 random images of PACS that docs/fit/training.md measures `fgmix fit --frozen` on.

python benchmarks/studies/pacs_sample.py PACS pacs1500.csv
"""

from __future__ import annotations

import csv
import random
import sys
from pathlib import Path

IMAGES = 1500


def sample(folder: Path, seed: int = 0) -> list[tuple[str, str, str]]:
    """Path, label and domain of random images in `folder`/domain/class."""
    paths = sorted(path for path in folder.glob("*/*/*") if path.is_file())
    drawn = sorted(random.Random(seed).sample(paths, IMAGES))
    return [(str(path.resolve()), path.parent.name, path.parent.parent.name) for path in drawn]


if __name__ == "__main__":
    with open(sys.argv[2], "w", newline="") as file:
        csv.writer(file).writerows([("path", "label", "domain"), *sample(Path(sys.argv[1]))])
