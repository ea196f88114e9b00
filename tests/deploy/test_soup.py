"""Models of several runs: against weights and logits averaged by hand, and what they say about themselves."""

from __future__ import annotations

import errno
import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

import tiny_clip
from copying import replace
from deploy.made import vectors
from fgmix import fit, load_model
from fgmix.data import from_arrays
from fgmix.deploy.export import export_model
from fgmix.deploy.model import Model
from fgmix.deploy.soup import find_runs, soup
from fgmix.errors import UserError
from fgmix.records.locks import hold_lock
from fgmix.records.rows import Row, record_row
from fgmix.records.schema import RunRecord, RunSpec
from fgmix.records.store import read_record
from fgmix.results.read import read_runs
from fgmix.results.report import tabulate
from fgmix.training.loop import train
from fgmix.training.open_run import open_run
from fgmix.training.state import read_weights, save_weights

SPEC = RunSpec(
    dataset="vectors", algorithm="erm", test_domains=("south",), steps=20, eval_every=5, averaging_start=5, batch_size=8
)
WHERE = {"dataset": vectors(shift=1.5), "device": "cpu", "progress": False}


def make(out: Path, *changes: dict[str, object]) -> list[RunRecord]:
    return [train(replace(SPEC, **change), out, **WHERE) for change in changes]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[RunRecord]:
    """Three runs from the same initial weights; the last one hardly learns."""
    rates = ({"lr": 1e-2}, {"lr": 1e-3, "weight_decay": 1e-2}, {"lr": 1e-6})
    return make(tmp_path_factory.mktemp("sweep"), *({"settings": settings} for settings in rates))


def folders(runs: Sequence[RunRecord]) -> list[Path]:
    return [record.folder for record in runs if record.folder]


def members(runs: Sequence[RunRecord], model: str = "swa") -> list[torch.nn.Module]:
    return [open_run(f, dataset=WHERE["dataset"], progress=False).algorithm("best", model) for f in folders(runs)]


def inputs() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(9, 5)).astype(np.float32)


def logits_of(model: Model, network: torch.nn.Module) -> torch.Tensor:
    """A run's logits on `inputs`, which its data were standardised before."""
    single = model.network.members[0] if hasattr(model.network, "members") else model.network
    with torch.no_grad():
        return network.predict(single.standardise(torch.from_numpy(inputs())))


@pytest.mark.parametrize("weights", ["raw", "swa"])
def test_a_uniform_soup_has_the_mean_weights(runs: list[RunRecord], tmp_path: Path, weights: str) -> None:
    model = soup(folders(runs), tmp_path / "soup", weights=weights, **WHERE)
    states = [network.state_dict() for network in members(runs, weights)]
    found = {
        name: value for name, value in model.network.state_dict().items() if name.startswith(("feat", "classifier"))
    }
    assert len(found) == 6
    for name, value in found.items():
        by_hand = np.mean([state[name].double().numpy() for state in states], axis=0)
        np.testing.assert_allclose(value.numpy(), by_hand, rtol=1e-6, atol=1e-7)
    assert model.info.composition.runs == tuple(record.spec.name for record in runs)


def test_an_ensemble_has_the_mean_logits(runs: list[RunRecord], tmp_path: Path) -> None:
    model = soup(folders(runs), tmp_path / "eoa", kind="ensemble", **WHERE)
    mean = torch.stack([logits_of(model, network) for network in members(runs)]).mean(0)
    np.testing.assert_allclose(model.predict(inputs()).probabilities, mean.softmax(1).numpy(), atol=1e-6)
    again = load_model(tmp_path / "eoa").predict(inputs())
    np.testing.assert_array_equal(again.probabilities, model.predict(inputs()).probabilities)
    assert model.info.composition.weights == "swa"


def test_a_greedy_soup_takes_in_what_does_not_lower_validation(runs: list[RunRecord], tmp_path: Path) -> None:
    model = soup(folders(runs), tmp_path / "soup", kind="greedy", **WHERE)
    made_of = model.info.composition
    best = max(made_of.validation.values())
    assert made_of.validation[made_of.runs[0]] == best
    assert model.info.in_domain_accuracy >= best
    assert {*made_of.runs, *made_of.left_out} == {record.spec.name for record in runs}
    states = dict(zip((r.spec.name for r in runs), (n.state_dict() for n in members(runs)), strict=True))
    name = "classifier.weight"
    by_hand = torch.stack([states[run][name] for run in made_of.runs]).mean(0)
    torch.testing.assert_close(model.network.state_dict()[name], by_hand)


def test_greedy_leaves_out_what_spoils_the_mean(tmp_path: Path) -> None:
    """A run of another's negated labels: alone it is worst, and any mean with it is worse than without."""
    (good,) = make(tmp_path, {"settings": {"lr": 1e-2}})
    (bad,) = make(tmp_path, {"settings": {"lr": 1e-2}, "steps": 21})
    file = bad.folder / "best_swa.pt"
    tensors = read_weights(file)
    algorithm = open_run(bad.folder, dataset=WHERE["dataset"], progress=False).algorithm("best", "swa")
    algorithm.load_state_dict(
        {k: -3 * v if k.startswith("classifier") else v for k, v in tensors.items()}, strict=False
    )
    save_weights(file, algorithm)
    model = soup([tmp_path], tmp_path / "soup", kind="greedy", **WHERE)
    assert model.info.composition.runs == (good.spec.name,)
    assert model.info.composition.left_out == (bad.spec.name,)


def test_runs_of_another_metric_are_ordered_added_and_described_by_it(tmp_path: Path) -> None:
    changes = ({"settings": {"lr": rate}, "metric": "macro_f1"} for rate in (1e-2, 1e-3, 1e-6))
    model = soup(folders(make(tmp_path, *changes)), tmp_path / "soup", kind="greedy", **WHERE)
    made_of = model.info.composition
    assert made_of.metric == "macro_f1"
    assert made_of.validation[made_of.runs[0]] == max(made_of.validation.values())
    assert "validation macro F1" in (tmp_path / "soup" / "card.md").read_text()


def test_runs_of_different_metrics_are_not_combined(tmp_path: Path) -> None:
    runs = make(tmp_path, {}, {"metric": "macro_f1"})
    with pytest.raises(UserError, match=r"metric is accuracy .* and macro_f1 "):
        soup(folders(runs), tmp_path / "soup", **WHERE)


def test_it_is_evaluated_on_the_domain_held_out_and_says_what_selected_it(
    runs: list[RunRecord], tmp_path: Path
) -> None:
    model = soup(folders(runs), tmp_path / "soup", **WHERE)
    data = WHERE["dataset"]
    domain = data.domains[data.index("south")]
    predicted = model.predict(domain.inputs.x).probabilities.argmax(1)
    assert model.info.composition.unseen == {"south": pytest.approx(float((predicted == domain.y).mean()))}
    assert model.info.domains == ("east", "north")
    card = (tmp_path / "soup" / "card.md").read_text()
    assert "Accuracy on south, held out by every run: **" in card
    assert "Measured on all samples of a domain; `fgmix report` uses its training part, as for every run." in card
    assert "All runs given were used: nothing selected among them." in card
    assert "No sample of south was used for training or selection." in card
    assert "The confidence is not calibrated, and no prediction is marked as trusted." in card
    assert "any domain that was not trained on" not in card
    assert not model.predict(inputs()).trusted.any()
    assert all(record.spec.name.replace("_", "\\_") in card for record in runs)


def test_reports_show_it_beside_the_runs(runs: list[RunRecord], tmp_path: Path) -> None:
    soup(folders(runs), tmp_path / "eoa", kind="ensemble", **WHERE)
    record = read_record(tmp_path / "eoa")
    assert (record.label, record.spec.arm) == ("ERM + SWA", "ensemble")
    assert record.test_accuracy() == record.evaluations[0].accuracy["raw"]["south"]["train"]
    assert "ERM + SWA (ensemble)" in tabulate(read_runs(tmp_path)).to_text()
    with pytest.raises(UserError, match="at least two finished runs"):
        find_runs([tmp_path / "eoa"])  # a model is no run


def test_a_model_of_several_methods_names_all_of_them(runs: list[RunRecord], tmp_path: Path) -> None:
    (coral,) = make(tmp_path / "runs", {"algorithm": "coral", "settings": {"lr": 1e-2}})
    given = [*folders(runs)[:1], coral.folder]
    greedy, uniform = (soup(given, tmp_path / "models" / kind, kind=kind, **WHERE) for kind in ("greedy", "uniform"))
    assert uniform.info.composition.methods == greedy.info.composition.methods == ("CORAL", "ERM")
    card = (tmp_path / "models" / "uniform" / "card.md").read_text()
    assert "Trained on the domains east, north. Method: CORAL, ERM" in card
    assert "The runs given are of 2 methods: CORAL and ERM." in card
    # Whichever run validation puts first, the row is the same.
    assert record_row(read_record(tmp_path / "models" / "greedy")) == Row("coral", "greedy soup of CORAL and ERM")
    assert "Several methods + SWA (uniform soup of CORAL and ERM)" in tabulate(read_runs(tmp_path / "models")).to_text()


def test_an_ensemble_exports_as_one_file(runs: list[RunRecord], tmp_path: Path) -> None:
    model = soup(folders(runs)[:2], tmp_path / "soup", kind="ensemble", **WHERE)
    metadata = {"fgmix.json": ""}
    program = torch.export.load(export_model(model, tmp_path / "model.pt2", "pt2"), extra_files=metadata)
    p, novelty, _ = (out.detach().numpy() for out in program.module()(torch.from_numpy(inputs())))
    expected = model.predict(inputs())
    np.testing.assert_allclose(p, expected.probabilities, atol=1e-5)
    np.testing.assert_allclose(novelty, expected.novelty, rtol=1e-3, atol=1e-5)
    told = json.loads(json.loads(metadata["fgmix.json"])["fgmix.composition"])
    assert (told["kind"], len(told["runs"])) == ("ensemble", 2)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"seed": 1}, r"seed is 0 in .* and 1 in .*same initial weights.*--how ensemble"),
        ({"warmup_head": 2}, "warmup_head is"),
        ({"trial_seed": 1}, r"trial_seed is.*must not judge another"),
        ({"test_domains": ("east",)}, r"test_domains is \w+ in .* and east in"),
        ({"backbone": "identity"}, r"backbone is mlp .* identity"),
        ({"head": "mlp"}, "head is"),
    ],
)
def test_runs_that_cannot_be_averaged_are_refused(
    runs: list[RunRecord], tmp_path: Path, changes: dict[str, object], said: str
) -> None:
    (other,) = make(tmp_path, changes)
    with pytest.raises(UserError, match=said):
        soup([*folders(runs), other.folder], tmp_path / "soup", **WHERE)
    assert not (tmp_path / "soup").exists()


@pytest.mark.parametrize("kind", ["uniform", "ensemble"])
def test_networks_with_the_same_tensors_that_compute_something_else_are_refused(kind: str, tmp_path: Path) -> None:
    """The members of a saved model are rebuilt alike: one of them would predict by another network."""
    make(tmp_path / "runs", *({"algorithm": "urm", "settings": {"activation": each}} for each in ("tanh", "relu")))
    with pytest.raises(UserError, match=r"compute the same with the same weights.*such as URM's `activation`"):
        soup([tmp_path / "runs"], tmp_path / "soup", kind=kind, **WHERE)


def test_an_ensemble_may_start_anywhere(runs: list[RunRecord], tmp_path: Path) -> None:
    (other,) = make(tmp_path, {"seed": 1})
    assert (
        soup([folders(runs)[0], other.folder], tmp_path / "eoa", kind="ensemble", **WHERE).info.composition.members == 2
    )


def test_other_data_and_classes_are_refused(runs: list[RunRecord], tmp_path: Path) -> None:
    data = WHERE["dataset"]
    x, y = np.concatenate([d.inputs.x for d in data.domains]), np.concatenate([d.y for d in data.domains])
    names = np.repeat(data.domain_names, [len(d) for d in data.domains])
    fewer = from_arrays(x[y < 2], y[y < 2], names[y < 2])
    other = train(SPEC, tmp_path, dataset=fewer, device="cpu", progress=False)
    with pytest.raises(UserError, match="cannot be combined: data is"):
        soup([*folders(runs), other.folder], tmp_path / "soup", **WHERE)


def test_a_used_folder_and_too_few_runs_are_refused(runs: list[RunRecord], tmp_path: Path) -> None:
    (tmp_path / "mine").touch()
    with pytest.raises(UserError, match="new or an empty folder"):
        soup(folders(runs), tmp_path, **WHERE)
    with pytest.raises(UserError, match="at least two finished runs"):
        soup(folders(runs)[:1], tmp_path / "soup", **WHERE)
    with pytest.raises(UserError, match="Unknown kind of soup 'hot'"):
        soup(folders(runs), tmp_path / "soup", kind="hot", **WHERE)
    with pytest.raises(UserError, match="raw, swa"):
        soup(folders(runs), tmp_path / "soup", weights="swad", **WHERE)


def test_a_soup_that_a_full_disk_interrupted_is_made_by_the_same_call(
    runs: list[RunRecord], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    for name in ("write_card", "lock_folder"):  # with the model written, and before it
        out = tmp_path / name
        with monkeypatch.context() as patched:
            patched.setattr(f"fgmix.deploy.soup.{name}", fail)
            with pytest.raises(OSError, match="No space"):
                soup(folders(runs)[:2], out, **WHERE)
        assert soup(folders(runs)[:2], out, **WHERE).info.composition
        with pytest.raises(UserError, match="Found a model"):
            soup(folders(runs)[:2], out, **WHERE)


def test_another_model_is_never_overwritten(runs: list[RunRecord], tmp_path: Path) -> None:
    fit(WHERE["dataset"], tmp_path, algorithm="erm", steps=2, estimated=False, device="cpu", progress=False)
    shutil.rmtree(tmp_path / "runs")
    with pytest.raises(UserError, match="Found a model"):
        soup(folders(runs), tmp_path, **WHERE)


def test_one_process_at_a_time_makes_a_model(runs: list[RunRecord], tmp_path: Path) -> None:
    with hold_lock(tmp_path / ".lock", UserError("busy")), pytest.raises(UserError, match="Another process"):
        soup(folders(runs), tmp_path, **WHERE)


def test_copies_of_a_run_count_once(runs: list[RunRecord], tmp_path: Path) -> None:
    for i, folder in enumerate(folders(runs)[:2]):
        shutil.copytree(folder, tmp_path / f"copy{i}")
    assert len(find_runs([*folders(runs)[:2], tmp_path])) == 2
    with pytest.raises(UserError, match="Found 1"):
        soup([folders(runs)[0], tmp_path / "copy0"], tmp_path / "soup", **WHERE)


def test_runs_of_a_sweep_are_chosen_by_method_domain_and_trial(tmp_path: Path) -> None:
    make(tmp_path, {}, {"algorithm": "coral"}, {"trial_seed": 1}, {"test_domains": ("east",)}, {"seed": 3})
    records = find_runs([tmp_path], algorithm="erm", test_domains=("south",), trial_seed=0)
    assert sorted(record.spec.seed for record in records) == [0, 3]
    where = {**WHERE, "algorithm": "erm", "test_domains": ["south"], "trial_seed": 0}
    assert soup([tmp_path], tmp_path / "eoa", kind="ensemble", **where).info.composition.members == 2
    with pytest.raises(UserError, match=r"two finished runs with trial_seed 1 that did not diverge\. Found 1"):
        soup([tmp_path], tmp_path / "soup", trial_seed=1, **WHERE)


def test_an_interpolation_of_two_runs(runs: list[RunRecord], tmp_path: Path) -> None:
    model = soup(folders(runs[:2]), tmp_path / "soup", alpha=0.25, weights="raw", **WHERE)
    first, second = (network.state_dict() for network in members(runs[:2], "raw"))
    for name, value in model.network.state_dict().items():
        if name.startswith(("feat", "classifier")):
            np.testing.assert_allclose(value.numpy(), 0.75 * first[name] + 0.25 * second[name], rtol=1e-5, atol=1e-7)
    assert model.info.composition.title == "interpolation, α = 0.25"
    assert read_record(tmp_path / "soup").spec.arm == "interpolation, α = 0.25"


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({"alpha": 2.0}, "from 0 to 1"),
        ({"alpha": 0.5, "kind": "greedy"}, "greedy"),
        ({"kind": "interpolation"}, "alpha"),
    ],
)
def test_bad_interpolations(runs: list[RunRecord], tmp_path: Path, options: dict[str, object], found: str) -> None:
    with pytest.raises(UserError, match=found):
        soup(folders(runs[:2]), tmp_path / "soup", **options, **WHERE)


def test_one_run_without_texts_and_three_runs_are_not_interpolated(runs: list[RunRecord], tmp_path: Path) -> None:
    with pytest.raises(UserError, match="--head text"):
        soup(folders(runs[:1]), tmp_path / "soup", alpha=0.5, **WHERE)
    with pytest.raises(UserError, match="one or two"):
        soup(folders(runs), tmp_path / "soup", alpha=0.5, **WHERE)


@pytest.mark.parametrize("head", ["text", "text-frozen"])
def test_wise_ft_starts_at_the_zero_shot_model(
    clip_name: str, head: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FGMIX_CACHE", str(tmp_path / "cache"))
    images = tiny_clip.make_images(tmp_path / "images")
    options = {"backbone": clip_name, "steps": 2, "batch_size": 3, "averaging": "none", "seed": 3}
    spec = RunSpec(
        dataset=str(images), algorithm="erm", test_domains="art", head=head, settings={"lr": 1e-2}, **options
    )
    tuned = train(spec, tmp_path / "runs", progress=False)
    zero_shot = train(replace(spec, algorithm="clip_zeroshot", settings={}), tmp_path / "runs", progress=False)
    for alpha, expected in ((0.0, zero_shot), (1.0, tuned)):
        out = tmp_path / f"{alpha}"
        model = soup([tuned.folder], out, alpha=alpha, device="cpu", progress=False)
        end = read_record(out).evaluations[0]
        assert end.accuracy["raw"]["art"] == expected.selected().accuracy["raw"]["art"]
        assert end.loss["raw"]["art"]["train"] == pytest.approx(
            expected.selected().loss["raw"]["art"]["train"], rel=1e-4
        )
        assert model.info.composition.title == f"WiSE-FT, α = {alpha:g}"
