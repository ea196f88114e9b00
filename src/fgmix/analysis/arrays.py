"""The data of each kind of figure. Fields are numpy arrays, or a plain number or text.

No torch: `arrays_file` saves them, and a figure can be redrawn on any machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Texts = npt.NDArray[np.str_]
Bytes = npt.NDArray[np.uint8]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Embedding:
    """Latent codes in the plane, in panels.

    Args:
        panels: titles of the panels (p,).
        domains: names of all of the dataset's domains (k,).
        is_test: which of them were held out (k,).
        classes: names of the classes.
        points: coordinates (n, 2).
        panel: panel of each point (n,).
        domain: its domain (n,); −1 for a mixed code.
        label: its class (n,).
        sample: its number within the domain (n,); −1 for a mixed code.
        thumbnails: small pictures of the samples (t, s, s, 3); none if samples are not images.
        thumbnail: its thumbnail (n,); −1 for none.
        extrapolates: whether it is a mixed code with a weight below 0 (n,).
        trained_share: share of extrapolated codes in training, over the steps before the last evaluation; NaN if
            nothing was mixed.
    """

    panels: Texts
    domains: Texts
    is_test: Bools
    classes: Texts
    points: Floats
    panel: Ints
    domain: Ints
    label: Ints
    sample: Ints
    thumbnails: Bytes = field(default_factory=lambda: np.zeros((0, 1, 1, 3), dtype=np.uint8))
    thumbnail: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    extrapolates: Bools = field(default_factory=lambda: np.zeros(0, dtype=np.bool_))
    trained_share: float = float("nan")

    def extrapolated(self, panel: int) -> float:
        """Share of extrapolations among the mixed codes of a panel; NaN without mixed codes."""
        mixed = (self.panel == panel) & (self.domain < 0)
        return float(self.extrapolates[mixed].mean()) if mixed.any() else float("nan")

    @property
    def test_domains(self) -> str:
        """The domains held out, in words."""
        return " and ".join(self.domains[self.is_test])


@dataclass(frozen=True, eq=False)
class Flatness:
    """(L(φ*) − L(φ'))² along random directions.

    Args:
        scope: "classifier", or "network" (all parameters, filter-normalised directions).
        methods: labels (m,).
        algorithms: keys of the methods (m,).
        data: the codes that L is computed on, for each method (m,): "original" or "original + mixed".
        gammas: distances γ (g,); for a network in percent of each filter's norm.
        gaps: squared differences (m, directions, g).
        test_domains: the domains held out, in words.
    """

    scope: str
    methods: Texts
    algorithms: Texts
    data: Texts
    gammas: Floats
    gaps: Floats
    test_domains: str


@dataclass(frozen=True, eq=False)
class Surface:
    """Values on the plane through three models, and paths projected on it.

    Args:
        u: grid along û (a,).
        v: grid along v̂ (b,).
        panels: titles (p,); the last panel is the test accuracy, the others are train losses.
        values: (p, b, a).
        anchors: labels of the three models (3,).
        anchor_points: their coordinates (3, 2).
        paths: labels of the paths (q,).
        path_algorithms: keys of their methods (q,).
        path_averaged: whether a path is of averaged weights (q,).
        path_panels: whether a path is drawn in a panel (q, p).
        path: which path a point belongs to (t,).
        path_steps: the step of the weights (t,).
        path_points: its coordinates (t, 2).
        test_domains: the domains held out, in words.
        correct: which test samples are classified correctly at each point of the grid (b, a, n): the accuracy is their
            share. Empty in files of earlier versions.
    """

    u: Floats
    v: Floats
    panels: Texts
    values: Floats
    anchors: Texts
    anchor_points: Floats
    paths: Texts
    path_algorithms: Texts
    path_averaged: Bools
    path_panels: Bools
    path: Ints
    path_steps: Ints
    path_points: Floats
    test_domains: str
    correct: Bools = field(default_factory=lambda: np.zeros((0, 0, 0), dtype=np.bool_))


@dataclass(frozen=True, eq=False)
class Scores:
    """Learned compatibility against the cosine, for pairs of domains.

    Args:
        pairs: "i → j", domains of g_i and g_j (p,).
        score: A_ω(g_i, g_j) (p, n).
        cosine: cos(g_i, g_j) (p, n).
        rho: Spearman's ρ of the two (p,).
        inputs: what g_i and g_j are: "gradients" or "codes".
        test_domains: the domains held out, in words.
    """

    pairs: Texts
    score: Floats
    cosine: Floats
    rho: Floats
    inputs: str
    test_domains: str


@dataclass(frozen=True, eq=False)
class WeightEffect:
    """Effect of λ on mixing weights, and the paper's toy example.

    Args:
        lam: values of λ (l,).
        a: weight vectors (w, k).
        a_tilde: ã (w, l, k).
        gradients: of the toy's samples (m, 2).
        weights: their mixing weights a (m,).
        surfaces: minima of three quadratic losses in the plane of the paper's panel (a) (3, 2).
        updates: the update of each method (3, 2).
        update_names: labels of these methods (3,).
        update_algorithms: keys of these methods (3,).
    """

    lam: Floats
    a: Floats
    a_tilde: Floats
    gradients: Floats
    weights: Floats
    surfaces: Floats
    updates: Floats
    update_names: Texts
    update_algorithms: Texts


def in_words(count: int) -> str:
    """A small number in words, for titles.

    >>> in_words(4), in_words(12)
    ('four', '12')
    """
    return {2: "two", 3: "three", 4: "four", 5: "five"}.get(count, str(count))


@dataclass(frozen=True, eq=False)
class Curves:
    """A run over its steps.

    Args:
        title: method and held-out domains.
        steps: of the evaluations (s,).
        models: "raw", and "swa" or "swad" where the weights were averaged (m,).
        domains: names of all domains (k,).
        is_test: which of them were held out (k,).
        accuracy: on the holdout part, in percent (m, k, s).
        loss: cross-entropy there (m, k, s).
        metrics: names of the method's metrics (q,).
        metric_values: means over the steps since the previous evaluation (q, s).
    """

    title: str
    steps: Ints
    models: Texts
    domains: Texts
    is_test: Bools
    accuracy: Floats
    loss: Floats
    metrics: Texts
    metric_values: Floats


@dataclass(frozen=True, eq=False)
class Numbers:
    """A table of numbers.

    Args:
        title: a few words.
        corner: what the rows are.
        rows: labels (r,).
        algorithms: key of the method of each row (r,).
        published: whether a row is the paper's (r,).
        columns: labels (c,).
        value: (r, c); NaN for none.
        spread: the number after ± (r, c); NaN for none.
        about: sentences for the caption: what ± is, what the paper lacks.
    """

    title: str
    corner: str
    rows: Texts
    algorithms: Texts
    published: Bools
    columns: Texts
    value: Floats
    spread: Floats
    about: str = ""


class Sensitivity(Numbers):
    """Accuracy by two settings."""


class Ablation(Numbers):
    """Accuracy of variants by test domain."""


class Cost(Numbers):
    """Time of a step relative to ERM: ours, and the paper's."""


@dataclass(frozen=True, eq=False)
class Ranks:
    """A critical-difference diagram.

    Args:
        methods: labels, best first (m,).
        algorithms: keys of the methods (m,).
        ranks: average ranks (m,).
        cliques: first and last method of each group without a significant difference (b, 2).
        critical_difference: Nemenyi's.
        pairs: number of pairs of trial and test domain that were ranked.
        p: p-value of Friedman's test.
        not_ranked: which methods have no rank, and why, in a sentence; empty if all have one.
    """

    methods: Texts
    algorithms: Texts
    ranks: Floats
    cliques: Ints
    critical_difference: float
    pairs: int
    p: float
    not_ranked: str = ""


@dataclass(frozen=True, eq=False)
class Shift:
    """Distances between domains.

    Args:
        title: dataset and method of the codes.
        domains: names (k,).
        is_test: which of them were held out (k,).
        accuracy: cross-validated accuracy of a classifier of two domains, balanced: 0.5 is chance (k, k).
        mmd: squared maximum mean discrepancy of the two sets of codes (k, k).
        p: its permutation p-value (k, k).
        overall: balanced accuracy of a classifier of all domains.
    """

    title: str
    domains: Texts
    is_test: Bools
    accuracy: Floats
    mmd: Floats
    p: Floats
    overall: float


@dataclass(frozen=True, eq=False)
class Rows:
    """Figures of one kind below each other: one row for each test domain.

    Args:
        parts: the arrays of each row, all `Embedding`, all `Flatness` or all `Surface`.
    """

    parts: tuple[Any, ...]

    @classmethod
    def of(cls, parts: Sequence[Any]) -> Any:
        """The rows as one figure; a single row is returned as it is."""
        return parts[0] if len(parts) == 1 else cls(tuple(parts))


def parts_of(arrays: Any) -> tuple[Any, ...]:
    """The rows of a figure, one or more."""
    return arrays.parts if isinstance(arrays, Rows) else (arrays,)


KINDS: dict[str, type] = {
    kind.__name__: kind
    for kind in (
        Embedding,
        Flatness,
        Surface,
        Scores,
        WeightEffect,
        Curves,
        Sensitivity,
        Ablation,
        Cost,
        Ranks,
        Shift,
    )
}
