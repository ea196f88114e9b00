"""The recipes that `fit` tries, in one table: classifiers of scikit-learn on features, and networks.

A recipe of your own joins the table by `register`, in a file that `--plugin` imports, or as an entry point:

    [project.entry-points."fgmix.recipes"]
    ridge = "your_package.recipes:RIDGE"
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import ClassifierMixin
from sklearn.tree import DecisionTreeClassifier

from fgmix.data.dataset import Indices
from fgmix.deploy.classifiers import FittedClassifier, convert
from fgmix.errors import UserError, bad_value, unknown
from fgmix.records.code import load_group
from fgmix.records.protocols import Kind

GROUP = "fgmix.recipes"  # entry-point group of plug-ins: name = "package.module:RECIPE"
VECTORS: tuple[Kind, ...] = ("features", "small_images")  # what a classifier of vectors can use as it is
# Values beyond which trees are left out: mostly features of a network, on which forests took a third of the time of all
# recipes and were never chosen.
WIDE = 5_000_000
STEPS = 300  # of a small network: on the data of docs/fit/choose.md as good as 1,000

Samples = npt.NDArray[np.float32]  # (n, f), standardised
Weights = npt.NDArray[np.float64]  # (n,)
Fit = Callable[
    [Samples, Indices, Weights | None], ClassifierMixin | Sequence[DecisionTreeClassifier] | FittedClassifier
]


@dataclass(frozen=True)
class Size:
    """What the cost of a recipe depends on."""

    samples: int  # for training
    features: int
    classes: int


@dataclass(frozen=True)
class Recipe:
    """One way to make a model.

    Args:
        name: unique.
        about: one line for the card.
        kinds: of data that it can use; image files become "features" where a backbone with weights is at hand.
        cost: rough CPU-seconds of one training, before any is measured. Cheap recipes are tried first.
        fit: trains a classifier of scikit-learn, or several trees, on samples (n, f), labels and weights (n,) or None;
            `classifiers.convert` must know it. None for a recipe that trains a network.
        options: of the run that trains the network, fields of `fgmix.RunSpec`.
        tunes: train the last section of a pre-trained backbone on images, in place of a small network on its features.
        most: samples that it can be trained on.
        most_values: samples times features, beyond which it is not worth while.
        after: name of the recipe that it resembles: it is tried only where that is the best one.
    """

    name: str
    about: str
    kinds: tuple[Kind, ...]
    cost: Callable[[Size], float]
    fit: Fit | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    tunes: bool = False
    most: float = float("inf")
    most_values: float = float("inf")
    after: str = ""

    def __post_init__(self) -> None:
        if (self.fit is None) == (not self.options):
            raise bad_value("recipe", "a Recipe with `fit` or with the `options` of a run, one of them", self.name)

    def suits(self, size: Size) -> bool:
        """Tell whether data are not too large for it."""
        return size.samples <= self.most and size.samples * size.features <= self.most_values

    def train(self, x: Samples, y: Indices, weights: Weights | None, classes: int) -> FittedClassifier:
        """Train its classifier, on labels 0, …, `classes` − 1."""
        assert self.fit is not None
        if len(present := np.unique(y)) < 2:
            return _build_constant(int(present[0]), classes, x.shape[1])
        fitted = self.fit(x, y, weights)
        return fitted if isinstance(fitted, FittedClassifier) else convert(fitted, classes, x)


def fit_logistic(x: Samples, y: Indices, weights: Weights | None, *, c: float) -> ClassifierMixin:
    """Fit a logistic regression with an L2 penalty, of inverse strength `c`."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # later steps hardly change its predictions
        return LogisticRegression(C=c, max_iter=200).fit(x, y, weights)


def fit_svm(x: Samples, y: Indices, weights: Weights | None, *, c: float) -> ClassifierMixin:
    """Fit a support vector machine with an RBF kernel of scikit-learn's default width, γ = 1 / (f · var x).

    One product of matrices makes the kernel: libsvm's own, sample by sample, takes ten times as long on 2,048 features.
    """
    from sklearn.svm import SVC

    gram = partial(compute_gram, gamma=1 / max(x.shape[1] * float(x.var()), 1e-12))
    return SVC(C=c, kernel=gram).fit(x, y, weights)


def compute_gram(a: Samples, b: Samples, *, gamma: float) -> npt.NDArray[np.float64]:
    """Compute exp(−γ ‖a_i − b_j‖²), (n, m)."""
    from sklearn.metrics.pairwise import rbf_kernel

    gram: npt.NDArray[np.float64] = rbf_kernel(a, b, gamma=gamma).astype(np.float64, copy=False)
    return gram


def fit_forest(x: Samples, y: Indices, weights: Weights | None) -> Sequence[DecisionTreeClassifier]:
    """Fit 200 extremely randomised trees of at most 500 leaves, those of ExtraTreesClassifier(200, random_state=0).

    They are made one by one, because that class copies and checks each: an eighth of its time on 1,000 samples.

    Geurts et al., "Extremely randomized trees", 2006, https://doi.org/10.1007/s10994-006-6226-1.
    """
    from sklearn import config_context
    from sklearn.tree import ExtraTreeClassifier

    x = np.ascontiguousarray(x, np.float32)
    seeds = np.random.RandomState(0).randint(np.iinfo(np.int32).max, size=200).tolist()
    with config_context(skip_parameter_validation=True):
        trees = [ExtraTreeClassifier(max_leaf_nodes=500, random_state=seed) for seed in seeds]
        return [tree.fit(x, y, weights, check_input=False) for tree in trees]


def fit_boosting(x: Samples, y: Indices, weights: Weights | None) -> ClassifierMixin:
    """Fit 100 stages of gradient boosting, with trees of at most 31 leaves on at most 2,000 random samples.

    Friedman, "Stochastic Gradient Boosting", 2002, https://doi.org/10.1016/S0167-9473(01)00065-2. The sizes are those
    of scikit-learn's HistGradientBoostingClassifier, whose trees are not public; a split looks at √f random features.
    """
    from sklearn.ensemble import GradientBoostingClassifier

    trees = GradientBoostingClassifier(
        max_depth=None,
        max_leaf_nodes=31,
        min_samples_leaf=max(1, min(20, len(x) // 20)),
        max_features="sqrt",
        subsample=min(1.0, 2000 / len(x)),
        random_state=0,
    )
    return trees.fit(x, y, weights)


def _build_constant(label: int, classes: int, features: int) -> FittedClassifier:
    """Build a classifier that always predicts the only class of its training data."""
    tensors = {"weight": torch.zeros(classes, features), "bias": torch.zeros(classes)}
    tensors["bias"][label] = 1e4
    return FittedClassifier("linear", tensors, range(classes), classes)


def _train(algorithm: str, cost: float) -> dict[str, Any]:
    """Describe a recipe that trains the small network; `cost`: seconds of a step with 400 features."""
    every: tuple[Kind, ...] = ("features", "small_images", "signals", "images")
    return {
        "kinds": every,
        "options": MappingProxyType({"algorithm": algorithm}),
        "cost": lambda size: STEPS * cost * (0.6 + size.features / 1000),
    }


def _logistic(c: float) -> dict[str, Any]:
    return {
        "about": f"logistic regression, C = {c:g}",
        "kinds": VECTORS,
        "fit": partial(fit_logistic, c=c),
        "cost": lambda size: 3e-8 * size.samples * size.features * size.classes,
    }


_TABLE: dict[str, Recipe] = {
    recipe.name: recipe
    for recipe in (
        Recipe("logistic_strong", **_logistic(0.001)),
        Recipe("logistic", **_logistic(0.03)),
        Recipe("logistic_weak", **_logistic(1.0)),
        Recipe(
            "svm",
            "support vector machine, RBF kernel, C = 3",
            VECTORS,
            fit=partial(fit_svm, c=3.0),
            cost=lambda size: 4e-11 * size.samples**2 * (size.features + 200),
            most=15_000,  # the kernel is a matrix of doubles: 1.8 GB
        ),
        Recipe(
            "forest",
            "extremely randomised trees, 200 of 500 leaves",
            VECTORS,
            fit=fit_forest,
            cost=lambda size: 0.1 + 2e-5 * size.samples * size.features**0.5,
            most_values=WIDE,
        ),
        Recipe(
            "boosting",
            "gradient boosting, 100 stages of 31 leaves",
            ("features",),
            fit=fit_boosting,
            cost=lambda size: 0.1 + 3e-5 * min(size.samples, 2000) * size.features**0.5 * max(1, size.classes - 1),
            most_values=WIDE,
            after="forest",
        ),
        Recipe("erm", "small network, ERM", **_train("erm", 0.0042)),
        Recipe("mixup", "small network, mixup", **_train("mixup", 0.0048), after="erm"),
        Recipe("coral", "small network, CORAL", **_train("coral", 0.0062), after="erm"),
        Recipe("fgmix", "small network, FGMix", **_train("fgmix", 0.0075), after="erm"),
        Recipe(
            "tune",
            "last section of the backbone fine-tuned, ERM",
            ("images",),
            cost=lambda _: 0.0,  # timed, as for every network that is not small
            # the classifier first, and a rate for few steps: 300 of DomainBed's 5e-5 would not leave its start
            options=MappingProxyType({"algorithm": "erm", "views": 2, "warmup_head": 200, "settings": {"lr": 3e-4}}),
            tunes=True,
        ),
    )
}


def register(recipe: Recipe) -> Recipe:
    """Add a recipe to the table.

    >>> from sklearn.linear_model import RidgeClassifier
    >>> ridge = Recipe("ridge", "ridge regression", ("features",), lambda size: 1e-9 * size.samples * size.features**2,
    ...                fit=lambda x, y, weights: RidgeClassifier().fit(x, y, weights))
    >>> register(ridge) is find("ridge")
    True
    >>> del _TABLE["ridge"]
    """
    if not isinstance(recipe, Recipe):
        raise bad_value("recipe", "a fgmix.deploy.recipes.Recipe", recipe)
    if _TABLE.setdefault(recipe.name, recipe) is not recipe:
        raise UserError(f"Recipe {recipe.name!r} is registered already. Choose another name.")
    return recipe


def find(name: str) -> Recipe:
    """Return the recipe of a name."""
    load_group(GROUP, _add)
    if name not in _TABLE:
        raise unknown("recipe", name, list(_TABLE))
    return _TABLE[name]


def list_recipes(names: Sequence[str] | None = None) -> list[Recipe]:
    """List the recipes of the table, or the named ones."""
    load_group(GROUP, _add)
    return list(_TABLE.values()) if names is None else [find(name) for name in names]


def _add(_: str, recipe: Recipe) -> None:
    """Register the recipe of a plug-in, which has a name of its own."""
    register(recipe)
