"""Classifiers of scikit-learn as torch modules."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.ensemble import ExtraTreesClassifier, GradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.svm import SVC

from fgmix.deploy.classifiers import ABSENT, RAREST, build_classifier, convert
from fgmix.deploy.recipes import compute_gram, find, list_recipes
from fgmix.errors import UserError

MADE: dict[str, Any] = {
    "logistic": LogisticRegression,
    "ridge": RidgeClassifier,
    "svm": partial(SVC, gamma=0.2),
    "gram": lambda: SVC(kernel=partial(compute_gram, gamma=0.2)),
    "trees": partial(GradientBoostingClassifier, n_estimators=7, max_depth=4),
}


def samples(classes: int, n: int = 120) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    y = rng.integers(classes, size=n)
    return (rng.normal(size=(n, 6)) + 2 * np.eye(6)[y]).astype(np.float32), y


@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize("name", MADE)
def test_logits_are_the_decision_function(name: str, classes: int) -> None:
    x, y = samples(classes)
    fitted = MADE[name]().fit(x, y)
    decided = fitted.decision_function(x)
    expected = decided if classes > 2 else np.stack([0 * decided, decided], axis=1)
    converted = convert(fitted, classes, x)
    again = build_classifier(converted.state_dict())
    np.testing.assert_allclose(converted(torch.from_numpy(x)).numpy(), expected, atol=1e-4)
    assert torch.equal(again(torch.from_numpy(x)), converted(torch.from_numpy(x)))


def test_pairwise_decisions_are_scikit_learns() -> None:
    x, y = samples(4)
    fitted = SVC(gamma=0.2, decision_function_shape="ovo").fit(x, y)
    kernel = convert(fitted, 4, x).get_submodule("kernel")
    np.testing.assert_allclose(kernel.decide(torch.from_numpy(x)).numpy(), fitted.decision_function(x), atol=1e-5)


def test_thresholds_of_trees_are_compared_in_single_precision() -> None:
    """Splits between neighbouring numbers: a rounded threshold would send one to the other side."""
    low = np.float32(1)
    x = np.array([[low], [np.nextafter(low, np.float32(2))]] * 20)
    fitted = GradientBoostingClassifier(n_estimators=3).fit(x, np.arange(40) % 2)
    found = convert(fitted, 2, x)(torch.from_numpy(x))[:, 1].numpy()
    np.testing.assert_allclose(found, fitted.decision_function(x), atol=1e-6)


def test_a_class_without_samples_is_never_predicted() -> None:
    x, y = samples(2)
    logits = convert(LogisticRegression().fit(x, 2 * y), 3, x)(torch.from_numpy(x))
    assert (logits[:, 1] == ABSENT).all()
    assert set(logits.argmax(1).tolist()) == {0, 2}


@pytest.mark.parametrize("made", [MADE["trees"], partial(ExtraTreesClassifier, 5, max_leaf_nodes=9)])
def test_an_exported_classifier_accepts_batches_of_any_size(made: Any) -> None:
    x, y = samples(3)
    classifier, inputs = convert(made().fit(x, y), 3, x).eval(), torch.from_numpy(x)
    sizes = ({0: torch.export.Dim("n", min=1, max=100)},)
    program = torch.export.export(classifier, (inputs[:2],), dynamic_shapes=sizes).module()
    for n in (1, 5):
        torch.testing.assert_close(program(inputs[:n]), classifier(inputs[:n]))


def test_one_class_alone_is_always_predicted() -> None:
    x, y = samples(3)
    for recipe in (each for each in list_recipes() if each.fit):
        assert (recipe.train(x, 0 * y + 1, None, 3)(torch.from_numpy(x)).argmax(1) == 1).all()


def test_weights_of_samples_count() -> None:
    x, y = samples(2)
    for name in ("logistic", "svm", "forest", "boosting"):
        recipe = find(name)
        noise = np.concatenate([y, 1 - y])
        weights = np.repeat([1.0, 1e-3], len(y))
        logits = recipe.train(np.concatenate([x, x]), noise, weights, 2)(torch.from_numpy(x))
        assert (logits.argmax(1).numpy() == y).mean() > 0.9


@pytest.mark.parametrize("classes", [2, 4])
def test_logits_of_a_forest_are_the_logarithms_of_its_probabilities(classes: int) -> None:
    x, y = samples(classes)
    for fitted in (ExtraTreesClassifier(9, max_leaf_nodes=20).fit(x, y), RandomForestClassifier(9).fit(x, y)):
        found = convert(fitted, classes, x)(torch.from_numpy(x)).numpy()
        np.testing.assert_allclose(found, np.log(fitted.predict_proba(x).clip(min=RAREST)), atol=1e-5)


def test_the_trees_of_the_forest_are_those_of_scikit_learns_ensemble() -> None:
    x, y = samples(3)
    weights = np.linspace(0.1, 1, len(y))
    ensemble = ExtraTreesClassifier(200, max_leaf_nodes=500, random_state=0).fit(x, y, weights)
    ours, theirs = find("forest").train(x, y, weights, 3).state_dict(), convert(ensemble, 3, x).state_dict()
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def test_other_classifiers_are_refused() -> None:
    x, y = samples(2)
    with pytest.raises(UserError, match="GaussianNB"):
        convert(GaussianNB().fit(x, y), 2, x)
    with pytest.raises(UserError, match="RBF"):
        convert(SVC(kernel="poly").fit(x, y), 2, x)
