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

import numpy as np

from fgmix.data import DomainDataset
from fgmix.data.near_duplicates import Place, find_twins
from fgmix.records.schema import RunSpec
from fgmix.training.prepare import load_dataset, locate_activations
from fgmix.training.resolve import resolve

DRAWS = 5


def read_features(images: str) -> DomainDataset:
    """Compute the features of images, or read them from the cache."""
    spec = RunSpec(dataset=images, algorithm="erm", frozen=True)
    dataset = load_dataset(spec)
    cache = locate_activations(resolve(spec, dataset), dataset)
    cache.fill()
    return cache.read()


def name_object(features: DomainDataset, place: Place) -> int | Place:
    """Name the object of an image: its group, or the image itself."""
    groups = features.domains[place[0]].groups
    return place if groups is None else int(groups[place[1]])


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
    features, rng = read_features(str(options.images)), np.random.default_rng(0)
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
