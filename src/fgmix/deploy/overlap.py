"""Measure how far domains show the same objects: a model that saw an object in another style is not tested on new ones.

Groups tell it, if they name the objects. Without them, near-duplicate images are a lower bound, and twins another one,
where images were reduced to features of a frozen network.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
from PIL import Image

from fgmix.data import DomainDataset
from fgmix.data.augment import ImageInputs
from fgmix.data.near_duplicates import MOST, Floats, Place, describe_image, find_pairs, find_twins
from fgmix.records.model import NewObjects, Overlap
from fgmix.records.schema import RunSpec
from fgmix.results.other_metrics import percent
from fgmix.training.prepare import load_dataset, locate_activations
from fgmix.training.resolve import resolve


def measure_overlap(dataset: DomainDataset, features: DomainDataset | None = None) -> Overlap:
    """Measure the overlap of the domains of a dataset, with the features of its images if there are any."""
    twins = None if features is None else len({place for pair in list_twins(features) for place in pair})
    return Overlap(_share_groups(dataset), _count_near_duplicates(dataset), twins)


def list_twins(features: DomainDataset) -> list[tuple[Place, Place]]:
    """List the twins among images of different domains, given by their features; images of one group are none."""
    every = -(-sum(map(len, features.domains)) // MOST)
    rows = [np.arange(0, len(domain), every) for domain in features.domains]
    found = find_twins([domain.inputs.clean(each).numpy() for domain, each in zip(features.domains, rows)])
    pairs = [((a, i * every), (b, j * every)) for (a, i), (b, j) in found]
    return [pair for pair in pairs if len({_find_group(features, place) for place in pair}) > 1]


def _find_group(dataset: DomainDataset, place: Place) -> int | Place:
    """Return the group of a sample; the place itself without groups."""
    groups = dataset.domains[place[0]].groups
    return place if groups is None else int(groups[place[1]])


def check_twins(path: Path, *, progress: bool = True) -> tuple[tuple[Path, Path], ...]:
    """Find twins among the images of a folder or manifest, by features of the backbone that `--frozen` uses."""
    spec = RunSpec(dataset=str(path), algorithm="erm", frozen=True, skip_unreadable=True)
    dataset = load_dataset(spec, progress=progress)
    cache = locate_activations(resolve(spec, dataset), dataset)
    cache.fill(progress=progress)
    files = [[Path(name) for name in domain.files or ()] for domain in dataset.domains]
    return tuple((files[a][i], files[b][j]) for (a, i), (b, j) in list_twins(cache.read()))


def describe_question(overlap: Overlap, new: NewObjects | None = None) -> str:
    """Say in a sentence or two what an estimate is for: new objects, or a new style of known ones.

    Args:
        overlap: of the domains.
        new: the estimate for new objects, if there is one.
    """
    if overlap.groups == 0:
        return "No group of a held-out domain is in another one: the estimate is for new objects in a new domain."
    known = describe_known(overlap)
    if overlap.groups:
        return (
            f"{known}: the estimate is for a new style of objects that are partly known. {describe_new(new)} for new "
            "objects."
        )
    if overlap.near_duplicates == 0 and not overlap.twins:
        known = "No image has a near-duplicate in another domain"
    return (
        "The data do not say whether the same objects, such as patients, appear in several domains. If they do, the "
        f"estimate is for known objects in a new style; expect less for new objects.{known and f' {known}.'}"
    )


def describe_new(new: NewObjects | None) -> str:
    """Say what to expect for objects that no training sample shows."""
    if new is None:
        return "Expect less"
    return f"Expect {percent(new.value)} instead of {percent(new.known)} ({new.samples:,} samples)"


def describe_known(overlap: Overlap) -> str:
    """Say how many samples are of an object that another domain has, too; empty if none is known to be."""
    if overlap.groups:
        return f"{percent(overlap.groups)} of the samples belong to a group that another domain has, too"
    copies, twins = overlap.near_duplicates or 0, overlap.twins or 0
    said = (
        [f"{copies:,} image{'s have' if copies > 1 else ' has'} a near-duplicate in another domain"] if copies else []
    )
    if twins:  # they come in pairs, or more
        said.append(f"{twins:,} images seem to show what one of another domain shows, too")
    return ", and ".join(said)


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
