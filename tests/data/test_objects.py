"""Samples of a Python object are treated as the same samples in arrays."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fgmix import RunSpec, fit, train
from fgmix.data import DomainDataset, from_arrays, from_samples
from fgmix.data.objects import make_dataset
from fgmix.errors import UserError
from fgmix.records.schema import ResolvedSpec
from fgmix.training.loop import OnEvaluation
from fgmix.training.prepare import build_source, prepare

DOMAINS = ("ct", "mr", "us")
RNG = np.random.default_rng(0)
Y = np.arange(60) % 2
DOMAIN = np.arange(60) // 20
FEATURES = RNG.normal(size=(60, 5)) + Y[:, None]
SIGNALS = RNG.normal(size=(60, 2, 40))
IMAGES = RNG.integers(0, 256, size=(60, 3, 16, 16), dtype=np.uint8)
STACKS = RNG.integers(9000, 20000, size=(60, 5, 12, 16), dtype=np.uint16)


class Slices:
    """A domain, like a torch Dataset, which counts how often a sample is read."""

    def __init__(self, x: Any, y: Any, convert: Callable[[Any], Any] = torch.as_tensor) -> None:
        self.x, self.y, self.convert, self.reads = x, y, convert, 0

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        self.reads += 1
        return self.convert(self.x[index]), self.y[index]


def slices(x: Any, y: Any = Y, **how: Any) -> dict[str, Slices]:
    return {name: Slices(x[d == DOMAIN], y[d == DOMAIN], **how) for d, name in enumerate(DOMAINS)}


def spec(**fields: Any) -> RunSpec:
    usual = {"algorithm": "fgmix", "test_domains": "us", "steps": 6, "eval_every": 3, "averaging_start": 1}
    return RunSpec(dataset="scans", **{**usual, **fields})


@pytest.mark.parametrize("x", [FEATURES, IMAGES, SIGNALS, STACKS], ids=["features", "images", "signals", "16 bits"])
def test_arrays_and_objects_give_equal_records(x: Any, tmp_path: Path) -> None:
    names = np.array(DOMAINS)[DOMAIN]
    data = (
        from_arrays(x, Y, names, name="scans", classes=["a", "b"]),
        from_samples(slices(x), name="scans", classes=["a", "b"]),
    )
    files = []
    for each, out in zip(data, ("arrays", "objects")):
        record = train(spec(), tmp_path / out, dataset=each, device="cpu", progress=False)
        assert record.folder is not None
        files.append((record.folder.name, (record.folder / "record.json").read_bytes()))
    assert files[0] == files[1]


def test_a_name_of_the_data_saves_reading_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a fingerprint of its own, only the first sample is read; labels are read once, then cached."""
    monkeypatch.setenv("FGMIX_CACHE", str(tmp_path))
    first, again, given, other = slices(FEATURES), slices(FEATURES), slices(FEATURES), slices(FEATURES)
    data = from_samples(first, fingerprint="version 1")
    assert from_samples(again, fingerprint="version 1").fingerprint == data.fingerprint
    labels = {name: each.y for name, each in given.items()}
    assert from_samples(given, fingerprint="version 1", labels=labels).fingerprint == data.fingerprint
    assert from_samples(other, fingerprint="version 2").fingerprint != data.fingerprint
    assert first["ct"].reads - again["ct"].reads == 20
    assert again["ct"].reads == given["ct"].reads < 5
    relabelled = from_samples(given, fingerprint="version 1", labels={**labels, "ct": 1 - labels["ct"]})
    assert relabelled.fingerprint != data.fingerprint


def noisy(x: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    return x + torch.randn(x.shape, generator=generator)


def test_a_transform_depends_on_seed_and_step_alone() -> None:
    data = from_samples(slices(FEATURES), name="scans", transform=noisy)
    plain = from_samples(slices(FEATURES), name="scans")
    run, clean = (prepare(spec(standardize=False), each, device="cpu") for each in (data, plain))
    source, twin = build_source(run), build_source(prepare(spec(standardize=False), data, device="cpu"))
    (x, y), (same, _) = source.at(3)[0], twin.at(3)[0]
    assert torch.equal(x, same)
    unaugmented, labels = build_source(clean).at(3)[0]
    assert torch.equal(y, labels)
    assert 0.5 < (x - unaugmented).std() < 1.5
    assert torch.equal(data.domains[0].inputs.clean(np.arange(3)), plain.domains[0].inputs.clean(np.arange(3)))
    assert data.fingerprint == plain.fingerprint


def test_a_run_resumes_exactly(tmp_path: Path) -> None:
    class Interrupted(Exception):
        pass

    def stop(*_: Any) -> None:
        raise Interrupted

    def run(out: str, on_evaluation: OnEvaluation | None = None) -> bytes:
        data = from_samples(slices(FEATURES), name="scans", transform=noisy)
        record = train(spec(), tmp_path / out, dataset=data, device="cpu", progress=False, on_evaluation=on_evaluation)
        assert record.folder is not None
        return (record.folder / "record.json").read_bytes()

    with pytest.raises(Interrupted):
        run("killed", stop)
    assert run("killed") == run("whole")


def test_a_model_is_fitted(tmp_path: Path) -> None:
    data = from_samples(slices(IMAGES), name="scans", classes=["a", "b"])
    model = fit(data, tmp_path / "model", algorithm="erm", steps=2, device="cpu", progress=False)
    assert model.info.dtype == "uint8"
    assert len(model.predict(IMAGES[:4]).labels) == 4


def test_a_split_and_names_of_classes_come_with_the_object() -> None:
    class Scans:
        classes = ("low", "high")
        holdout = {name: np.arange(20) < 5 for name in DOMAINS}

        def __init__(self) -> None:
            self.domains = slices(FEATURES)

    data = make_dataset("scans", Scans())
    assert (data.name, data.classes) == ("scans", ("low", "high"))
    assert data.domains[1].holdout is not None
    assert data.domains[1].holdout.sum() == 5
    assert data.fingerprint != from_samples(slices(FEATURES), classes=["low", "high"]).fingerprint


def scale(factor: float) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda x: factor * x


def test_a_run_with_another_transform_is_another_run() -> None:
    def resolve(**options: Any) -> ResolvedSpec:
        return prepare(spec(augment=options.pop("augment", "")), from_samples(slices(FEATURES), **options)).spec

    plain, noise, doubled, tripled = (resolve(transform=each) for each in (None, noisy, scale(2), scale(3)))
    assert plain.augment_code == ""
    assert len({each.augment_code for each in (plain, noise, doubled, tripled)}) == 4
    assert resolve(transform=scale(2)) == doubled
    assert resolve(transform=noisy, augment="none") == resolve(transform=scale(2), augment="none")


def ragged() -> dict[str, Any]:
    return {"a": [(np.zeros(3), 0), (np.zeros(4), 1)]}


def uses_global(x: torch.Tensor) -> torch.Tensor:
    return x + torch.randn(x.shape)


@pytest.mark.parametrize(
    ("make", "found"),
    [
        (lambda: from_samples({}), "domains"),
        (lambda: from_samples({"a": []}), "'a'"),
        (lambda: from_samples({"a": iter([])}), "__getitem__"),  # type: ignore[dict-item]
        (lambda: from_samples({"a": [1, 2]}), r"\(x, y\)"),
        (lambda: from_samples({"a": [("text", 0)]}), "numbers"),
        (lambda: from_samples(slices(STACKS.astype(np.int16))), "int16"),
        (lambda: from_samples(slices(FEATURES), group={"ct": Y[:30], "mr": Y[:10], "us": Y[:20]}), "'ct'"),
        (lambda: from_samples(slices(FEATURES), sample_weight={"ct": Y[:20]}), "'mr'"),
        (lambda: from_samples({"a": [(np.zeros(3), [[0, 1]])]}), "one class"),
        (lambda: from_samples(ragged()), "sample 1 of domain 'a'"),
        (lambda: from_samples({"a": [(np.zeros(3), 0)], "b": [(np.zeros(4), 0)]}), "one shape"),
        (lambda: from_samples({"a": [(np.zeros(3), 0), (np.full(3, np.nan), 1)]}), "sample 1"),
        (lambda: from_samples({"a": [(np.zeros(3), 0.5), (np.zeros(3), 1.0)]}), "integers"),
        (lambda: from_samples(slices(FEATURES, convert=lambda x: x + RNG.normal())), "Move random"),
        (lambda: from_samples(slices(FEATURES), transform=uses_global), "a torch.Generator"),
        (lambda: from_samples(slices(FEATURES), transform=lambda x: x[:2]), "shape"),
        (lambda: from_samples(slices(FEATURES), labels={"ct": [0]}), "20 labels"),
        (lambda: from_samples(slices(FEATURES), holdout={}), "holdout"),
        (lambda: make_dataset("scans", 3), "`domains`"),
    ],
)
def test_what_cannot_be_a_dataset_is_one_sentence(make: Callable[[], DomainDataset], found: str) -> None:
    with pytest.raises(UserError, match=found):
        make()


def test_groups_are_those_of_arrays() -> None:
    group = np.arange(60) // 4
    made = from_samples(slices(FEATURES), group={name: group[d == DOMAIN] for d, name in enumerate(DOMAINS)})
    same = from_arrays(FEATURES.astype(np.float32), Y, DOMAIN, domains=DOMAINS, group=group)
    assert [d.groups.tolist() for d in made.domains] == [d.groups.tolist() for d in same.domains]
    assert made.fingerprint == same.fingerprint
