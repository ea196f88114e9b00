"""Runs with a text head: class names, templates, the cache of embeddings."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from msgspec import structs

import tiny_clip
from copying import replace
from fgmix.errors import UserError
from fgmix.networks.text import PromptHead, TextHead
from fgmix.records.schema import RunRecord, RunSpec, to_plain
from fgmix.results.report import tabulate
from fgmix.sweeps.plan import estimate_costs
from fgmix.sweeps.presets import get_preset
from fgmix.training import text
from fgmix.training.loop import train
from fgmix.training.open_run import load_algorithm
from fgmix.training.prepare import build_algorithm, choose_load_options, load_dataset, prepare
from fgmix.training.resolve import resolve


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_clip.make_images(tmp_path_factory.mktemp("images"))


@pytest.fixture
def spec(images: Path, clip_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunSpec:
    monkeypatch.setenv("FGMIX_CACHE", str(tmp_path / "cache"))
    options = {"steps": 2, "batch_size": 3, "averaging": "none"}
    return RunSpec(dataset=str(images), algorithm="erm", test_domains="art", backbone=clip_name, **options)


def run(spec: RunSpec, out: Path, **changes: object) -> RunRecord:
    return train(structs.replace(spec, **changes), out, progress=False)


def test_names_of_classes_are_folders_in_words(spec: RunSpec) -> None:
    resolved = prepare(structs.replace(spec, head="text"), progress=False).spec
    assert resolved.texts == ("alarm clock", "dog")
    assert resolved.templates == "photo"
    assert resolved.image_size == 32
    assert resolved.mean[0] == 0.48145466


@pytest.mark.parametrize("header", ["", "class,name\n"])
def test_names_of_classes_from_a_file(spec: RunSpec, tmp_path: Path, header: str) -> None:
    file = tmp_path / "names.csv"
    file.write_text(f"{header}dog,puppy\nAlarm_Clock,clock\n")
    dataset = load_dataset(spec, progress=False)
    resolved = resolve(structs.replace(spec, head="text", class_names=str(file)), dataset)
    assert resolved.texts == ("clock", "puppy")
    file.unlink()
    assert resolve(resolved, dataset) == resolved


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        ("dog,puppy", "Alarm_Clock"),
        ("dag,puppy", "'dog'"),
        ("dog", "class,name"),
        ("dog,puppy\ndog,hound\nAlarm_Clock,clock", "two"),
        ("\xff", "UTF-8"),
    ],
)
def test_bad_file_of_names(spec: RunSpec, tmp_path: Path, lines: str, found: str) -> None:
    (tmp_path / "names.csv").write_bytes(lines.encode("latin-1"))
    with pytest.raises(UserError, match=found):
        prepare(structs.replace(spec, head="text", class_names=str(tmp_path / "names.csv")), progress=False)


@pytest.mark.parametrize("changes", [{"backbone": "resnet18", "pretrained": False}, {"frozen": True}])
def test_text_head_without_a_text_tower_is_refused(spec: RunSpec, changes: dict[str, object], tmp_path: Path) -> None:
    torch.save(build_algorithm(prepare(spec, progress=False)).featurizer.net.state_dict(), tmp_path / "w.pt")
    changes |= {"weights": str(tmp_path / "w.pt")} if "frozen" in changes else {}
    with pytest.raises(UserError, match="text tower"):
        prepare(structs.replace(spec, head="text", **changes), progress=False)


def test_texts_without_a_text_head_are_refused(spec: RunSpec) -> None:
    with pytest.raises(UserError, match="templates"):
        prepare(structs.replace(spec, templates="name"), progress=False)


def test_specs_without_texts_do_not_mention_them(spec: RunSpec) -> None:
    plain = to_plain(prepare(spec, progress=False).spec)
    assert not {"texts", "templates", "class_names"} & plain.keys()


@pytest.mark.parametrize("head", ["text", "text-frozen"])
def test_run_with_a_text_head(spec: RunSpec, tmp_path: Path, head: str) -> None:
    record = run(spec, tmp_path / "runs", head=head)
    resolved = record.spec
    embeddings = text.embed_texts(resolved)
    assert record.text_digest == embeddings.digest
    trained = load_algorithm(record)
    assert isinstance(trained.classifier, TextHead)
    assert torch.equal(trained.classifier.weight, embeddings.embeddings) == (head == "text-frozen")
    assert trained.classifier.scale == embeddings.scale


def test_embeddings_are_computed_once(spec: RunSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    resolved = prepare(structs.replace(spec, head="text"), progress=False).spec
    first = text.embed_texts(resolved)
    builds: list[object] = []
    build = text.build_text
    monkeypatch.setattr(text, "build_text", lambda spec: builds.append(spec) or build(spec))
    assert text.embed_texts(resolved).digest == first.digest
    assert not builds
    [file] = (tmp_path / "cache" / "texts").iterdir()
    file.write_bytes(file.read_bytes()[:-9])  # damaged: computed again
    assert text.embed_texts(resolved).digest == first.digest
    assert len(builds) == 1
    assert text.embed_texts(structs.replace(resolved, templates="name")).digest != first.digest


def test_the_protocol_of_clip(spec: RunSpec) -> None:
    dataset = load_dataset(spec, progress=False)
    bare = {"backbone": None, "protocol": "clip-2024", "steps": None, "batch_size": None}
    resolved = resolve(structs.replace(spec, **bare), dataset)
    assert (resolved.backbone, resolved.pretrained) == ("open_clip:ViT-B-16.openai", True)
    assert (resolved.head, resolved.templates, resolved.steps, resolved.batch_size) == (
        "text-frozen",
        "photo",
        5000,
        32,
    )
    optimizer = {"lr": 5e-6, "weight_decay": 0.1, "optimizer": "adamw", "schedule": "cosine"}
    assert resolved.settings.items() >= optimizer.items()
    assert choose_load_options(structs.replace(spec, **bare)).preferred_size == 224
    linear = resolve(structs.replace(spec, **bare | {"head": "linear"}), dataset)
    assert (linear.head, linear.texts) == ("linear", ())
    other = resolve(structs.replace(spec, **bare | {"backbone": "resnet18.tv_in1k"}), dataset)
    assert (other.head, other.settings["lr"]) == ("linear", 5e-5)


def test_the_preset_of_clip_runs(spec: RunSpec, tmp_path: Path) -> None:
    """Every run of the preset, at toy size."""
    sweeps = get_preset("clip-2024").sweeps
    small = {"backbone": spec.backbone, "steps": 2, "batch_size": 3, "averaging": "none"}
    settings = {}
    for sweep in sweeps:
        common = {**sweep.common, **small, **({"warmup_head": 2} if "warmup_head" in sweep.common else {})}
        toy = replace(sweep, datasets=(spec.dataset,), test_domains=("art",), trials=1, common=common)
        for each, _ in toy.generate_specs():
            record = train(each, tmp_path / "runs", progress=False)
            settings[record.spec.algorithm, record.spec.arm] = record.spec.settings
            assert record.status == "done"
    assert len(settings) == 11
    assert all(each["weight_decay"] == 0.1 and each["lr"] <= 5e-5 for each in settings.values())


def test_the_plan_of_clip_counts_its_cost(spec: RunSpec) -> None:
    sweep = get_preset("clip-2024").sweeps[0]
    common = {**sweep.common, "backbone": spec.backbone}
    toy = replace(sweep, datasets=(spec.dataset,), algorithms=("clip_zeroshot", "erm"), trials=1, common=common)
    costs = {each.run.spec.algorithm: each.estimate.seconds for each in estimate_costs([toy], device="cpu").runs}
    assert 0 < costs["clip_zeroshot"] < costs["erm"] / 10  # one step and one evaluation instead of 5,000


def test_lists_of_images_are_counted_apart(spec: RunSpec, images: Path, tmp_path: Path) -> None:
    """The accuracies on a list and on its complement add up to that on the domain."""
    files = [file.relative_to(images) for file in sorted(images.glob("art/*/*.png"))]
    lists = {"IP": files[::2], "OOP": files[1::2], "photos": sorted(images.glob("photo/*/*.png"))}
    for name, paths in lists.items():
        (tmp_path / f"{name}.txt").write_text("\n".join(f"PACS/{path}" for path in paths))
    options = ",".join(str(tmp_path / f"{name}.txt") for name in lists)
    record = run(spec, tmp_path / "runs", image_lists=options)
    unseen = record.unseen["raw"]
    assert unseen.keys() == {"art", "art, IP", "art, OOP"}
    ip, oop = unseen["art, IP"], unseen["art, OOP"]
    assert ip.samples + oop.samples == unseen["art"].samples
    correct = ip.accuracy * ip.samples + oop.accuracy * oop.samples
    assert correct == pytest.approx(unseen["art"].accuracy * unseen["art"].samples)
    tables = {table.title: table for table in tabulate(record)}
    listed = tables[f"{record.dataset}: OOP"]
    assert listed.rows[0].entries[0].value == pytest.approx(100 * oop.accuracy)
    other = run(spec, tmp_path / "runs")
    assert other.spec.name != record.spec.name
    assert other.evaluations[-1].accuracy == record.evaluations[-1].accuracy
    for file in tmp_path.glob("*.txt"):
        file.unlink()
    load_algorithm(record)  # does not need the lists


def test_a_list_of_another_dataset_is_refused(spec: RunSpec, tmp_path: Path) -> None:
    (tmp_path / "list.txt").write_text("VLCS/Caltech101/bird/1.png\n")
    with pytest.raises(UserError, match="domain/class/file"):
        prepare(structs.replace(spec, image_lists=str(tmp_path / "list.txt")), progress=False)


@pytest.mark.parametrize("name", ["coop", "dpl"])
def test_a_run_with_learned_prompts_is_opened_again(spec: RunSpec, tmp_path: Path, name: str) -> None:
    """Its weights contain the text tower: no pre-trained ones are loaded."""
    record = run(spec, tmp_path / "runs", algorithm=name)
    opened, initial = load_algorithm(record), build_algorithm(prepare(record.spec, progress=False))
    assert isinstance(opened.classifier, PromptHead)
    assert torch.equal(opened.classifier.tower.embedding.weight, initial.classifier.tower.embedding.weight)
    assert opened.task.classes == ("alarm clock", "dog")
    assert opened.task.domains == ("photo", "sketch")
    assert opened.task.normalisation is not None
    assert opened.task.normalisation.mean == record.spec.mean
