"""Fitted classifiers of scikit-learn as torch modules, so that their models are stored, used and exported like others.

    linear     o(x) = A x + b
    kernel     d_ij(x) = Σ_m a_m,ij exp(−γ ‖x − s_m‖²) + b_ij    of each pair of classes i < j, with support vectors s_m
               o_i(x) = votes of i + v_i / (3 (|v_i| + 1)),    v_i = Σ_j ± d_ij(x)
    trees      o(x) = b + Σ_t value of the leaf that x reaches in tree t
    forest     o(x) = log mean_t share of each class in the leaf that x reaches in tree t

o are scikit-learn's `decision_function`, with a column for each class; of two classes they are 0 and d. A forest has
none: o are the logarithms of its probabilities, of at least 0.001. All numbers are buffers: a file of tensors is enough
to build a module again, and nothing is unpickled.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import ClassifierMixin
from sklearn.ensemble import ExtraTreesClassifier, GradientBoostingClassifier, RandomForestClassifier
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier
from torch import Tensor, nn

from fgmix.algorithms import part_of
from fgmix.errors import UserError

RAREST = 1e-3  # least probability of a class in a forest, whose trees often have none of it
ABSENT = -1e4  # logit of a class that no training sample had: its probability is 0 at any temperature


class Linear(nn.Module):
    """x (n, f) → A x + b (n, k)."""

    weight: Tensor
    bias: Tensor

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        super().__init__()
        _register(self, tensors, ("weight", "bias"))

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.linear(x, self.weight, self.bias)


class Kernel(nn.Module):
    """x (n, f) → votes of the pairwise decisions of a support vector machine (n, k); of two classes, d (n, 1)."""

    gamma: Tensor
    support: Tensor
    weight: Tensor
    bias: Tensor
    sides: Tensor

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        super().__init__()
        _register(self, tensors, ("gamma", "support", "weight", "bias", "sides"))

    def decide(self, x: Tensor) -> Tensor:
        """Compute the decision of each pair of classes (n, pairs), positive for the first."""
        squares = x.square().sum(1, keepdim=True) + self.support.square().sum(1) - 2 * x @ self.support.T
        return torch.exp(-self.gamma * squares.clamp(min=0)) @ self.weight + self.bias

    def forward(self, x: Tensor) -> Tensor:
        d = self.decide(x)
        if self.sides.shape[1] == 2:
            return d
        first = (d >= 0).to(d)
        votes = first @ self.sides.clamp(min=0) + (1 - first) @ (-self.sides).clamp(min=0)
        sums = d @ self.sides
        return votes + sums / (3 * (sums.abs() + 1))


class Trees(nn.Module):
    """x (n, f) → sums of the values of the leaves that x reaches, (n, k); a leaf is its own child."""

    feature: Tensor
    threshold: Tensor
    branches: Tensor
    value: Tensor
    roots: Tensor
    bias: Tensor
    depth: Tensor

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        super().__init__()
        _register(self, tensors, ("feature", "threshold", "branches", "value", "roots", "bias", "depth"))
        self.levels = int(self.depth)  # a number: exporters unroll the loop

    def forward(self, x: Tensor) -> Tensor:
        trees, branches = len(self.roots), self.branches.flatten()
        node = self.roots.repeat(x.shape[0])  # of each sample and tree; not len(x), which would fix the size of batches
        for _ in range(self.levels):  # index_select takes 0.4 of the time of brackets
            feature = self.feature.index_select(0, node).view(-1, trees)
            right = x.gather(1, feature).flatten() > self.threshold.index_select(0, node)
            node = branches.index_select(0, 2 * node + right)
        leaves = self.value.index_select(0, node).view(-1, trees, self.value.shape[1])
        return self.bias + leaves.sum(1)


class Forest(Trees):
    """x (n, f) → logarithms of the mean shares of the classes in the leaves that x reaches, (n, k)."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).clamp(min=RAREST).log()


FORMS: dict[str, type[Linear | Kernel | Trees]] = {"linear": Linear, "kernel": Kernel, "trees": Trees, "forest": Forest}


class FittedClassifier(nn.Module):
    """One of `FORMS` on the classes of its training data, with the logit `ABSENT` for all other classes.

    Args:
        form: its name.
        tensors: its buffers.
        present: the classes of its columns, (k,).
        classes: number of all classes, C.
    """

    columns: Tensor

    def __init__(self, form: str, tensors: Mapping[str, Tensor], present: Sequence[int], classes: int) -> None:
        super().__init__()
        self.form = form
        self.add_module(form, FORMS[form](tensors))
        columns = torch.full((classes,), len(present))  # the last column is added in `forward`
        columns[list(present)] = torch.arange(len(present))
        self.register_buffer("columns", columns)

    def forward(self, x: Tensor) -> Tensor:
        o: Tensor = self.get_submodule(self.form)(x.flatten(1))
        if o.shape[1] == 1:  # of two classes
            o = torch.cat([torch.zeros_like(o), o], 1)
        return torch.cat([o, torch.full_like(o[:, :1], ABSENT)], 1)[:, self.columns]


class Fitted(nn.Module):
    """A fitted classifier on the samples as they are."""

    def __init__(self, classifier: FittedClassifier) -> None:
        super().__init__()
        self.featurizer: nn.Module = nn.Flatten()
        self.classifier: nn.Module = classifier


def build_classifier(tensors: Mapping[str, Tensor]) -> FittedClassifier:
    """Build a classifier from its `state_dict`."""
    form = next(form for form in FORMS if part_of(tensors, form))
    classifier = FittedClassifier(form, part_of(tensors, form), (), len(tensors["columns"]))
    classifier.load_state_dict(dict(tensors))
    return classifier


def convert(
    fitted: ClassifierMixin | Sequence[DecisionTreeClassifier], classes: int, x: npt.NDArray[Any]
) -> FittedClassifier:
    """Convert a fitted classifier of scikit-learn: linear, an SVC with an RBF kernel, gradient boosting or a forest.

    Args:
        fitted: trained on labels 0, …, C − 1, some of which may be missing; several trees are a forest.
        classes: C.
        x: its training samples (n, f): the support vectors of a precomputed kernel, and a sample to compare with.

    Example:
        >>> from sklearn.linear_model import LogisticRegression
        >>> x, y = np.float32([[0], [1], [2], [3]]), [0, 0, 2, 2]
        >>> convert(LogisticRegression().fit(x, y), 3, x)(torch.tensor([[1.5]])).round().tolist()
        [[0.0, -10000.0, 0.0]]
    """
    if isinstance(fitted, SVC):
        form, tensors = "kernel", _read_kernel(fitted, x)
    elif isinstance(fitted, GradientBoostingClassifier):
        form, tensors = "trees", _read_boosting(fitted, x)
    elif isinstance(fitted, ExtraTreesClassifier | RandomForestClassifier):
        form, tensors = "forest", _read_forest(fitted.estimators_)
    elif isinstance(fitted, Sequence) and fitted and all(isinstance(each, DecisionTreeClassifier) for each in fitted):
        form, tensors = "forest", _read_forest(fitted)
    elif hasattr(fitted, "coef_") and hasattr(fitted, "intercept_"):
        weight = np.atleast_2d(fitted.coef_)
        form, tensors = "linear", {"weight": weight, "bias": np.broadcast_to(fitted.intercept_, len(weight))}
    else:
        raise UserError(
            "Expected a linear classifier, an SVC with an RBF kernel, gradient boosting or a forest of scikit-learn. "
            f"Found {type(fitted).__name__}. Return one of them from the recipe, or a FittedClassifier."
        )
    present = (fitted[0] if isinstance(fitted, Sequence) else fitted).classes_.tolist()
    return FittedClassifier(form, {n: _to_tensor(v) for n, v in tensors.items()}, present, classes)


def _read_kernel(fitted: SVC, x: npt.NDArray[Any]) -> dict[str, Any]:
    if callable(fitted.kernel):  # Gram matrices by `compute_gram`, whose γ it has
        gamma = fitted.kernel.keywords["gamma"]
    elif fitted.kernel == "rbf" and not isinstance(fitted.gamma, str):
        gamma = fitted.gamma
    else:
        raise UserError(f"Expected an SVC with an RBF kernel and a number as gamma. Found {fitted}. Set both.")
    k = len(fitted.classes_)
    pairs = list(combinations(range(k), 2))
    owner = np.repeat(np.arange(k), fitted.n_support_)  # the class of each support vector
    weight, sides = np.zeros((len(owner), len(pairs))), np.zeros((len(pairs), k))
    for p, (i, j) in enumerate(pairs):
        weight[owner == i, p] = fitted.dual_coef_[j - 1, owner == i]
        weight[owner == j, p] = fitted.dual_coef_[i, owner == j]
        sides[p, [i, j]] = 1, -1
    bias = fitted.intercept_
    return {"gamma": gamma, "support": x[fitted.support_], "weight": weight, "bias": bias, "sides": sides}


def _read_boosting(fitted: GradientBoostingClassifier, x: npt.NDArray[Any]) -> dict[str, Any]:
    """Read trees of one value each, which counts for the class of its column."""
    trees = [each.tree_ for each in fitted.estimators_.flat]
    columns = np.eye(fitted.estimators_.shape[1])
    values = [fitted.learning_rate * tree.value[:, 0] * columns[i % len(columns)] for i, tree in enumerate(trees)]
    tensors = _read_trees(trees, values)
    one = x[:1]
    grown = Trees({name: _to_tensor(value) for name, value in tensors.items()})(torch.from_numpy(one)).numpy()
    return {**tensors, "bias": fitted.decision_function(one).reshape(1, -1)[0] - grown[0]}  # of the priors


def _read_forest(fitted: Sequence[DecisionTreeClassifier]) -> dict[str, Any]:
    """Read trees whose values are counts of each class, or shares."""
    trees = [each.tree_ for each in fitted]
    counts = [tree.value[:, 0] for tree in trees]
    return _read_trees(trees, [each / each.sum(1, keepdims=True) / len(trees) for each in counts])


def _read_trees(trees: Sequence[Any], values: Sequence[npt.NDArray[Any]]) -> dict[str, Any]:
    """Join trees, scikit-learn's `tree_`, with the values (nodes, k) of each."""
    first = np.cumsum([0, *(tree.node_count for tree in trees)])
    branches = []
    for tree, start in zip(trees, first):
        sides, itself = (tree.children_left, tree.children_right), np.arange(tree.node_count)
        branches.append(start + np.stack([np.where(side < 0, itself, side) for side in sides], axis=1))
    return {
        "feature": np.concatenate([np.maximum(tree.feature, 0) for tree in trees]),
        # x is single: x ≤ t for the largest single number up to the threshold, which is double
        "threshold": _round_down(np.concatenate([tree.threshold for tree in trees])),
        "branches": np.concatenate(branches),
        "value": np.concatenate(values),
        "roots": first[:-1],
        "bias": np.zeros(values[0].shape[1]),
        "depth": max(tree.max_depth for tree in trees),
    }


def _round_down(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float32]:
    single = values.astype(np.float32)
    lower: npt.NDArray[np.float32] = np.where(single > values, np.nextafter(single, np.float32(-np.inf)), single)
    return lower


def _to_tensor(values: Any) -> Tensor:
    """Convert numbers to single precision, and integers to int64."""
    tensor = torch.from_numpy(np.array(values))
    return tensor.float() if tensor.is_floating_point() else tensor.long()


def _register(module: nn.Module, tensors: Mapping[str, Tensor], names: Sequence[str]) -> None:
    for name in names:
        module.register_buffer(name, tensors[name].clone(memory_format=torch.contiguous_format))
