"""Measure how far domains show the same objects: a model that saw an object in another style is not tested on new ones.

Groups tell it, if they name the objects. Without them, near-duplicate images are a lower bound.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
from PIL import Image

from fgmix.data import DomainDataset
from fgmix.data.augment import ImageInputs
from fgmix.data.checks import MOST, Floats, describe_image, find_pairs
from fgmix.records.model import Overlap
from fgmix.results.other_metrics import percent


def measure_overlap(dataset: DomainDataset) -> Overlap:
    """Measure the overlap of the domains of a dataset."""
    return Overlap(_share_groups(dataset), _count_near_duplicates(dataset))


def describe_question(overlap: Overlap) -> str:
    """Say in a sentence or two what an estimate is for: new objects, or a new style of known ones."""
    if overlap.groups == 0:
        return "No group of a held-out domain is in another one: the estimate is for new objects in a new domain."
    known = describe_known(overlap)
    if overlap.groups:
        return (
            f"{known}: the estimate is for a new style of objects that are partly known. Expect less for new objects."
        )
    if overlap.near_duplicates == 0:
        known = "No image has a near-duplicate in another domain"
    return (
        "The data do not say whether the same objects, such as patients, appear in several domains. If they do, the "
        f"estimate is for known objects in a new style; expect less for new objects.{known and f' {known}.'}"
    )


def describe_known(overlap: Overlap) -> str:
    """Say how many samples are of an object that another domain has, too; empty if none is known to be."""
    if overlap.groups:
        return f"{percent(overlap.groups)} of the samples belong to a group that another domain has, too"
    count = overlap.near_duplicates or 0
    return f"{count} image{'s have' if count > 1 else ' has'} a near-duplicate in another domain" if count else ""


def _share_groups(dataset: DomainDataset) -> float | None:
    """Compute the share of samples whose group another domain has; None without groups."""
    groups = [domain.groups for domain in dataset.domains if domain.groups is not None]
    if not groups:
        return None
    domains_of = Counter(group for each in groups for group in set(each.tolist()))
    samples = np.concatenate(groups).tolist()
    return sum(domains_of[group] > 1 for group in samples) / len(samples)


def _count_near_duplicates(dataset: DomainDataset) -> int | None:
    """Count images with a near-duplicate in another domain; None for data that are not image files."""
    low: list[Floats] = []
    domain_of: list[int] = []
    every = -(-sum(map(len, dataset.domains)) // MOST)
    for number, domain in enumerate(dataset.domains):
        if not isinstance(domain.inputs, ImageInputs):
            return None
        rows = domain.inputs.rows[::every]
        low += [describe_image(Image.fromarray(domain.inputs.images[row])) for row in rows]
        domain_of += [number] * len(rows)
    across = [(i, j) for i, j, _ in find_pairs(np.array(low)) if domain_of[i] != domain_of[j]]
    return len({place for pair in across for place in pair})
