"""Two models on the same samples: accuracies, intervals and McNemar's test against counts by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binom, t

from deploy.made import QUICK, vectors
from fgmix import fit, load_model
from fgmix.deploy.compare import compare_domains, compare_models
from fgmix.deploy.labelled import LabelledDomain
from fgmix.deploy.model import Model, Predictions
from fgmix.errors import UserError
from workbench import fgmix, save_npz


def predicted(labels: np.ndarray, classes: int = 3) -> Predictions:
    p = np.eye(classes, dtype=np.float32)[labels]
    return Predictions(tuple("abc"[:classes]), p, np.zeros(len(p), np.float32), (0.5,) * classes)


def domain(name: str, y: np.ndarray, wrong: np.ndarray, groups: np.ndarray | None = None) -> LabelledDomain:
    return LabelledDomain(name, y, predicted(np.where(wrong, (y + 1) % 3, y)), groups)


def test_numbers_against_counts_by_hand() -> None:
    rng = np.random.default_rng(0)
    y, a, b = rng.integers(0, 3, 80), rng.random(80) < 0.4, rng.random(80) < 0.2
    compared = compare_domains([domain("x", y, a)], [domain("x", y, b)])
    (row,) = compared.domains
    d = a.astype(float) - b  # 1 where only B is correct
    only_a, only_b = int((d < 0).sum()), int((d > 0).sum())
    assert row.accuracies == ((~a).mean(), (~b).mean())
    assert row.difference == pytest.approx(d.mean())
    assert row.alone == (only_a, only_b)
    half = t.isf(0.025, 79) * d.std(ddof=1) / 80**0.5
    assert row.interval == pytest.approx((d.mean() - half, d.mean() + half))
    n, least = only_a + only_b, min(only_a, only_b)
    assert row.p_value == pytest.approx(min(1, 2 * binom.cdf(least, n, 0.5)))
    assert compared.for_new is None
    assert compared.together.difference == row.difference


def test_domains_count_alike_and_a_new_one_has_its_own_interval() -> None:
    y = np.zeros(100, dtype=np.int64)
    names, wrong_b = ("p", "q", "r"), (10, 20, 30)
    first = [domain(name, y, np.arange(100) < 40) for name in names]
    second = [domain(name, y, np.arange(100) < n) for name, n in zip(names, wrong_b)]
    compared = compare_domains(first, second)
    assert compared.together.difference == pytest.approx(0.2)
    half = t.isf(0.025, 2) * 0.1 / 3**0.5
    assert compared.for_new == pytest.approx((0.2 - half, 0.2 + half))
    assert compared.together.alone == (0, 60)
    assert len(compared.lines()) == 2 + 4 + 1 + 2


def test_grouped_samples_are_compared_by_group() -> None:
    """Copies of a sample must not narrow the interval."""
    rng = np.random.default_rng(1)
    y, a, b = rng.integers(0, 3, 40), rng.random(40) < 0.4, rng.random(40) < 0.2
    single = compare_domains([domain("x", y, a)], [domain("x", y, b)]).domains[0]
    copies = [np.repeat(each, 5) for each in (y, a, b)]
    groups = np.repeat(np.arange(40), 5)
    grouped = compare_domains([domain("x", *copies[:2], groups)], [domain("x", copies[0], copies[2], groups)])
    assert grouped.domains[0].interval == pytest.approx(single.interval)
    assert grouped.domains[0].p_value is None
    assert grouped.together.p_value is None
    sizes = np.repeat(np.arange(31), [90, *[1] * 30])  # one unit for accuracies and their difference
    unequal = compare_domains(
        [domain("x", y := np.zeros(120, int), sizes > 0, sizes)], [domain("x", y, sizes == 0, sizes)]
    )
    for row in (*unequal.domains, unequal.together):
        assert row.accuracies == pytest.approx((1 / 31, 30 / 31))
        assert row.difference == pytest.approx(29 / 31)


def test_models_that_agree_do_not_differ() -> None:
    y = np.arange(9) % 3
    same = [domain("x", y, y == 0)]
    row = compare_domains(same, same).domains[0]
    assert (row.difference, row.interval, row.p_value) == (0.0, (0.0, 0.0), 1.0)


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A worse model, whose classes are in another order."""
    out = tmp_path_factory.mktemp("other") / "model"
    fit(vectors(seed=3), out, **{**QUICK, "steps": 1, "estimated": False})
    return out


def test_models_on_files(vectors_folder: Path, other: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    new = vectors(4, seed=5)
    x = np.concatenate([each.inputs.x for each in new.domains])
    y = np.concatenate([np.array(new.classes)[each.y] for each in new.domains])
    names = np.repeat(new.domain_names, [len(each) for each in new.domains])
    data = save_npz(tmp_path / "new.npz", X=x, y=y, domain=names)
    a, b = load_model(other), load_model(vectors_folder)
    compared = compare_models(a, b, data)
    for model, accuracy in ((a, compared.together.accuracies[0]), (b, compared.together.accuracies[1])):
        labels = np.array(model.predict(x).labels)
        assert accuracy == pytest.approx(np.mean([(labels == y)[names == name].mean() for name in new.domain_names]))
    known = [name for name in new.domain_names if name in b.info.domains]
    assert len([note for note in compared.notes if ", ".join(known) in note]) == 2  # both were trained on such domains
    assert fgmix("compare", other, vectors_folder, data, "--quiet") == 0
    assert capsys.readouterr().out.startswith("| Domain | samples | A | B |")


def test_images_of_one_domain(
    image_model: Model, pictures: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("FGMIX_CACHE", str(tmp_path / "cache"))
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "dark").symlink_to(pictures / "dark")
    (row,) = compare_models(image_model, image_model, tmp_path / "one", progress=False).domains
    assert (row.domain, row.samples, row.difference) == ("dark", 24, 0.0)


def test_data_of_another_shape_or_other_classes(vectors_folder: Path, tmp_path: Path) -> None:
    model = load_model(vectors_folder)
    y, d = np.array(["a", "b"] * 3), np.zeros(6, dtype=int)
    with pytest.raises(UserError, match="shape"):
        compare_models(model, model, save_npz(tmp_path / "wide.npz", X=np.zeros((6, 9)), y=y, domain=d))
    with pytest.raises(UserError, match="classes"):
        compare_models(model, model, save_npz(tmp_path / "other.npz", X=np.zeros((6, 5)), y=d, domain=d))
    y[2] = "u"  # one label that the model does not have is no error of the model
    with pytest.raises(UserError, match="Found u in some"):
        compare_models(model, model, save_npz(tmp_path / "some.npz", X=np.zeros((6, 5)), y=y, domain=d))
