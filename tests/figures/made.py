"""Small arrays of every kind, made by hand."""

from __future__ import annotations

from typing import Any

import numpy as np

from fgmix.figures.curves import Curves, name_metric
from fgmix.figures.differences import Differences, Ranks, arrange_differences
from fgmix.figures.flatness import Flatness
from fgmix.figures.scatter import Agreement, Budget, Mixing, Scores
from fgmix.figures.surface import Surface
from fgmix.figures.tables import Domains, Sensitivity
from fgmix.figures.tsne import Embedding
from fgmix.figures.weights import WeightEffect
from fgmix.records.rows import Row
from fgmix.results.statistics import Comparison

DOMAINS = np.array(["art", "photo", "sketch"])
IS_TEST = np.array([False, False, True])


def embedding() -> Embedding:
    rng = np.random.default_rng(0)
    own, mixed = 9, 4
    panel = np.repeat([0, 1], [own, own + mixed])
    domain = np.concatenate([np.arange(own) % 3, np.arange(own) % 3, np.full(mixed, -1)])
    return Embedding(
        panels=np.array(["Original codes", "FGMix"]),
        domains=DOMAINS,
        is_test=IS_TEST,
        classes=np.array(["cat", "dog"]),
        points=rng.normal(size=(len(panel), 2)),
        panel=panel,
        domain=domain,
        label=np.zeros(len(panel), dtype=np.int64),
        sample=np.where(domain < 0, -1, np.arange(len(panel)) % own),
        thumbnails=rng.integers(0, 256, (own, 4, 4, 3), dtype=np.uint8),
        thumbnail=np.where(domain < 0, -1, np.arange(len(panel)) % own),
        extrapolates=np.arange(len(panel)) == len(panel) - 1,
    )


def flatness(scale: float = 1.0) -> Flatness:
    gammas = np.arange(1.0, 11)
    gaps = scale * np.stack([[s * gammas**4 / 1e4 for s in (1, 2, 3, 4)], [s * gammas**4 / 1e4 for s in (2, 2, 2, 2)]])
    labels, keys = np.array(["ERM", "FGMix"]), np.array(["erm", "fgmix"])
    return Flatness("classifier", labels, keys, np.array(["original", "original + mixed"]), gammas, gaps, "sketch")


def surface() -> Surface:
    u, v = np.linspace(-1, 3, 5), np.linspace(-1, 2, 4)
    losses = (u[None] - 1) ** 2 + v[:, None] ** 2
    return Surface(
        u=u,
        v=v,
        panels=np.array(["Train loss, ERM", "Train loss, FGMix", "Test accuracy (%)"]),
        values=np.stack([losses, losses / 2, 90 - losses]),
        anchors=np.array(["Initial", "ERM + SWA", "FGMix + SWA"]),
        anchor_points=np.array([[0.0, 0.0], [2.0, 0.0], [1.0, 1.0]]),
        paths=np.array(["ERM", "ERM + SWA", "FGMix", "FGMix + SWA"]),
        path_algorithms=np.array(["erm", "erm", "fgmix", "fgmix"]),
        path_averaged=np.array([False, True, False, True]),
        path_panels=np.array([[True, False, True]] * 2 + [[False, True, True]] * 2),
        path=np.repeat(np.arange(4), 3),
        path_steps=np.tile([0, 10, 20], 4),
        path_points=np.random.default_rng(0).random((12, 2)),
        test_domains="sketch",
    )


def scores(pairs: int = 6) -> Scores:
    rng = np.random.default_rng(0)
    names = np.array([f"d{i} → d{i + 1}" for i in range(pairs)])
    score, cosine = rng.random((pairs, 20)), rng.random((pairs, 20))
    return Scores(names, score, cosine, np.linspace(0.35, 0.58, pairs), "gradients", "sketch")


def weight_effect() -> WeightEffect:
    lam = np.linspace(-2, 2, 5)
    a = np.array([[0.1, 0.6, 0.3], [0.25, 0.4, 0.35]])
    return WeightEffect(
        lam,
        a,
        lam[None, :, None] * a[:, None] - (lam[None, :, None] - 1) / 3,
        np.array([[-0.5, 1.0], [1.0, -1.0]]),
        np.array([0.7, 0.3]),
        np.array([[-1.6, 1.0], [0.5, 1.5], [1.5, 0.5]]),
        np.array([[-0.8, 0.0], [-1.5, 0.0], [-1.5, -0.5]]),
        np.array(["FGMix", "AND-Mask", "ERM"]),
        np.array(["fgmix", "andmask", "erm"]),
    )


def curves(mixes: bool = True) -> Curves:
    keys = ["adv", "entropy", "extrapolated", "flat", "lam", "loss"] if mixes else ["loss"]
    metrics = [name_metric(key) for key in keys]
    steps = np.array([10, 20, 30])
    values = np.random.default_rng(0).random((2, 3, 3))
    return Curves(
        "FGMix, test domain sketch",
        steps,
        np.array(["raw", "swa"]),
        DOMAINS,
        IS_TEST,
        100 * values,
        values,
        np.array(metrics),
        np.random.default_rng(1).random((len(metrics), 3)),
    )


def sensitivity() -> Sensitivity:
    value = np.array([[47.9, 48.2], [np.nan, 49.2]])
    rows, columns = np.array(["1", "3"]), np.array(["α = 0.03", "α = 0.1"])
    keys, paper = np.array(["fgmix", "fgmix"]), np.array([False, False])
    return Sensitivity("toy: FGMix by λ₀ and α", "λ₀", rows, keys, paper, columns, value, np.full_like(value, np.nan))


def domains() -> Domains:
    value = np.array([[50.0, 60.0], [np.nan, 62.0], [55.0, 66.0]])
    rows, keys = np.array(["ERM", "FGMix", "FGMix (paper)"]), np.array(["erm", "fgmix", "fgmix"])
    paper = np.array([False, False, True])
    columns, about = np.array(["art", "Avg"]), "Lines: ± standard error, 3 trials."
    return Domains("toy", "Method", rows, keys, paper, columns, value, np.ones_like(value), about)


def agreement() -> Agreement:
    methods, keys = np.array(["ERM", "CORAL"]), np.array(["erm", "coral"])
    domain, method = np.repeat([0, 1], 6), np.tile([0, 1], 6)
    validation = np.array([40.0, 45, 50, 55, 60, 65, *[90.0] * 3, *[80.0] * 3])
    accuracy = np.array([35.0, 30, 60, 50, 55, 58, *[50.0] * 6])
    return Agreement("toy", "accuracy", DOMAINS[:2], methods, keys, domain, method, validation, accuracy)


def budget() -> Budget:
    rows, keys = np.array(["ERM", "Fish"]), np.array(["erm", "fish"])
    compute, averaged = np.array([640.0, 1920]), np.array([False, True])
    return Budget("toy", "accuracy", rows, keys, averaged, compute, np.array([55.0, 75]), np.array([10.0, 20]))


def mixing() -> Mixing:
    methods, keys = np.array(["FGMix-A", "FGMix"]), np.array(["fgmix_a", "fgmix"])
    values = np.array([[0.5, 0.4, 0.1], [np.nan, 0.2, 0.3]])
    names = np.array([name_metric(name) for name in ("mixed_loss", "flat")])
    return Mixing("toy", methods, keys, np.array([0, 1, 1]), np.array([0.0, 20, 50]), names, values)


def ranks() -> Ranks:
    methods = np.array(["FGMix + SWA", "FGMix", "CORAL", "ERM"])
    keys = np.array(["fgmix", "fgmix", "coral", "erm"])
    return Ranks(methods, keys, np.array([1.2, 2.0, 3.1, 3.7]), np.array([[0, 1], [1, 3]]), 1.8, 12, 0.0001)


def differences() -> Differences:
    return arrange_differences(
        [
            Comparison(Row("coral"), Row("erm"), 9, 0.5, (-1.0, 2.0), (-3.0, 4.0), 0.5, 0.5, 0.01),
            Comparison(
                Row("fgmix", model="swa"), Row("erm", model="swa"), 9, 2.0, (1.0, 3.0), None, 0.001, 0.002, 0.01
            ),
        ],
        {Row("erm"): "ERM"},
    )


def every() -> dict[str, Any]:
    """Arrays of every kind, by its name."""
    made = (
        embedding(),
        flatness(),
        surface(),
        scores(),
        weight_effect(),
        curves(),
        sensitivity(),
        domains(),
        agreement(),
        budget(),
        mixing(),
        ranks(),
        differences(),
    )
    return {type(arrays).__name__: arrays for arrays in made}


def rows() -> dict[str, list[Any]]:
    """Two rows of each kind that has them."""
    return {type(arrays).__name__: [arrays, arrays] for arrays in (embedding(), flatness(), surface())}
