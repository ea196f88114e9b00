"""fit without a method: recipes, their choice, its estimate, its budget, and how it resumes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression, RidgeClassifier

from deploy.made import vectors
from fgmix import Model, fit, load_model
from fgmix.data import DomainDataset, from_arrays
from fgmix.deploy import recipes
from fgmix.deploy.candidate import Candidate, Fold
from fgmix.deploy.choose import Trials
from fgmix.deploy.export import export_model
from fgmix.deploy.recipes import Recipe
from fgmix.errors import UserError

CHEAP = ("logistic", "logistic_weak", "svm")


def choose(out: Path, **options: Any) -> Model:
    return fit(vectors(), out, **{"recipes": CHEAP, "progress": False, "device": "cpu", **options})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("chosen") / "model"
    choose(out)
    return out


def test_each_value_is_that_of_scikit_learn_on_the_domain_held_out(folder: Path) -> None:
    """Worked out again: standardised and trained on the training parts of the other domains."""
    choice = load_model(folder).info.choice
    assert choice is not None
    data = vectors()
    candidate = make_candidate("logistic", folder)
    for held_out in data.domains:
        splits = candidate.prepare(held_out.name).splits
        sources = [domain for domain in data.domains if domain is not held_out]
        x = np.concatenate([domain.inputs.x[splits[domain.name].train] for domain in sources])
        y = np.concatenate([domain.y[splits[domain.name].train] for domain in sources])
        fitted = LogisticRegression(C=0.03, max_iter=200).fit((x - x.mean(0)) / x.std(0), y)
        expected = fitted.score((held_out.inputs.x - x.mean(0)) / x.std(0), held_out.y)
        (trial,) = (t for t in choice.trials if t.recipe == "logistic" and not t.by_domain)
        assert trial.values[held_out.name] == pytest.approx(expected)


def make_candidate(name: str, out: Path, data: DomainDataset | None = None) -> Candidate:
    from fgmix.deploy.candidate import Workbench
    from fgmix.records.schema import RunSpec

    spec = RunSpec(dataset="arrays", algorithm="erm", steps=300)
    return Candidate(recipes.find(name), Workbench(spec, data or vectors(), out, "cpu", progress=False))


def test_a_classifier_counts_a_soft_label_as_a_sample_of_each_class(tmp_path: Path) -> None:
    """Three of four readers for one class and one for the other: four samples of weight 1/4, each of one class."""
    rng = np.random.default_rng(0)
    x, y, ids = rng.normal(size=(60, 3)), np.arange(60) % 2, np.repeat(["a", "b", "c"], 20)
    data = from_arrays(x, np.where(y[:, None] == [0, 1], 0.75, 0.25), ids)
    candidate = make_candidate("logistic", tmp_path, data)
    run = candidate.prepare("c")
    rows = np.concatenate([20 * d + run.splits[name].train for d, name in enumerate("ab")])
    standardised = (x[rows] - x[rows].mean(0)) / x[rows].std(0)
    votes = np.concatenate([y[rows]] * 3 + [1 - y[rows]])
    expected = LogisticRegression(C=0.03, max_iter=200).fit(
        np.concatenate([standardised] * 4), votes, np.full(len(votes), 0.25)
    )
    candidate.train("c")
    fitted = candidate.open("c")[1].classifier(torch.from_numpy(standardised).float())
    assert (fitted[:, 1] - fitted[:, 0]).numpy() == pytest.approx(expected.decision_function(standardised), abs=1e-3)


def test_recipes_whose_method_refuses_the_labels_are_left_out(tmp_path: Path) -> None:
    soft = from_arrays(np.zeros((4, 2)), [[0.9, 0.1], [0.2, 0.8]] * 2, ["a", "a", "b", "b"])
    assert make_candidate("erm", tmp_path, soft).accepts_targets
    assert not make_candidate("fgmix", tmp_path, soft).accepts_targets
    assert make_candidate("fgmix", tmp_path).accepts_targets


def test_a_domain_is_reported_by_what_the_others_choose(folder: Path) -> None:
    """Each recipe trained again without pairs of domains, of which one is scored."""
    info = load_model(folder).info
    assert info.choice is not None
    assert info.estimate is not None
    assert info.choice.nested
    names = vectors().domain_names
    for domain in info.estimate.domains:
        others = [name for name in names if name != domain.domain]
        means = {
            name: np.mean([make_candidate(name, folder).train(*sort((domain.domain, e))).values[e] for e in others])
            for name in CHEAP
        }
        chosen = info.choice.without[domain.domain]
        assert means[chosen] == max(means.values())
        (trial,) = (t for t in info.choice.trials if t.recipe == chosen and not t.by_domain)
        assert domain.accuracy == pytest.approx(trial.values[domain.domain])
    assert info.choice.best == max(trial.mean for trial in info.choice.trials if not trial.by_domain)


def sort(names: Sequence[str]) -> list[str]:
    return sorted(names, key=vectors().domain_names.index)


def test_the_model_is_trained_on_all_samples_and_exported(folder: Path, tmp_path: Path) -> None:
    model = load_model(folder)
    assert model.info.choice is not None
    assert model.info.estimate is not None
    x = np.concatenate([domain.inputs.x for domain in vectors().domains])
    y = np.concatenate([domain.y for domain in vectors().domains])
    run = make_candidate(model.info.choice.recipe, folder).prepare()
    standard = run.standard
    assert standard is not None
    trained = recipes.find(model.info.choice.recipe).fit(standard(x), y, None)  # type: ignore[misc]
    guesses = model.predict(x).probabilities.argmax(1)
    assert guesses.tolist() == trained.predict(standard(x)).tolist()
    pytest.importorskip("onnxruntime")
    export_model(model, tmp_path / "model.onnx")  # which compares the file with the model


@pytest.mark.parametrize("name", ["svm", "forest", "boosting", "mixup"])
def test_every_kind_of_recipe_makes_a_whole_model(name: str, tmp_path: Path) -> None:
    model = choose(tmp_path / "model", recipes=[name], steps=30)
    again = load_model(tmp_path / "model")
    x = vectors(seed=5).domains[0].inputs.x
    found = again.predict(x)
    np.testing.assert_array_equal(found.probabilities, model.predict(x).probabilities)
    assert (found.novelty <= 1).mean() > 0.9
    assert (again.predict(np.full((3, 5), 90.0)).novelty > 1).all()
    assert found.trusted.any()
    assert "## Appendix: recipes tried" in (tmp_path / "model" / "card.md").read_text()


NETWORK = Recipe("", "", ("features",), lambda _: 0.01, options={"algorithm": "erm"})


class Simulated(Candidate):
    """A least-squares fit of a few features; every second one counts as a network, the last six follow others."""

    def __init__(self, columns: Sequence[int], x: np.ndarray, y: np.ndarray) -> None:
        recipe = Recipe(str(columns), "", ("features",), lambda _: 1.0, fit=lambda *_: RidgeClassifier())
        recipe = replace(NETWORK, name=str(columns)) if columns[0] % 2 else recipe
        recipe = replace(recipe, after=str([columns[0] % 4, columns[0] % 4 + 1])) if columns[0] > 5 else recipe
        super().__init__(recipe, None)  # type: ignore[arg-type]
        object.__setattr__(self, "x", np.concatenate([x[..., columns], np.ones((*y.shape, 1))], axis=2))
        object.__setattr__(self, "y", 2 * y - 1)

    x: np.ndarray
    y: np.ndarray

    min_domains = 1  # type: ignore[assignment]
    is_small_network = False  # type: ignore[assignment]

    def guess_seconds(self) -> float:
        return 0.0

    def train(self, *held_out: str) -> Fold:
        rest = [d for d in range(len(self.y)) if str(d) not in held_out]
        x, y = self.x[rest].reshape(-1, self.x.shape[2]), self.y[rest].reshape(-1)
        w = np.linalg.solve(x.T @ x + np.eye(x.shape[1]), x.T @ y)
        scores = {name: float(((self.x[int(name)] @ w) * self.y[int(name)] > 0).mean()) for name in held_out}
        known = float((x[::2] @ w * y[::2] > 0).mean())
        return Fold(scores, known, known, 0.0, 0.0)


@pytest.mark.parametrize("domains", [2, 3, 5])
def test_the_best_of_many_is_too_high_and_the_estimate_is_not(domains: int) -> None:
    """The labels are noise: nothing predicts better than chance. Twelve recipes of two features each."""
    rng, repeats = np.random.default_rng(domains), 150
    best, shortcut, honest, dropped = [], [], [], 0
    names = [str(d) for d in range(domains)]
    for _ in range(repeats):
        x, y = rng.normal(size=(domains, 40, 12)), rng.integers(2, size=(domains, 40))
        recipes = [Simulated([r, (r + 1) % 12], x, y) for r in range(12)]
        values = np.array([[each.train(name).values[name] for name in names] for each in recipes])
        trials = Trials(recipes, names, y.size, 0.5, 1.0, progress=False)
        trials.run()
        best.append(values.mean(1).max())
        shortcut.append(np.mean([values[np.delete(values, d, 1).mean(1).argmax(), d] for d in range(domains)]))
        honest.append(np.mean([trials.choose_without(name).train(name).values[name] for name in names]))
        dropped += sum(len(each) < domains for each in trials.values.values())
    error = np.std(honest) / repeats**0.5
    assert np.mean(best) > 0.55
    assert np.mean(shortcut) > 0.51
    assert abs(np.mean(honest) - 0.5) < 3 * error
    assert dropped > repeats  # the race takes part


class Timed(Candidate):
    """A candidate that only spends time: ten times its guess."""

    def guess_seconds(self) -> float:
        return float(self.recipe.cost(None))  # type: ignore[arg-type]

    def train(self, *held_out: str) -> Fold:
        spent = 10 * self.guess_seconds()
        return Fold(dict.fromkeys(held_out, 0.5), 0.5, 0.5, spent, spent)


def make_timed(name: str, seconds: float) -> Timed:
    return Timed(Recipe(name, name, ("features",), lambda _: seconds, fit=lambda *_: RidgeClassifier()), None)  # type: ignore[arg-type]


def test_the_budget_skips_what_would_exceed_it() -> None:
    """The first training corrects the guess; the cheapest recipe is tried in any case."""
    candidates = [make_timed("dear", 100.0), make_timed("cheap", 1.0), make_timed("middle", 4.0)]
    trials = Trials(candidates, ("a", "b", "c"), 100, 0.2, 200.0, progress=False)
    trials.run()
    found = trials.describe()
    assert [trial.recipe for trial in found] == ["cheap", "middle", "dear"]
    assert [bool(trial.skipped) for trial in found] == [False, True, True]
    assert [trial.cpu_seconds for trial in found] == [30.0, 40.0, 0.0]
    assert not trials.is_nested  # nothing to choose
    only = Trials(candidates[:1], ("a", "b", "c"), 100, 0.2, 1.0, progress=False)
    only.run()
    assert not only.skipped


class Known(Candidate):
    """A candidate whose metric on each domain is known."""

    def __init__(
        self, name: str, *values: float, seconds: float = 0.01, after: str = "", recipe: Recipe | None = None
    ) -> None:
        ridge = Recipe(name, name, ("features",), lambda _: seconds, fit=lambda *_: RidgeClassifier(), after=after)
        super().__init__(recipe or ridge, None)  # type: ignore[arg-type]
        object.__setattr__(self, "known", dict(zip("abcd", values)))

    known: dict[str, float]
    is_small_network = True  # type: ignore[assignment]

    def guess_seconds(self) -> float:
        return self.recipe.cost(None)  # type: ignore[arg-type]

    def train(self, *held_out: str) -> Fold:
        return Fold({name: self.known[name] for name in held_out}, 0.5, 0.5, 1.0, 1.0)


def race(*candidates: Known, samples: int = 1000) -> Trials:
    trials = Trials(candidates, "abcd", samples, 0.2, 1e6, progress=False)
    trials.run()
    return trials


def test_a_network_is_chosen_only_if_it_is_more_than_a_standard_error_ahead() -> None:
    """Differences are paired: a little better everywhere is more than the error, better in one place is not."""
    classifier, network = Known("classifier", 0.7, 0.8, 0.9, 0.6), replace(NETWORK, name="network")
    everywhere = Known("network", 0.71, 0.81, 0.91, 0.61, recipe=network)
    somewhere = Known("network", 0.7, 0.8, 0.9, 0.64, recipe=network)
    assert race(classifier, everywhere).choose() is everywhere
    assert race(classifier, somewhere).choose() is classifier
    assert race(classifier, Known("better", 0.7, 0.8, 0.9, 0.64)).choose() is not classifier
    assert race(somewhere).choose() is somewhere


def test_what_falls_behind_or_follows_a_recipe_that_is_not_the_best_is_not_trained() -> None:
    first, behind = Known("first", 0.8, 0.8, 0.8, 0.8), Known("behind", 0.6, 0.9, 0.9, 0.9, seconds=0.02)
    like = [Known(f"like {each}", 0.9, 0.9, 0.9, 0.9, seconds=0.03, after=each) for each in ("first", "behind")]
    trials = race(first, behind, *like)
    assert {each.recipe.name: len(values) for each, values in trials.values.items()} == {
        "first": 4,
        "like first": 4,
        "behind": 1,
    }
    assert [bool(trial.skipped) for trial in trials.describe()] == [False, True, False, True]
    dear = Known("like first", 0.9, 0.9, 0.9, 0.9, seconds=0.05, after="first")
    assert list(race(first, dear).values) == [first]


def test_a_network_that_takes_far_longer_than_all_classifiers_is_not_trained() -> None:
    network = Recipe("network", "", ("features",), lambda _: 0.1, options={"algorithm": "erm"})
    best = Known("network", 0.9, 0.9, 0.9, 0.9, recipe=network)
    tried = {seconds: race(Known("forest", 0.7, 0.7, 0.7, 0.7, seconds=seconds), best) for seconds in (0.03, 0.04)}
    assert [best in trials.values for trials in tried.values()] == [False, True]
    assert tried[0.03].skipped == {best: "more than 3 times as long as any classifier"}
    assert race(best).choose() is best


def test_what_is_not_cheap_is_not_trained_where_the_best_makes_few_errors() -> None:
    cheap, forest = Known("cheap", 0.95, 0.95, 0.95, 0.95), Known("forest", 1.0, 1.0, 1.0, 1.0, seconds=1.0)
    assert list(race(cheap, forest, samples=100).values) == [cheap]
    assert list(race(cheap, forest, samples=1000).values) == [cheap, forest]


def test_pairs_are_held_out_only_if_there_is_time_for_all() -> None:
    for seconds, nested in ((1200.0, True), (150.0, False)):
        candidates = [make_timed("a", 1.0), make_timed("b", 1.0)]
        trials = Trials(candidates, ("a", "b", "c", "d"), 100, 0.2, seconds, progress=False)
        trials.run()
        assert trials.is_nested is nested
        assert trials.spent <= seconds


def test_an_interrupted_fit_resumes_without_repeating_a_training(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    trained = Recipe.train

    def count(self: Recipe, *args: Any) -> Any:
        calls.append(self.name)
        if len(calls) == 5:
            raise KeyboardInterrupt
        return trained(self, *args)

    monkeypatch.setattr(Recipe, "train", count)
    with pytest.raises(KeyboardInterrupt):
        choose(tmp_path / "model")
    model = choose(tmp_path / "model")
    # each recipe, also by domain, without each domain and each pair of them; the model twice; what was interrupted
    assert len(calls) == 2 * 3 * (3 + 3) + 2 + 1
    x = vectors().domains[0].inputs.x
    np.testing.assert_array_equal(model.predict(x).probabilities, load_model(folder).predict(x).probabilities)
    calls.clear()
    choose(tmp_path / "model")
    assert calls == []
    with pytest.raises(UserError, match="other settings"):
        choose(tmp_path / "model", budget="1h")


@pytest.fixture
def ridge() -> Iterator[Recipe]:
    recipe = Recipe(
        "ridge",
        "ridge regression",
        ("features",),
        lambda size: 1e-9 * size.samples,
        fit=lambda x, y, weights: RidgeClassifier().fit(x, y, weights),
    )
    yield recipes.register(recipe)
    del recipes._TABLE["ridge"]


def test_a_recipe_of_a_user_joins_the_table(ridge: Recipe, tmp_path: Path) -> None:
    model = choose(tmp_path / "model", recipes=None, budget=2)
    assert model.info.choice is not None
    assert "ridge" in [trial.recipe for trial in model.info.choice.trials]
    with pytest.raises(UserError, match="registered already"):
        recipes.register(Recipe("ridge", "", (), ridge.cost, fit=ridge.fit))


def test_what_leaves_nothing_to_choose_is_refused(tmp_path: Path) -> None:
    for options, words in (
        ({"estimated": False}, "--no-estimate"),
        ({"settings": {"lr": 1.0}}, "settings"),
        ({"recipes": ["logistical"]}, "logistic"),
        ({"budget": "soon"}, "duration"),
        ({"budget": -1}, "budget"),
    ):
        with pytest.raises(UserError, match=words):
            choose(tmp_path / "model", **options)
