"""Measure how many twins show the same object, on images whose groups name the objects.

    python benchmarks/studies/twins.py IMAGES [--sizes 7,28,70]

Prints how many twins `find_twins` finds among features of the frozen backbone, for each pair of domains and in all, and
how many of them have one group (without groups all count as false); with --sizes also for so many random images of each
domain, mean over five draws.
"""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fgmix.data import DomainDataset
from fgmix.data.near_duplicates import find_twins
from fgmix.deploy.overlap import name_object, read_features

DRAWS = 5
Array = npt.NDArray[Any]


def join_features(images: Path) -> tuple[Array, Array, Array, Array]:
    """Read features, labels, names of domains and groups of all images (−1 without groups), domain by domain."""
    domains = read_features(images)[1].domains
    x = np.concatenate([each.inputs.clean(np.arange(len(each))).numpy() for each in domains])
    y = np.concatenate([each.y for each in domains])
    d = np.concatenate([np.repeat(each.name, len(each)) for each in domains])
    group = np.concatenate([0 * each.y - 1 if each.groups is None else each.groups for each in domains])
    return x, y, d, group


def count(features: DomainDataset, size: int | None, rng: np.random.Generator) -> tuple[Counter[str], Counter[str]]:
    """Count twins and true ones by pair of domains, among all images or `size` random ones of each domain."""
    domains = features.domains
    rows = [np.arange(len(each)) if size is None else rng.permutation(len(each))[:size] for each in domains]
    pairs = find_twins([each.inputs.clean(own).numpy() for each, own in zip(domains, rows)])
    found, true = Counter[str](), Counter[str]()
    for (a, i), (b, j) in pairs:
        title = f"{domains[a].name} and {domains[b].name}"
        one, other = name_object(features, (a, int(rows[a][i]))), name_object(features, (b, int(rows[b][j])))
        found[title] += 1
        true[title] += one == other
    return found, true


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("images", type=Path)
    parser.add_argument("--sizes", default="")
    options = parser.parse_args()
    features, rng = read_features(options.images)[1], np.random.default_rng(0)
    found, true = count(features, None, rng)
    print("| domains | twins | of one object |\n| --- | ---: | ---: |")
    for title in found:
        print(f"| {title} | {found[title]} | {true[title]} |")
    print(f"| all | {found.total()} | {true.total()} |")
    for size in map(int, filter(None, options.sizes.split(","))):
        draws = [count(features, size, rng) for _ in range(DRAWS)]
        twins, right = (np.mean([each[k].total() for each in draws]) for k in (0, 1))
        print(f"| {size} images of each, mean of {DRAWS} draws | {twins:.1f} | {right:.1f} |")


if __name__ == "__main__":
    main()
