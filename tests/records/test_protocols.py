"""Named protocols: what a run starts from, how its images are prepared, when it is evaluated."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from copying import replace
from fgmix.data import ArrayInputs, DomainDataset, from_arrays
from fgmix.errors import UserError
from fgmix.records.protocols import PROTOCOLS
from fgmix.records.schema import ResolvedSpec, RunSpec, to_plain, to_spec
from fgmix.training.resolve import list_notes, resolve


def images(name: str = "PACS") -> DomainDataset:
    """What a dataset of photographs is to a spec: its kind, names and shape."""
    y, domain = np.arange(12) % 2, np.arange(12) // 4
    data = from_arrays(np.zeros((12, 3, 224, 224), np.uint8), y, domain)
    assert all(isinstance(d.inputs, ArrayInputs) for d in data.domains)
    return replace(data, name=name, kind="images")


def resolved(dataset: str = "PACS", **options: Any) -> ResolvedSpec:
    spec = RunSpec(**{"dataset": dataset, "algorithm": "erm", "test_domains": "2", **options})
    return resolve(spec, images(dataset))


@pytest.mark.parametrize(
    ("protocol", "weights", "frozen", "steps", "first", "last"),
    [
        ("clean", "resnet50.tv_in1k", True, 5000, [300, 600], [4800, 5000]),
        ("domainbed-2020", "resnet50.tv_in1k", True, 5001, [1, 301], [4801, 5001]),
        ("domainbed-2024", "resnet50.ram_in1k", False, 5001, [1, 301], [4801, 5001]),
    ],
)
def test_what_a_protocol_fixes(
    protocol: Any, weights: str, frozen: bool, steps: int, first: list[int], last: list[int]
) -> None:
    spec = resolved(protocol=protocol)
    assert (spec.backbone, spec.pretrained, spec.freeze_bn, spec.steps) == (weights, True, frozen, steps)
    evaluations = PROTOCOLS[spec.protocol].evaluations(spec.eval_every, spec.steps)
    assert (evaluations[:2], evaluations[-2:]) == (first, last)
    assert PROTOCOLS[spec.protocol].augmented_validation == (protocol != "clean")
    assert spec.interpolation == "bilinear"


def test_domainnets_steps_are_the_papers_or_domainbeds() -> None:
    assert resolved("DomainNet").steps == 15000
    assert resolved("DomainNet", protocol="domainbed-2020").steps == 5001
    assert resolved("DomainNet", protocol="domainbed-2020").eval_every == 1000


def test_what_trains_on_features_has_their_steps_whatever_its_name_is(tmp_path: Path) -> None:
    (tmp_path / "w.pt").write_bytes(b"w")
    frozen = resolved("DomainNet", frozen=True, backbone="small_cnn", weights=tmp_path / "w.pt")
    y, domain = np.arange(12) % 2, np.arange(12) // 4
    features = resolve(
        RunSpec(dataset="DomainNet.npz", algorithm="erm", test_domains="2"),
        from_arrays(np.zeros((12, 5)), y, domain, name="DomainNet"),
    )
    assert [(spec.steps, spec.eval_every) for spec in (frozen, features)] == [(1000, 100)] * 2


@pytest.mark.parametrize(
    ("backbone", "tag", "mean", "interpolation"),
    [
        ("resnet50", "resnet50.tv_in1k", 0.485, "bilinear"),
        ("resnet50.a1_in1k", "resnet50.a1_in1k", 0.485, "bicubic"),
        ("vit_base_patch16_clip_224.openai", "vit_base_patch16_clip_224.openai", 0.48145466, "bicubic"),
        ("vit_tiny_patch16_224", "vit_tiny_patch16_224.augreg_in21k_ft_in1k", 0.5, "bicubic"),
    ],
)
def test_weights_have_their_tag_and_their_normalisation(
    backbone: str, tag: str, mean: float, interpolation: str
) -> None:
    spec = resolved(backbone=backbone, pretrained=True)
    assert (spec.backbone, spec.mean[0], spec.interpolation) == (tag, mean, interpolation)
    assert resolve(spec, images()) == spec
    assert to_spec(json.loads(json.dumps(to_plain(spec))), ResolvedSpec) == spec


@pytest.mark.parametrize("backbone", ["vit_tiny_patch16_224", "vit_tiny_patch16_224.augreg_in21k_ft_in1k"])
def test_random_weights_expect_nothing_and_have_no_tag(backbone: str) -> None:
    spec = resolved(backbone=backbone, pretrained=False)
    assert (spec.backbone, spec.mean[0], spec.interpolation) == ("vit_tiny_patch16_224", 0.485, "bilinear")


def test_a_tag_names_published_weights() -> None:
    assert resolved(backbone="resnet18.tv_in1k").pretrained
    assert not resolved(backbone="resnet18").pretrained


def test_a_weights_file_is_taken_for_the_protocols_weights(tmp_path: Path) -> None:
    (tmp_path / "w.pt").write_bytes(b"w")
    spec = resolved(backbone="resnet50", weights=tmp_path / "w.pt")
    assert (spec.backbone, spec.pretrained, spec.interpolation) == ("resnet50", False, "bilinear")
    vit = resolved(backbone="vit_tiny_patch16_224", weights=tmp_path / "w.pt")
    assert (vit.mean[0], vit.interpolation) == (0.5, "bicubic")
    assert (spec.pretraining, vit.pretraining) == ("", "")


def test_the_tag_of_a_weights_file_names_its_pretraining(tmp_path: Path) -> None:
    (tmp_path / "w.pt").write_bytes(b"w")
    spec = resolved(backbone="vit_base_patch16_clip_224.openai", weights=tmp_path / "w.pt")
    assert (spec.backbone, spec.pretrained) == ("vit_base_patch16_clip_224.openai", False)
    assert spec.pretraining == "OpenAI's 400 M image-text pairs"
    assert resolve(spec, images()) == spec


def test_tag_digest_and_normalisation_are_part_of_the_identity(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.pt").write_bytes(name.encode())
    runs = [
        resolved(),
        resolved(protocol="domainbed-2024"),
        resolved(backbone="resnet50.a1_in1k", pretrained=True),
        resolved(backbone="resnet50", weights=tmp_path / "a.pt"),
        resolved(backbone="resnet50", weights=tmp_path / "b.pt"),
    ]
    assert len({run.name for run in runs}) == len(runs)
    (tmp_path / "moved.pt").write_bytes(b"a")
    assert resolved(backbone="resnet50", weights=tmp_path / "moved.pt").name == runs[3].name


def test_weights_that_do_not_exist_are_refused() -> None:
    with pytest.raises(UserError, match="Unknown tag of resnet50 'nope'"):
        resolved(backbone="resnet50.nope", pretrained=True)
    with pytest.raises(UserError, match="one of them"):
        resolved(backbone="resnet50", pretrained=True, weights=__file__)


def test_a_short_run_has_no_averaged_row_and_says_why() -> None:
    spec = RunSpec(dataset="PACS", algorithm="fishr", test_domains="2", steps=50)
    run = resolve(spec, images())
    assert run.averaging == "none"
    notes = list_notes(spec, run)
    assert any("averaging starts at step 100" in note for note in notes)
    assert any("1500" in note for note in notes), "Fishr's penalty never starts"
    assert list_notes(replace(spec, steps=2000), resolve(replace(spec, steps=2000), images())) == []


def test_the_average_starts_when_the_base_model_does() -> None:
    spec = resolved(algorithm="ddg", steps=35_000, settings={"stage0": 25_000 / 35_000})
    assert spec.averaging_start == 25_001
    swad = resolved(algorithm="ddg", steps=35_000, settings={"stage0": 25_000 / 35_000}, averaging="swad")
    assert swad.averaging_start == 25_001
    assert resolved(averaging="swad").averaging_start == 1


@pytest.mark.parametrize(
    ("algorithm", "dataset", "expected"),
    [
        ("arm", "PACS", {"batch_size": 8}),
        ("rdm", "VLCS", {"batch_size": 88}),
        ("rdm", "PACS", {"batch_size": 88, "lam": 5.0}),
        ("rdm", "TerraIncognita", {"batch_size": 40, "lam": 5.0, "variance_weight": 0.0}),
        ("rdm", "DomainNet", {"batch_size": 40, "lam": 0.5, "anneal": 2400, "variance_weight": 0.0}),
        ("adrmx", "PACS", {"batch_size": 32, "lr": 3e-5}),
        ("coral", "PACS", {"batch_size": 32, "lr": 5e-5}),
    ],
)
@pytest.mark.parametrize("protocol", ["domainbed-2020", "domainbed-2024"])
def test_under_domainbeds_protocols_algorithms_have_its_defaults(
    algorithm: str, dataset: str, expected: dict[str, float], protocol: str
) -> None:
    spec = resolved(dataset, algorithm=algorithm, protocol=protocol)
    values = {"batch_size": spec.batch_size, **spec.settings}
    assert {name: values[name] for name in expected} == expected
    own = resolved(dataset, algorithm=algorithm, protocol=protocol, batch_size=6, settings={"lr": 0.1})
    assert (own.batch_size, own.settings["lr"]) == (6, 0.1)
    assert resolve(spec, images(dataset)) == spec


@pytest.mark.parametrize(
    ("options", "backbone"),
    [
        ({}, "mlp"),
        ({"protocol": "domainbed-2020"}, "domainbed_mlp"),
        ({"protocol": "domainbed-2024"}, "domainbed_mlp"),
        ({"protocol": "domainbed-2020", "backbone": "mlp"}, "mlp"),
    ],
)
def test_arrays_have_the_network_of_the_protocol(options: dict[str, Any], backbone: str) -> None:
    data = from_arrays(np.zeros((12, 3)), np.arange(12) % 2, np.arange(12) // 4)
    spec = RunSpec(dataset="arrays", algorithm="urm", test_domains=("2",), **options)
    assert resolve(spec, data).backbone == backbone


def test_the_clean_protocol_has_one_batch_size() -> None:
    assert resolved(algorithm="arm").batch_size == 32


@pytest.mark.parametrize(
    ("options", "noted"),
    [
        ({"backbone": "resnet18"}, True),
        ({"backbone": "resnet18", "pretrained": False}, False),
        ({"backbone": "resnet18.tv_in1k"}, False),
        ({"backbone": "small_cnn"}, False),
        ({}, False),
    ],
)
def test_a_network_from_random_weights_is_noted_unless_it_was_asked_for(options: dict[str, Any], noted: bool) -> None:
    spec = RunSpec(dataset="PACS", algorithm="erm", test_domains="2", **options)
    notes = list_notes(spec, resolve(spec, images()))
    assert [note for note in notes if "random weights" in note] == notes
    assert bool(notes) == noted
