"""`fgmix fit --add-domain`: the new model is that of all data, and what changed is shown."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from msgspec import structs

from deploy.made import QUICK, striped_folder, vectors
from deploy.test_tables import write_table
from fgmix import fit, load_model
from fgmix.data import from_arrays, load
from fgmix.data.dataset import join_datasets
from fgmix.deploy.add_domain import add_domain
from fgmix.deploy.overlap import measure_overlap
from fgmix.errors import UserError
from workbench import fgmix, save_npz

NAMES = ["north", "east", "south", "west"]


def save_domains(path: Path, names: list[str], seed: int = 0) -> Path:
    data = vectors(4, seed=seed)
    chosen = [data.domains[data.index(name)] for name in names]
    return save_npz(
        path,
        X=np.concatenate([each.inputs.x for each in chosen]),
        y=np.concatenate([np.array(data.classes)[each.y] for each in chosen]),
        domain=np.repeat(names, [len(each) for each in chosen]),
    )


def test_the_new_model_is_that_of_all_domains(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old = fit(save_domains(tmp_path / "old.npz", NAMES[:3]), tmp_path / "model", **QUICK)
    new = save_domains(tmp_path / "new.npz", NAMES[3:])
    change = add_domain(old, new, tmp_path / "extended", device="cpu", progress=False)
    both = join_datasets(load(str(tmp_path / "old.npz")), load(str(new)))
    directly = fit(both, tmp_path / "directly", **QUICK)
    assert change.model.info.domains == ("east", "north", "south", "west")
    assert change.model.info.estimate == directly.info.estimate
    assert change.model.info.spec.settings == old.info.spec.settings
    x = load(str(new)).domains[0]
    hits = np.array(old.predict(x.inputs.x).labels) == np.array(["a", "b", "c"])[x.y]
    assert change.unseen == {"west": hits.mean()}
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in change.lines()[2:7]]
    assert [row[0] for row in rows] == ["east", "north", "south", "west", "mean of those in both"]
    for column in (1, 2):  # the new domain is in neither mean
        values = [float(row[column].rstrip(" %")) for row in rows if row[1] != "–"]
        assert np.mean(values[:-1]) == pytest.approx(values[-1], abs=0.1)
    wide = structs.replace(old.info.estimate, interval=(0.1, 0.9), floor=0.0)  # as `fit` says it: not as an interval
    (line,) = replace(change, before=structs.replace(old.info, estimate=wide)).lines()[8:]
    assert "differ too much" in line

    again = save_domains(tmp_path / "again.npz", ["north"], seed=8)
    with pytest.raises(UserError, match="north"):
        add_domain(change.model, again, tmp_path / "more", progress=False)
    loaded = load_model(tmp_path / "extended")
    assert loaded.info.sources == (str(tmp_path / "old.npz"), str(new))
    words = ["--add-domain", new, "--from", tmp_path / "model", "--out", tmp_path / "extended", "--device", "cpu"]
    assert fgmix("fit", *words, "--quiet") == 0  # done before
    assert "| west | – |" in capsys.readouterr().out
    assert fgmix("fit", *words, "--quiet", "--steps", "9") == 2
    assert fgmix("fit", "--add-domain", new, "--out", tmp_path / "x") == 2
    assert fgmix("fit", "--out", tmp_path / "x") == 2


def test_the_recipes_are_tried_again(tmp_path: Path) -> None:
    """Classifiers too: the resolved backbone of their spec is not one that a user asked to train."""
    recipes = {"recipes": ["logistic", "erm"], "device": "cpu", "progress": False}
    given = {"standardize": False, "class_weight": "balanced", "metric": "macro_f1", "steps": 30}
    old = fit(save_domains(tmp_path / "old.npz", NAMES[:3]), tmp_path / "model", **recipes, **given)
    new = save_domains(tmp_path / "new.npz", NAMES[3:])
    change = add_domain(old, new, tmp_path / "extended", device="cpu", progress=False)
    assert old.info.choice is not None
    assert change.model.info.choice is not None
    tried = {(each.recipe, each.by_domain) for each in old.info.choice.trials}
    assert {(each.recipe, each.by_domain) for each in change.model.info.choice.trials} == tried
    assert old.info.choice.given == change.model.info.choice.given == given
    older = replace(old, info=structs.replace(old.info, choice=structs.replace(old.info.choice, given=None)))
    with pytest.raises(UserError, match="older"):
        add_domain(older, new, tmp_path / "more", progress=False)
    assert change.before.estimate is not None
    moved = structs.replace(
        change.before.estimate,
        domains=tuple(structs.replace(each, domain=each.domain.upper()) for each in change.before.estimate.domains),
    )
    lines = replace(change, before=structs.replace(change.before, estimate=moved)).lines()
    assert not any("in both" in line for line in lines)
    assert (change.model.info.spec.standardize, change.model.info.spec.class_weight) == (False, "balanced")
    assert change.lines()[-1].startswith("Macro")


def test_tables_are_encoded_together(tmp_path: Path) -> None:
    """A category of the new domain alone becomes a feature."""
    old = fit(write_table(tmp_path / "old.csv"), tmp_path / "model", **{**QUICK, "steps": 5})
    rows = write_table(tmp_path / "new.csv", seed=1, n=60).read_text().splitlines()
    lines = [
        row.replace(",a,", ",d,").replace(",b,", ",d,").replace(",c,", ",d,").replace("red", "green") for row in rows
    ]
    (tmp_path / "new.csv").write_text("\n".join(lines) + "\n")
    change = add_domain(old, tmp_path / "new.csv", tmp_path / "extended", device="cpu", progress=False)
    assert change.model.info.domains == ("a", "b", "c", "d")
    colour = next(each for each in change.model.info.columns if each.name == "colour")
    assert "green" in colour.categories
    assert set(change.unseen) == {"d"}
    with pytest.raises(UserError, match="new domains"):
        add_domain(change.model, tmp_path / "new.csv", tmp_path / "more", progress=False)


def test_images_of_another_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FGMIX_CACHE", str(tmp_path / "cache"))
    old, new = (striped_folder(tmp_path / name, names) for name, names in (("old", ("p", "q")), ("new", ("r",))))
    network = {"backbone": "small_cnn", "pretrained": False, "image_size": 16, "batch_size": 4, "steps": 2}
    model = fit(old, tmp_path / "model", **{**QUICK, **network})
    change = add_domain(model, new, tmp_path / "extended", device="cpu", progress=False)
    assert change.model.info.domains == ("p", "q", "r")
    assert sum(map(sum, change.model.info.counts)) == 72


def test_joined_datasets_keep_labels_groups_and_precision() -> None:
    x = np.arange(12.0).reshape(4, 3)
    first = from_arrays(x, ["b", "c"] * 2, ["p"] * 4, group=["u", "u", "v", "w"])
    second = from_arrays(1e9 + 1e-3 * x, ["a", "b"] * 2, ["q"] * 4, group=["u", "x", "x", "y"])
    joined = join_datasets(first, second)
    assert [np.array(joined.classes)[each.y].tolist() for each in joined.domains] == [["b", "c"] * 2, ["a", "b"] * 2]
    groups = [np.array(joined.group_names)[each.groups].tolist() for each in joined.domains]
    assert groups == [["u", "u", "v", "w"], ["u", "x", "x", "y"]]
    assert measure_overlap(joined).groups == 3 / 8
    nameless = join_datasets(replace(first, group_names=()), second)
    assert measure_overlap(nameless).groups == 0
    assert {each.inputs.x.dtype for each in joined.domains} == {np.dtype(np.float64)}  # type: ignore[attr-defined]
    with pytest.raises(UserError, match="input_shape"):
        join_datasets(first, from_arrays(np.zeros((2, 9)), [0, 1], ["r", "r"]))
