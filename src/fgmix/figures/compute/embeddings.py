"""Latent codes in the plane by t-SNE: domains, random interpolation, mixed codes of the run.

All panels of one run are one t-SNE of all their codes together, so that positions can be compared.

van der Maaten and Hinton, "Visualizing Data using t-SNE", 2008.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from fgmix.errors import UserError
from fgmix.figures.arrays import Bytes, Floats
from fgmix.figures.compute.mixtures import Mixture, build_random_mixer, find_mixer, load_policy, mix
from fgmix.figures.curves import collect_curves, name_metric
from fgmix.figures.tsne import Embedding
from fgmix.progress import track
from fgmix.records.evaluations import Model
from fgmix.records.schema import Which
from fgmix.training.open_run import OpenedRun, Sample, check_alike

THUMBNAIL = 40  # pixels: enough to see what is in a picture
LARGEST = 50  # dimensions of t-SNE's input: more are first reduced by PCA, without visible loss


_Points = dict[str, npt.NDArray[Any]]  # those of a panel, by the fields of `Embedding`


def embed_mixing(
    run: OpenedRun,
    *,
    which: Which = "last",
    model: Model = "raw",
    samples: int = 150,
    mixed: int = 300,
    seed: int = 0,
    progress: bool = True,
) -> Embedding:
    """Embed original codes; these and random interpolations (variant A); these and mixed codes of the run's policy.

    `mixed` is the number of mixed codes of each kind.
    """
    algorithm = load_policy(run, which, model)
    mixer = find_mixer(algorithm)
    if mixer is None:
        raise UserError(
            f"Expected a run of a method that mixes codes: fgmix or a variant. Found {run.record.spec.algorithm}. To "
            "draw its codes only, add it to a run of fgmix with --beside."
        )
    sources = run.sample(run.sources, limit=samples, seed=seed)
    tests = run.sample(run.test_domains, limit=samples, seed=seed)
    z, y, domain = sources.codes(algorithm), sources.y.to(run.device), sources.domain.to(run.device)
    mixtures = [
        mix(policy, algorithm.classifier, z, y, domain, mixed, seed)
        for policy in (build_random_mixer(z.shape[1]).to(run.device), mixer)
    ]
    everything = torch.cat([z, tests.codes(algorithm), *(mixture.z for mixture in mixtures)]).cpu().numpy()
    (xy,) = [embed_plane(codes, seed) for codes in track([everything], "t-SNE", show=progress)]
    own = _place_originals((sources, tests), xy)
    rest = np.split(xy[len(own["points"]) :], 2)
    points = [own, *(_add_mixed(own, mixture, places) for mixture, places in zip(mixtures, rest))]
    titles = ["Original codes", "Random interpolation", run.label(model)]
    return _join(run, titles, points, make_thumbnails((sources, tests)), read_trained_share(run))


def read_trained_share(run: OpenedRun) -> float:
    """Read the share of extrapolated codes at the last evaluation, as its curves show; NaN if none."""
    curves = collect_curves(run.record)
    shares = curves.metric_values[curves.metrics == name_metric("extrapolated")]
    return float(shares[0, -1]) if len(shares) else float("nan")


def embed_codes(
    runs: Sequence[OpenedRun],
    *,
    which: Which = "last",
    model: Model = "raw",
    samples: int = 150,
    seed: int = 0,
    progress: bool = True,
) -> Embedding:
    """Embed codes of the same samples in several runs on the same data, one t-SNE per run: the effect of an algorithm
    on the features. The arguments are those of `embed_mixing`."""
    first = runs[0]
    for run in runs[1:]:
        check_alike(first, run, ("test_domains", "trial_seed", "holdout_fraction"), "show the same samples")

    points = []
    for run in track(runs, "t-SNE", show=progress):
        algorithm = run.algorithm(which, model)
        drawn = [run.sample(names, limit=samples, seed=seed) for names in (run.sources, run.test_domains)]
        codes = torch.cat([sample.codes(algorithm) for sample in drawn]).cpu().numpy()
        points.append(_place_originals(drawn, embed_plane(codes, seed)))
    # The samples are the same in every panel: their thumbnails are stored once.
    return _join(first, [run.label(model) for run in runs], points, make_thumbnails(drawn))


def embed_plane(z: Floats, seed: int = 0) -> Floats:
    """Compute the t-SNE of codes (n, d) → (n, 2); the same seed gives the same result."""
    from sklearn.decomposition import PCA
    from sklearn.manifold import TSNE

    if len(z) < 5:
        raise UserError(f"Expected at least 5 codes to embed. Found {len(z)}. Increase --samples.")
    if z.shape[1] > LARGEST:
        z = PCA(min(LARGEST, len(z)), random_state=seed).fit_transform(z)
    perplexity = min(30.0, (len(z) - 1) / 3)
    xy: Floats = TSNE(perplexity=perplexity, init="pca", random_state=seed).fit_transform(z)
    return xy.astype(np.float64)


def _place_originals(samples: Sequence[Sample], xy: Floats) -> _Points:
    domain = torch.cat([sample.domain for sample in samples]).numpy()
    label = torch.cat([sample.y for sample in samples]).numpy()
    sample = np.concatenate([indices for sample in samples for indices in sample.indices])
    n = len(domain)
    return {
        "points": xy[:n],
        "domain": domain,
        "label": label,
        "sample": sample,
        "thumbnail": np.arange(n),
        "extrapolates": np.zeros(n, np.bool_),
    }


def _add_mixed(own: _Points, mixture: Mixture, xy: Floats) -> _Points:
    """Add mixed codes to the original ones; the mixed ones have neither domain nor sample."""
    mixed = dict.fromkeys(own, np.full(len(xy), -1))
    mixed |= {"points": xy, "label": mixture.y.cpu().numpy(), "extrapolates": mixture.extrapolates.cpu().numpy()}
    return {name: np.concatenate([values, mixed[name]]) for name, values in own.items()}


def make_thumbnails(samples: Sequence[Sample]) -> Bytes:
    """Make small pictures of all samples, (n, s, s, 3); none if they are not images.

    The lowest and the highest value of all become 0 and 255, which undoes a normalisation up to a slight tint.
    """
    small = []
    for x in (x for sample in samples for x in sample.inputs()):
        if x.ndim != 4:
            return np.zeros((0, 1, 1, 3), dtype=np.uint8)
        s = min(THUMBNAIL, *x.shape[-2:])
        small.append(torch.nn.functional.interpolate(x[:, :3], size=(s, s), mode="area"))
    pixels = torch.cat(small)
    low, high = pixels.min(), pixels.max()
    pixels = ((pixels - low) / (high - low).clamp_min(1e-12) * 255).round().byte()
    missing = 3 - pixels.shape[1]  # of images with one or two channels: the last one is repeated
    pixels = torch.cat([pixels, pixels[:, -1:].expand(-1, missing, -1, -1)], dim=1)
    return pixels.permute(0, 2, 3, 1).cpu().numpy()


def _join(
    run: OpenedRun, titles: Sequence[str], points: Sequence[_Points], pictures: Bytes, share: float = float("nan")
) -> Embedding:
    dataset = run.prepared.dataset
    return Embedding(
        panels=np.array(titles),
        domains=np.array(dataset.domain_names),
        is_test=np.isin(dataset.domain_names, run.test_domains),
        classes=np.array(dataset.classes),
        panel=np.repeat(np.arange(len(points)), [len(each["points"]) for each in points]),
        thumbnails=pictures,
        trained_share=share,
        **{name: np.concatenate([each[name] for each in points]) for name in points[0]},
    )
