"""The scikit-learn classifier: its conventions, its data, and that it is the engine and nothing else."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn import config_context
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, LeaveOneGroupOut, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import fgmix.deploy.estimator
from deploy.made import signals
from fgmix import DomainGeneralizer, RunSpec, UserError
from fgmix.data import from_arrays
from fgmix.deploy.estimate import prediction_interval
from fgmix.deploy.hold_out import select_weights
from fgmix.training.open_run import open_run
from fgmix.training.prepare import prepare

N = 120
Y = np.array(["healthy", "ill"])[np.arange(N) % 2]
SCANNER = np.array(["a", "b", "c"])[np.arange(N) // 40]
HOLD_OUT_C = [(np.flatnonzero(SCANNER != "c"), np.flatnonzero(SCANNER == "c"))]


def features(seed: int = 0) -> np.ndarray:
    """Two classes apart by 3 in every feature, scanners by 1; features of unlike sizes."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(N, 4)) + 3 * (Y == "ill")[:, None] + (SCANNER[:, None] > "a")
    return x * [1, 10, 0.1, 1000]


X = features()


def quick(algorithm: str = "fgmix", **parameters: Any) -> DomainGeneralizer:
    return DomainGeneralizer(algorithm, **{"steps": 20, "device": "cpu", **parameters})


@pytest.fixture(scope="module")
def fitted() -> DomainGeneralizer:
    return quick(steps=60).fit(X, Y, domains=SCANNER)


# scikit-learn's own checks give no domains: what they fit is ERM, and each fit says so.
@pytest.mark.filterwarnings("ignore:fgmix learns from differences:UserWarning")
@parametrize_with_checks([quick(steps=15)])
def test_scikit_learn_conventions(estimator: DomainGeneralizer, check: Any) -> None:
    check(estimator)


# What is learned


def test_it_learns_and_reports(fitted: DomainGeneralizer) -> None:
    assert fitted.score(X, Y) > 0.95
    assert fitted.classes_.tolist() == ["healthy", "ill"]
    assert fitted.domains_ == ("a", "b", "c")
    assert fitted.n_features_in_ == 4
    assert fitted.record_.spec.algorithm == "fgmix"
    assert fitted.record_.folder is None
    assert isinstance(fitted.algorithm_, fgmix.Algorithm)
    assert not fitted.algorithm_.training


def test_it_is_the_engine_on_scaled_arrays(tmp_path: Path) -> None:
    """The same run by hand: split, scale by numpy, `fgmix.fit`, softmax of the selected weights."""
    model = quick("coral", steps=30, random_state=3, settings={"gamma": 2}).fit(X, Y, domains=SCANNER)
    spec = RunSpec(
        dataset="arrays", algorithm="coral", test_domains=(), settings={"gamma": 2.0}, steps=30, seed=3, trial_seed=3
    )
    splits = prepare(spec, from_arrays(X, Y, SCANNER)).splits
    trained_on = np.concatenate([X[name == SCANNER][split.train] for name, split in splits.items()])
    scaled = (X - trained_on.mean(0)) / trained_on.std(0)
    data = from_arrays(scaled, Y, SCANNER)
    record = fgmix.train(spec, tmp_path, dataset=data, device="cpu", progress=False)
    algorithm = open_run(record.folder or "", dataset=data).algorithm(*select_weights(record))
    with torch.no_grad():
        p = algorithm.predict(torch.from_numpy(scaled).float()).softmax(1)
    np.testing.assert_allclose(model.predict_proba(X), p.numpy(), atol=1e-6)
    assert model.record_.evaluations[-1].accuracy == record.evaluations[-1].accuracy


def test_the_scale_is_of_what_is_trained_on() -> None:
    """Instances that are held out, and a whole domain that is, may be anything."""
    rows = {"train": [], "holdout": []}
    spec = RunSpec(dataset="arrays", algorithm="erm", test_domains=())
    for name, split in prepare(spec, from_arrays(X, Y, SCANNER)).splits.items():
        own = np.flatnonzero(name == SCANNER)
        rows["train"].extend(own[split.train])
        rows["holdout"].extend(own[split.holdout])
    moved = X.copy()
    moved[rows["holdout"]] *= 7
    model = quick(steps=1).fit(moved, Y, domains=SCANNER)
    np.testing.assert_allclose(model.scaler_.mean_, X[rows["train"]].mean(0))
    assert quick(steps=1, standardize=False).fit(X, Y, domains=SCANNER).scaler_ is None


def test_a_large_offset_survives_the_networks_float32() -> None:
    far = X + 1e9
    near, moved = (quick("erm", steps=30).fit(x, Y, SCANNER) for x in (X, far))
    np.testing.assert_allclose(near.predict_proba(X), moved.predict_proba(far), atol=1e-3)


@pytest.mark.parametrize("missing", [None, np.nan, pd.NA, pd.NaT, "None", "NaN", "<NA>", "NaT"])
def test_a_missing_label_is_no_class(missing: object) -> None:
    y = np.array(Y, dtype=object)
    y[3] = missing
    for labels in (y, y.tolist(), y.astype(str)):
        with pytest.raises(UserError, match=" 3"):
            quick("erm").fit(X, labels, SCANNER)


def test_masked_entries_are_refused(fitted: DomainGeneralizer) -> None:
    for name, arrays in {
        "X": (hide(X), Y, SCANNER),
        "y": (X, hide(Y), SCANNER),
        "domains": (X, Y, hide(SCANNER)),
    }.items():
        with pytest.raises(UserError, match=name):
            quick("erm").fit(*arrays)
    with pytest.raises(UserError, match="masked"):
        fitted.predict(hide(X))


def hide(values: np.ndarray) -> np.ma.MaskedArray[Any, Any]:
    """The values, with the first entry masked."""
    masked = np.ma.array(values)
    masked[0] = np.ma.masked
    return masked


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.int64, np.uint8, bool])
def test_kinds_of_numbers(dtype: type) -> None:
    x = np.abs(X / X.max(0) * 100).astype(dtype) if dtype is not bool else X.mean(0) < X
    for standardize in (True, False):
        model = quick(steps=5, standardize=standardize).fit(x, Y, SCANNER)
        np.testing.assert_allclose(model.predict_proba(x), model.predict_proba(x.astype(np.float64)), atol=1e-5)


def test_images_of_bytes_and_of_floats_are_alike() -> None:
    rng = np.random.default_rng(0)
    images = rng.integers(256, size=(40, 3, 8, 8), dtype=np.uint8)
    y, d = np.arange(40) % 2, np.arange(40) // 20
    model = quick(steps=3).fit(images, y, d)
    assert model.record_.spec.backbone == "small_cnn"
    assert model.scaler_ is None
    floats = quick(steps=3).fit(images / 255, y, d)
    np.testing.assert_allclose(model.predict_proba(images), floats.predict_proba(images / 255), atol=1e-5)
    with pytest.raises(UserError, match=r"shape \(3, 8, 8\). Found \(3, 4, 4\)"):
        model.predict(images[:, :, :4, :4])


def test_signals() -> None:
    x, y, d = signals()
    model = DomainGeneralizer("erm", steps=15, settings={"lr": 1e-2}).fit(x, y, domains=d)
    assert model.score(x, y) > 0.9
    np.testing.assert_allclose(model.scaler_.mean_, x.mean((0, 2)), rtol=0.05)


def test_more_than_one_batch_of_predictions(fitted: DomainGeneralizer) -> None:
    many = np.tile(X, (5, 1))
    p = fitted.predict_proba(many)
    assert p.shape == (5 * N, 2)
    np.testing.assert_allclose(p.reshape(5, N, 2), np.broadcast_to(fitted.predict_proba(X), (5, N, 2)), atol=1e-6)


# The same again


def test_same_seed_same_bits_and_the_callers_generators_untouched() -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    first = quick().fit(X, Y, domains=SCANNER)
    assert torch.equal(torch.rand(3), expected)
    second = quick().fit(X, Y, domains=SCANNER)
    assert np.array_equal(first.predict_proba(X), second.predict_proba(X))
    other = quick(random_state=1).fit(X, Y, domains=SCANNER)
    assert not np.array_equal(first.predict_proba(X), other.predict_proba(X))


def test_a_random_state_gives_a_new_model_every_time() -> None:
    model = quick(steps=2, random_state=np.random.RandomState(0))
    first = model.fit(X, Y, domains=SCANNER).record_.spec.seed
    assert first != model.fit(X, Y, domains=SCANNER).record_.spec.seed
    again = quick(steps=2, random_state=np.random.RandomState(0)).fit(X, Y, domains=SCANNER)
    assert again.record_.spec.seed == first
    assert quick(steps=2, random_state=None).fit(X, Y, domains=SCANNER).record_.spec.trial_seed >= 0


def test_pickle_holds_the_weights(fitted: DomainGeneralizer) -> None:
    loaded = pickle.loads(pickle.dumps(fitted))
    assert np.array_equal(loaded.predict_proba(X), fitted.predict_proba(X))
    assert {p.device.type for p in loaded.algorithm_.parameters()} == {"cpu"}
    assert not hasattr(clone(fitted), "algorithm_")


# Domains and labels


@pytest.mark.parametrize(
    ("domains", "expected"),
    [
        (np.arange(N) // 40, (0, 1, 2)),
        ([("site", i // 60) for i in range(N)], (("site", 0), ("site", 1))),
        ([1 if i < 60 else "1" for i in range(N)], (1, "1")),
        (pd.Series(SCANNER, dtype="category", index=range(N, 0, -1)), ("a", "b", "c")),
        ((10 - np.arange(N) // 60).tolist(), (9, 10)),
    ],
)
def test_ids_of_domains(domains: Any, expected: tuple[Any, ...]) -> None:
    model = quick(steps=2).fit(X, Y, domains=domains)
    assert model.domains_ == expected
    assert len(model.record_.domains) == len(expected)


@pytest.mark.parametrize(
    ("domains", "sentence"),
    [
        (SCANNER[:5], "each of the 120 samples. Found 5"),
        ([None, *SCANNER[1:]], "Found None in row 0"),
        ([*SCANNER[:-1], float("nan")], "Found nan in row 119"),
        (pd.Series([1] * (N - 1) + [None], dtype="Int64"), "Found <NA> in row 119"),
        (SCANNER[:, None], "one id for each sample"),
        (3, "a sequence of ids"),
    ],
)
def test_mistakes_in_domains(domains: Any, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        quick().fit(X, Y, domains=domains)


@pytest.mark.parametrize("labels", [[True, False], [-1.0, 1.0], [7, 3], ["é", "b"]])
def test_kinds_of_labels(labels: list[Any]) -> None:
    y = np.array(labels)[np.arange(N) % 2]
    model = quick("erm", steps=30, settings={"lr": 1e-2}).fit(X, y, domains=SCANNER)
    assert model.predict(X).dtype == y.dtype
    assert model.score(X, y) > 0.95


@pytest.mark.parametrize("missing", [None, float("nan")])
@pytest.mark.parametrize("kind", [list, lambda labels: np.array(labels, dtype=object)])
def test_a_label_that_is_missing_is_named(missing: Any, kind: Any) -> None:
    x, labels = np.random.default_rng(0).normal(size=(8, 3)), [*"abababab"]
    labels[5] = missing
    model = DomainGeneralizer("erm", steps=2)
    for call in (model.fit, model.leave_one_domain_out):
        with pytest.raises(ValueError, match=rf"a label for each sample. Found {missing} for sample 5"):
            call(x, kind(labels), domains=[0, 1] * 4)


def test_without_domains_it_is_erm_and_says_so() -> None:
    with pytest.warns(UserWarning, match="training ERM instead") as caught:
        model = quick(settings={"gamma": 3.0, "lr": 2e-3}).fit(X, Y)
    assert len(caught) == 1
    assert caught[0].filename == __file__
    assert (model.record_.spec.algorithm, model.record_.spec.settings["lr"]) == ("erm", 2e-3)
    assert len(model.domains_) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        quick("erm", steps=1).fit(X, Y)


def test_one_named_domain_is_refused_for_a_method_that_needs_two() -> None:
    with pytest.raises(UserError, match="fgmix needs at least 2 source domains"):
        quick().fit(X, Y, domains=["a"] * N)


def test_a_class_that_a_domain_lacks() -> None:
    keep = ~((SCANNER == "b") & (Y == "ill"))
    model = quick(steps=60).fit(X[keep], Y[keep], domains=SCANNER[keep])
    assert model.score(X, Y) > 0.9


def test_a_domain_of_one_instance_is_named() -> None:
    domains = np.where(np.arange(N) == 7, "tiny", SCANNER)
    with pytest.raises(UserError, match="domain 'tiny'"):
        quick().fit(X, Y, domains=domains)


@pytest.mark.parametrize(
    ("parameters", "sentence"),
    [
        ({"algorithm": "fgmx"}, "Did you mean 'fgmix'"),
        ({"algorithm": None}, "`algorithm` should be the name"),
        ({"settings": {"gama": 1}}, "Did you mean 'gamma'"),
        ({"settings": 3}, "`settings` should be a dictionary"),
        ({"steps": 0}, "`steps` should be an integer between 1 and"),
        ({"averaging": "ema"}, "Unknown `averaging` 'ema'"),
        ({"holdout_fraction": 1.0}, "`holdout_fraction` should be a number greater than 0 and below 1"),
        ({"backbone": "small_cnn"}, "small_cnn"),
        ({"random_state": -1}, "`random_state` should be zero or a positive"),
        ({"device": "gpu"}, "Expected a device"),
        ({"algorithm": "mixstyle"}, "convolutional"),
        ({"settings": {"lr": 1e30}, "standardize": False}, "Training diverged at step"),
    ],
)
def test_mistakes_in_parameters_are_found_by_fit(parameters: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        quick(**parameters).fit(X, Y, domains=SCANNER)


def test_shapes_that_are_no_instances() -> None:
    with pytest.raises(UserError, match=r"axes|shape"):
        quick().fit(X.reshape(N, 2, 2, 1, 1), Y, domains=SCANNER)
    with pytest.raises(UserError, match="Found one class, 'ill'"):
        quick().fit(X, ["ill"] * N, domains=SCANNER)


# A domain that nobody has seen


def test_leave_one_domain_out_is_a_run_for_each_domain() -> None:
    """By hand for the last one, without which the others keep their numbers, and with them their splits."""
    model = quick("erm", steps=30, averaging="none")
    found = model.leave_one_domain_out(X, Y, SCANNER)
    assert vars(model) == vars(quick("erm", steps=30, averaging="none"))
    assert list(found.accuracy) == ["a", "b", "c"]
    others = SCANNER != "c"
    alone = quick("erm", steps=30, averaging="none").fit(X[others], Y[others], domains=SCANNER[others])
    assert found.accuracy["c"] == alone.score(X[~others], Y[~others])
    accuracies = list(found.accuracy.values())
    assert found.mean == pytest.approx(np.mean(accuracies))
    without_counting = prediction_interval(accuracies) or (0.0, 0.0)  # domains of so few samples vary by chance, too
    assert found.interval is not None
    assert found.interval[0] <= without_counting[0] <= without_counting[1] <= found.interval[1]
    assert found.estimate.domains[2].in_domain_accuracy == alone.record_.selected().validation(("a", "b"))


def test_a_held_out_domain_does_not_move_the_scale() -> None:
    """A scanner in other units must not squeeze the features of those that are trained on."""
    moved = np.where(SCANNER[:, None] == "c", 1e6 * X, X)
    model = quick("erm", steps=20)
    one, other = (model.leave_one_domain_out(x, Y, SCANNER).estimate.domains[2] for x in (X, moved))
    assert one.in_domain_accuracy == other.in_domain_accuracy > 0.9
    assert one.accuracy > other.accuracy


@pytest.mark.parametrize("per_domain", [5, 6])
def test_leave_one_domain_out_of_few_instances(per_domain: int) -> None:
    few = np.concatenate([np.flatnonzero(name == SCANNER)[:per_domain] for name in "abc"])
    found = quick(steps=2).leave_one_domain_out(X[few], Y[few], SCANNER[few])
    assert [domain.samples for domain in found.estimate.domains] == [per_domain] * 3


def test_it_is_readable() -> None:
    found = quick("erm", steps=2).leave_one_domain_out(X, Y, SCANNER)
    lines = str(found).splitlines()
    columns = "samples majority accuracy balanced macro F1 AUROC in-domain"
    assert lines[0].split() == ["held", "out", *columns.split()]
    assert lines[1].split()[:2] == ["a", "40"]
    worst = min(found.accuracy, key=lambda name: found.accuracy[name])
    assert lines[-1].startswith(f"mean accuracy {found.mean:.1%}, worst {worst}; 95 % prediction interval for one more")
    two = SCANNER != "c"
    assert str(quick("erm", steps=2).leave_one_domain_out(X[two], Y[two], SCANNER[two])).endswith("for an interval")


def test_holding_out_must_leave_enough() -> None:
    two = SCANNER != "c"
    with pytest.raises(UserError, match=r"expected at least 3 domains\. Found 2"):
        quick().leave_one_domain_out(X[two], Y[two], SCANNER[two])
    with pytest.raises(UserError, match=r"expected a class that occurs in two or more domains\. Found none"):
        quick("erm").leave_one_domain_out(X[two], SCANNER[two], SCANNER[two])


# Inside of scikit-learn


def test_column_names_are_kept() -> None:
    frame = pd.DataFrame(X, columns=["p", "q", "r", "s"])
    model = quick(steps=2).fit(frame, pd.Series(Y), domains=pd.Series(SCANNER))
    assert model.feature_names_in_.tolist() == ["p", "q", "r", "s"]
    with pytest.raises(ValueError, match="feature names should match"):
        model.predict(frame[["q", "p", "r", "s"]])


def test_in_a_pipeline() -> None:
    pipeline = make_pipeline(StandardScaler(), quick(steps=40, standardize=False))
    pipeline.fit(X, Y, domaingeneralizer__domains=SCANNER)
    assert pipeline.score(X, Y) > 0.9
    assert pipeline[-1].domains_ == ("a", "b", "c")


def test_leave_one_group_out_passes_domains_on() -> None:
    seen = cross_val_score(quick(steps=10), X, Y, groups=SCANNER, cv=LeaveOneGroupOut(), params={"domains": SCANNER})
    assert len(seen) == 3
    with config_context(enable_metadata_routing=True):
        model = quick(steps=10).set_fit_request(domains=True)
        routed = cross_val_score(
            model, X, Y, cv=LeaveOneGroupOut(), params={"domains": SCANNER, "groups": SCANNER}, error_score="raise"
        )
    assert seen.tolist() == routed.tolist()


def test_grid_search_over_single_settings() -> None:
    model, grid = quick("coral", steps=40, settings={"gamma": 2.0}), {"settings__lr": [1e-6, 1e-2]}
    search = GridSearchCV(model, grid, cv=HOLD_OUT_C, error_score="raise").fit(X, Y, domains=SCANNER)
    assert search.best_params_ == {"settings__lr": 1e-2}
    assert search.best_estimator_.settings == {"gamma": 2.0, "lr": 1e-2}
    assert search.best_estimator_.get_params()["settings__lr"] == 1e-2
    assert search.best_estimator_.record_.spec.settings["gamma"] == 2.0
    with pytest.raises(UserError, match="Did you mean 'gamma'"):
        quick().set_params(settings__gama=1.0).fit(X, Y, SCANNER)


def test_skadas_name_of_domains() -> None:
    named, aliased = quick(steps=5).fit(X, Y, SCANNER), quick(steps=5).fit(X, Y, sample_domain=SCANNER)
    assert np.array_equal(named.predict_proba(X), aliased.predict_proba(X))
    assert quick("erm", steps=2).leave_one_domain_out(X, Y, sample_domain=SCANNER).accuracy.keys() == {*"abc"}


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"groups": SCANNER}, r"Found `groups`.*Pass domains=… here"),
        ({"domains": SCANNER, "sample_domain": SCANNER}, "Found both"),
        ({"sample_domain": np.where(SCANNER == "a", -1, 1)}, "Found -1: negative ids are target domains"),
        ({"sample_weights": np.ones(N)}, "Did you mean 'sample_weight'"),
        ({"domains": SCANNER, "sample_weight": np.ones(3)}, "sample_weight"),
        ({"domains": SCANNER, "sample_weight": -np.ones(N)}, "weights of at least 0"),
    ],
)
def test_other_arguments_of_fit(given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        quick(steps=1).fit(X, Y, **given)


def test_texts_among_the_features() -> None:
    texts = X.astype(object)
    texts[3, 1] = "n/a"
    with pytest.raises(UserError, match=r"Found a text \(could not convert string to float: 'n/a'\)"):
        quick().fit(texts, Y, SCANNER)
    model = quick("erm", steps=2).fit(X.astype(object), Y.astype(object), SCANNER.astype(object))
    assert set(model.predict(X)) <= {"healthy", "ill"}


def test_weights_of_samples_and_of_classes() -> None:
    """Samples of weight 0 are never seen, whatever they hold. Rare classes are found when they weigh more."""
    wrong = np.where(np.arange(N) % 3 == 0, "ill", Y)
    weights = (np.arange(N) % 3 != 0).astype(float)
    model = quick("erm", steps=80, averaging="none", standardize=False)
    moved = np.where(weights[:, None] == 0, 1e3, 1.0) * X / [1, 10, 0.1, 1000]
    assert model.fit(moved, wrong, SCANNER, sample_weight=weights).score(X / [1, 10, 0.1, 1000], Y) > 0.9
    rng = np.random.default_rng(0)
    y, d = (np.arange(300) % 20 == 0).astype(int), np.arange(300) // 100
    x = rng.normal(size=(300, 2)) + y[:, None]
    fitted = (quick("erm", steps=80, class_weight=w).fit(x, y, d) for w in (None, "balanced", {1: 19}))
    plain, balanced, named = ((model.predict(x)[y == 1] == 1).mean() for model in fitted)
    assert plain < 0.2 < 0.5 < min(balanced, named)
    with pytest.raises(UserError, match="Unknown class in `class_weight` '2'"):
        quick(class_weight={2: 3}).fit(x, y, d)
    with pytest.raises(UserError, match="sample_weight"):
        quick(class_weight={1: 3}).fit(x, y, d, sample_weight=np.ones(3))


def test_weights_with_metadata_routing() -> None:
    with config_context(enable_metadata_routing=True):
        model = quick("erm", steps=2).set_fit_request(domains=True, sample_weight=True)
        model.set_score_request(sample_weight=False)
        params = {"domains": SCANNER, "sample_weight": np.ones(N), "groups": SCANNER}
        seen = cross_val_score(model, X, Y, cv=LeaveOneGroupOut(), params=params, error_score="raise")
    assert len(seen) == 3


def test_grid_search_over_methods_and_numpy_numbers() -> None:
    grid = {"algorithm": ["erm", "coral"], "steps": np.array([2, 40]), "settings": [{"lr": np.float64(1e-3)}]}
    search = GridSearchCV(quick(), grid, cv=HOLD_OUT_C, error_score="raise").fit(X, Y, domains=SCANNER)
    assert search.best_params_["steps"] == 40
    assert search.best_estimator_.domains_ == ("a", "b", "c")


@pytest.fixture
def _no_folder_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    yield
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("_no_folder_left")
def test_nothing_is_left_on_the_disk() -> None:
    quick(steps=2).fit(X, Y, domains=SCANNER)
    with pytest.raises(UserError):
        quick(settings={"gama": 1}).fit(X, Y, domains=SCANNER)


def test_images_must_be_of_the_type_that_was_trained_on() -> None:
    """Bytes are scaled to [0, 1] and floats are not: the other kind would be another picture."""
    pictures = np.random.default_rng(0).integers(0, 256, (30, 3, 8, 8), dtype=np.uint8)
    model = quick("erm", steps=2).fit(pictures, np.arange(30) % 2, domains=np.arange(30) // 15)
    model.predict(pictures)
    with pytest.raises(UserError, match="Expected images of uint8"):
        model.predict(pictures.astype(float))
