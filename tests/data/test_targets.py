"""Soft labels and weights of samples: from the data to the loss."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from msgspec import structs

from fgmix import RunSpec, train
from fgmix.algorithms import get, names
from fgmix.data import DomainDataset, from_arrays, from_samples, load
from fgmix.data.dataset import join_datasets
from fgmix.errors import UserError
from fgmix.records.schema import to_plain
from fgmix.training.prepare import PreparedRun, build_algorithm, build_source, prepare

N, C = 60, 3
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, 4)).astype(np.float32)
Y = np.arange(N) % C
D = np.repeat(["a", "b", "c"], N // 3)
SOFT = 0.25 * RNG.dirichlet(np.ones(C), N) + 0.75 * np.eye(C)[Y]
WEIGHTS = RNG.integers(0, 4, N).astype(float)


def prepared(data: DomainDataset, algorithm: str = "erm", **options: Any) -> PreparedRun:
    spec = RunSpec(dataset="arrays", algorithm=algorithm, test_domains="c", batch_size=8, **options)
    return prepare(spec, data, progress=False)


def test_certain_labels_give_the_same_record(tmp_path: Path) -> None:
    spec = RunSpec(dataset="arrays", algorithm="erm", test_domains="c", steps=3)
    records = [
        train(spec, tmp_path / str(kind), dataset=from_arrays(X, y, D), device="cpu", progress=False)
        for kind, y in enumerate((Y, np.eye(C)[Y], np.eye(C, dtype=int)[Y]))
    ]
    assert len({repr(to_plain(record)) for record in records}) == 1


def test_soft_labels_are_trained_on_and_their_most_probable_class_is_tested() -> None:
    data = from_arrays(X, SOFT, D, classes=["x", "y", "z"])
    assert data.classes == ("x", "y", "z")
    assert np.array_equal(np.concatenate([domain.y for domain in data.domains]), SOFT.argmax(1))
    assert data.fingerprint != from_arrays(X, Y, D, classes=["x", "y", "z"]).fingerprint
    run = prepared(data)
    source = build_source(run)
    for domain, drawn, (_, y) in zip(source.domains, source.sampler.draw(0), source.at(0)):
        assert domain.soft is not None
        assert torch.equal(y, torch.from_numpy(domain.soft[drawn]))


@pytest.mark.parametrize("class_weight", ["none", "balanced"])
def test_the_loss_is_a_weighted_mean_over_samples(class_weight: str) -> None:
    """Against a loop over samples, classes and domains."""
    data = from_arrays(X, SOFT, D, sample_weight=WEIGHTS)
    run = prepared(data, weighted_loss=True, class_weight=class_weight)
    source, algorithm = build_source(run), build_algorithm(run).requires_grad_(False)
    total = 0.0
    for domain, drawn in zip(source.domains, source.sampler.draw(0)):
        assert domain.weights is not None
        assert domain.soft is not None
        pool = run.splits[domain.name].train
        counts = np.bincount(domain.y[pool], minlength=C)
        raw = {i: domain.weights[i] / (counts[domain.y[i]] if class_weight == "balanced" else 1) for i in pool.tolist()}
        mean = sum(raw.values()) / len(raw)
        for i in drawn.tolist():
            log_p = algorithm.predict(domain.inputs.clean(np.array([i])))[0].log_softmax(0)
            total += raw[i] / mean * sum(-float(domain.soft[i, c] * log_p[c]) for c in range(C)) / 16
    assert math.isclose(float(algorithm.objective(source.at(0))["loss"]), total, rel_tol=1e-5)


def test_weights_in_the_loss_have_the_gradient_of_weights_in_sampling() -> None:
    """In expectation: over all batches of one sample, the mean gradient is that of drawing in proportion."""
    run = prepared(from_arrays(X, Y, D, sample_weight=WEIGHTS), weighted_loss=True)
    source, algorithm = build_source(run), build_algorithm(run).requires_grad_(False)
    for d, (domain, pool) in enumerate(zip(source.domains, (run.splits[name].train for name in run.sources))):
        assert domain.weights is not None
        x, drawn = domain.inputs.clean(pool), domain.weights[pool]
        log_p = algorithm.predict(x).log_softmax(1)
        target = torch.from_numpy(domain.target(pool, C) * source.weights[d][pool, None])
        by_loss = -(target * log_p).sum(1).mean()
        by_sampling = -(torch.from_numpy(drawn / drawn.sum()) * log_p[range(len(pool)), domain.y[pool]]).sum()
        assert math.isclose(float(by_loss), float(by_sampling), rel_tol=1e-5)


def test_the_option_is_part_of_the_name_of_a_run_only_where_it_is_used() -> None:
    data = from_arrays(X, Y, D, sample_weight=WEIGHTS)
    plain, weighted = (prepared(data, weighted_loss=each).spec for each in (False, True))
    assert "weighted_loss" not in to_plain(plain)
    assert plain.name == structs.replace(weighted, weighted_loss=False).name != weighted.name


@pytest.mark.parametrize("name", [name for name in names() if not get(name).needs_stages and not get(name).head])
def test_methods_refuse_what_their_loss_does_not_allow(name: str) -> None:
    soft, weighted = from_arrays(X, SOFT, D), from_arrays(X, Y, D, sample_weight=WEIGHTS)
    for data, options, refused in (
        (soft, {}, get(name).targets == "classes"),
        (weighted, {"weighted_loss": True}, get(name).targets != "weighted"),
        (weighted, {}, False),
    ):
        if refused:
            with pytest.raises(UserError, match=rf"\b{name.replace('+', '.')}\b"):
                prepared(data, name, **options)
        else:
            prepared(data, name, **options)


def test_weights_in_the_loss_need_weights() -> None:
    with pytest.raises(UserError, match="`weighted_loss` should be false for arrays, where all samples weigh the same"):
        prepared(from_arrays(X, Y, D), weighted_loss=True)


def test_the_docs_list_the_methods() -> None:
    page = (Path(__file__).parents[2] / "docs" / "fit" / "prepare.md").read_text()
    listed = [re.findall(r"`(\w+)`", item) for item in re.findall(r"^- \*\*Soft labels.*\n.*", page, re.MULTILINE)]
    assert listed == [[name for name in names() if get(name).targets == kind] for kind in ("weighted", "soft")]


@pytest.mark.parametrize(
    ("y", "sentence"),
    [
        (SOFT * 2, r"sum to 1 in the rows of y .* in row 0 \(60 such rows\)"),
        (np.where(np.arange(N)[:, None] == 4, np.nan, SOFT), r"in row 4 \(1 such rows\)"),
        (np.where(np.arange(N)[:, None] == 4, [2, -0.5, -0.5], SOFT), "in row 4"),
        (SOFT.astype(str), "Expected soft labels of 2 classes"),
        (SOFT, "Expected soft labels of 2 classes, numbers, in y. Found float64 of"),
    ],
)
def test_mistakes_in_soft_labels(y: np.ndarray, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        from_arrays(X, y, D, classes=["x", "y"] if "2 classes" in sentence else None)


def test_objects_and_files_give_the_same_data_as_arrays(tmp_path: Path) -> None:
    data = from_arrays(X, SOFT, D, sample_weight=WEIGHTS)
    rows = {name: np.flatnonzero(np.equal(D, name)) for name in "abc"}
    read = {name: [(X[i], SOFT[i]) for i in mine] for name, mine in rows.items()}
    weights = {name: WEIGHTS[mine] for name, mine in rows.items()}
    given = {name: SOFT[mine] for name, mine in rows.items()}
    np.savez(tmp_path / "arrays.npz", X=X, y=SOFT, domain=D, sample_weight=WEIGHTS)
    for same in (
        from_samples(read, sample_weight=weights),
        from_samples(read, labels=given, sample_weight=weights),
        load(str(tmp_path / "arrays.npz")),
    ):
        assert (same.fingerprint, same.classes, same.notes) == (data.fingerprint, data.classes, data.notes)
        for left, right in zip(same.domains, data.domains):
            assert np.array_equal(left.soft, right.soft)  # type: ignore[arg-type]
            assert np.array_equal(left.weights, right.weights)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["weight", "Weights", "sample_weights"])
def test_weights_under_another_name_are_not_ignored(name: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "arrays.npz", X=X, y=Y, domain=D, **{name: WEIGHTS})
    with pytest.raises(UserError, match=f"sample_weight .*Found {name}"):
        load(str(tmp_path / "arrays.npz"))


def test_a_table_has_weights(tmp_path: Path) -> None:
    lines = [f"{y},{d},{x:.6f},{w}" for y, d, x, w in zip(Y, D, X[:, 0], WEIGHTS)]
    (tmp_path / "table.csv").write_text("\n".join(["label,domain,size,sample_weight", *lines]))
    data = load(str(tmp_path / "table.csv"))
    assert data.input_shape == (1,)
    assert np.array_equal(np.concatenate([d.weights for d in data.domains if d.weights is not None]), WEIGHTS)
    (tmp_path / "table.csv").write_text("\n".join(["label,domain,size,sample_weight", *lines, "0,a,1,much"]))
    with pytest.raises(UserError, match="numbers in the column sample_weight"):
        load(str(tmp_path / "table.csv"))


def test_joined_data_keep_their_soft_labels() -> None:
    first = from_arrays(X, SOFT, D, classes=["x", "y", "z"])
    second = from_arrays(X[:2], ["w", "y"], ["d", "d"])
    joined = join_datasets(first, second)
    assert joined.classes == ("w", "x", "y", "z")
    assert joined.domains[0].soft is not None
    assert first.domains[0].soft is not None
    assert np.array_equal(joined.domains[0].soft[:, 1:], first.domains[0].soft)
    assert joined.domains[3].target(np.arange(2), 4).tolist() == [[1, 0, 0, 0], [0, 0, 1, 0]]
