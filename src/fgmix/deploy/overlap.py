"""Measure how far domains show the same objects: a model that saw an object in another style is not tested on new ones.

Groups tell it, if they name the objects. Without them, near-duplicate images are a lower bound, and in domains of many
images twins another one, where images were reduced to features of a frozen network.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import cast

import numpy as np
from PIL import Image

from fgmix.data import DomainDataset
from fgmix.data.augment import ImageInputs
from fgmix.data.checks import MANY
from fgmix.data.folders import scan_images
from fgmix.data.near_duplicates import MOST, Floats, Place, describe_image, find_pairs, find_twins
from fgmix.records.evaluations import METRIC_NAMES
from fgmix.records.model import NewObjects, Overlap
from fgmix.records.schema import RunSpec
from fgmix.results.other_metrics import percent
from fgmix.training.prepare import load_dataset, locate_activations
from fgmix.training.resolve import resolve


def measure_overlap(dataset: DomainDataset, features: DomainDataset | None = None) -> Overlap:
    """Measure the overlap of the domains of a dataset, with the features of its images if there are any."""
    copies = _find_near_duplicates(dataset)
    twins = None
    if features is not None and min(map(len, features.domains)) >= MANY:
        twins = len({place for pair in list_twins(features) for place in pair} - (copies or set()))
    return Overlap(_share_groups(dataset), None if copies is None else len(copies), twins)


def list_twins(features: DomainDataset) -> list[tuple[Place, Place]]:
    """List the twins among images of different domains, given by their features; images of one group are none."""
    every = -(-sum(map(len, features.domains)) // MOST)
    rows = [np.arange(0, len(domain), every) for domain in features.domains]
    found = find_twins([domain.inputs.clean(each).numpy() for domain, each in zip(features.domains, rows)])
    pairs = [((a, i * every), (b, j * every)) for (a, i), (b, j) in found]
    return [pair for pair in pairs if len({name_object(features, place) for place in pair}) > 1]


def name_object(dataset: DomainDataset, place: Place) -> int | Place:
    """Name the object of a sample: its group, or without groups the sample itself."""
    groups = dataset.domains[place[0]].groups
    return place if groups is None else int(groups[place[1]])


def find_twin_files(path: Path, *, progress: bool = True) -> list[tuple[Path, Path]]:
    """Find the twins among the images of a folder or manifest that can be read."""
    dataset, features = read_features(path, progress=progress)
    files = scan_images(path).files
    rows = [cast("ImageInputs", domain.inputs).rows for domain in dataset.domains]
    return [(files[rows[a][i]].path, files[rows[b][j]].path) for (a, i), (b, j) in list_twins(features)]


def read_features(path: Path, *, progress: bool = True) -> tuple[DomainDataset, DomainDataset]:
    """Read the images of a folder or manifest, and their features by the backbone of `--frozen`."""
    spec = RunSpec(dataset=str(path), algorithm="erm", frozen=True, skip_unreadable=True)
    dataset = load_dataset(spec, progress=progress)
    cache = locate_activations(resolve(spec, dataset), dataset)
    cache.fill(progress=progress)
    return dataset, cache.read()


def describe_question(overlap: Overlap, new: NewObjects | None = None) -> str:
    """Say in a sentence or two what an estimate is for: new objects, or a new style of known ones.

    Args:
        overlap: of the domains.
        new: the estimate for new objects, if there is one.
    """
    known = describe_known(overlap)
    if overlap.groups == 0:
        return "No group of a held-out domain is in another one: the estimate is for new objects in a new domain."
    if overlap.groups:
        return f"{known}: the estimate is for a new style of objects that are partly known. {describe_new(new)}."
    if known:
        return (
            f"{known}: the estimate is for a new style of objects that are partly known. Expect less for new ones. "
            "`fgmix data check --features` names pairs, and a column `group` of a manifest names the objects."
        )
    looked = "No image has a near-duplicate in another domain. " if overlap.near_duplicates == 0 else ""
    return (
        f"{looked}The data do not say whether the same objects, such as patients, appear in several domains. If they "
        "do, the estimate is for known objects in a new style; expect less for new ones."
    )


def describe_new(new: NewObjects | None) -> str:
    """Say what to expect for objects that no training sample shows."""
    if new is None:
        return "Expect less for new ones"
    values = f"{METRIC_NAMES[new.metric]} {percent(new.value)} ({new.groups:,} groups)"
    trusted = (
        "" if new.trusted_accuracy is None else f", of trusted predictions {percent(new.trusted_accuracy)} correct"
    )
    return f"For new ones expect {values}{trusted}; for known ones {percent(new.known)}"


def describe_known(overlap: Overlap) -> str:
    """Say how many samples are of an object that another domain has, too; empty if none is known to be."""
    if overlap.groups is not None:
        shared = f"{percent(overlap.groups)} of the samples belong to a group that another domain has, too"
        return shared if overlap.groups else ""
    found = [("near-duplicates", overlap.near_duplicates or 0), ("twins by their features", overlap.twins or 0)]
    said = [f"{count:,} image{'s' if count > 1 else ''} with {what}" for what, count in found if count]
    return f"{' and '.join(said)} in other domains" if said else ""


def _share_groups(dataset: DomainDataset) -> float | None:
    """Compute the share of samples whose group another domain has; None without groups."""
    groups = [domain.groups for domain in dataset.domains if domain.groups is not None]
    if not groups:
        return None
    domains_of = Counter(group for each in groups for group in set(each.tolist()))
    samples = np.concatenate(groups).tolist()
    return sum(domains_of[group] > 1 for group in samples) / len(samples)


def _find_near_duplicates(dataset: DomainDataset) -> set[Place] | None:
    """Find images with a near-duplicate in another domain; None for data that are not image files."""
    low: list[Floats] = []
    places: list[Place] = []
    every = -(-sum(map(len, dataset.domains)) // MOST)
    for number, domain in enumerate(dataset.domains):
        if not isinstance(domain.inputs, ImageInputs):
            return None
        for i in range(0, len(domain), every):
            low.append(describe_image(Image.fromarray(domain.inputs.images[domain.inputs.rows[i]])))
            places.append((number, i))
    pairs = [(places[i], places[j]) for i, j, _ in find_pairs(np.array(low))]
    return {place for one, other in pairs if one[0] != other[0] for place in (one, other)}
