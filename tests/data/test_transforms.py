"""The choice of an augmentation: what training sees, what evaluation sees, and what a run records of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from data.pictures import two_domains
from fgmix import RunSpec
from fgmix.data import DomainDataset, LoadOptions, from_arrays
from fgmix.data.image_dataset import load_images
from fgmix.errors import UserError
from fgmix.records.code import load_plugin
from fgmix.records.schema import command, to_plain
from fgmix.training.prepare import PreparedRun, build_source, prepare

Y, D = np.arange(24) % 2, np.arange(24) // 8
SIGNALS = from_arrays(np.random.default_rng(0).normal(size=(24, 2, 16)), Y, D)
STACKS = from_arrays(np.random.default_rng(0).random((24, 5, 6, 6)), Y, D)


pytestmark = pytest.mark.usefixtures("image_cache")


@pytest.fixture
def images(tmp_path: Path) -> DomainDataset:
    return load_images(two_domains(tmp_path / "images"), LoadOptions(image_size=8, progress=False))


def prepared(data: DomainDataset, **options: Any) -> PreparedRun:
    usual = {"algorithm": "erm", "test_domains": data.domain_names[0], "steps": 2, "batch_size": 16}
    usual |= {"backbone": "small_cnn"} if data.kind == "images" else {}
    return prepare(RunSpec(dataset=data.name, holdout_fraction=0.5, **usual, **options), data, progress=False)


def seen_and_clean(run: PreparedRun) -> tuple[torch.Tensor, torch.Tensor]:
    """A batch of the last domain as training sees it, and the same samples as evaluation sees them."""
    source = build_source(run)
    x, _ = source.at(0)[-1]
    return x, source.domains[-1].inputs.clean(source.sampler.draw(0)[-1])


def test_without_augmentation_training_sees_what_evaluation_sees(images: DomainDataset) -> None:
    x, clean = seen_and_clean(prepared(images, augment="none"))
    assert torch.equal(x, clean)
    x, clean = seen_and_clean(prepared(images))
    assert not torch.equal(x, clean)


@pytest.mark.parametrize("which", ["images", "stacks"])
def test_flips_mirror_some_images_and_change_nothing_else(images: DomainDataset, which: str) -> None:
    x, clean = seen_and_clean(prepared(images if which == "images" else STACKS, augment="flips"))
    mirrored = [torch.equal(a, b.flip(-1)) and not torch.equal(a, b) for a, b in zip(x, clean)]
    assert all(one or torch.equal(a, b) for one, a, b in zip(mirrored, x, clean))
    assert 0 < sum(mirrored) < len(x)


def test_the_default_by_name_is_the_same_run_and_another_choice_is_another(images: DomainDataset) -> None:
    for data, default in ((images, "domainbed"), (SIGNALS, "none")):
        usual = prepared(data).spec
        assert prepared(data, augment=default).spec == usual
        assert not {"augment", "augment_code"} & to_plain(usual).keys(), "as in records from before"
    other = prepared(images, augment="flips").spec
    assert (other.name != prepared(images).spec.name, to_plain(other)["augment"]) == (True, "flips")
    assert "--augment flips" in command(other)


def test_a_function_of_the_users_augments_training_only_and_its_code_is_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    for number in (1, 2):
        path = tmp_path / f"shaking{number}.py"
        path.write_text(f"import torch\ndef shake(x, g):\n    return x + {number} * torch.rand(x.shape, generator=g)\n")
        load_plugin(path)
    runs = [prepared(SIGNALS, augment=f"shaking{number}:shake") for number in (1, 2)]
    assert runs[0].spec.augment_code != runs[1].spec.augment_code != ""
    (x, clean), (again, _), (doubled, _) = map(seen_and_clean, (runs[0], runs[0], runs[1]))
    assert torch.equal(x, again)
    torch.testing.assert_close(doubled - clean, 2 * (x - clean))
    assert (x - clean >= 0).all()


@pytest.mark.parametrize(
    ("result", "sentence"), [("x[..., 1:]", "from the augmentation"), ("x + torch.rand(1)", "global")]
)
def test_a_function_that_changes_the_shape_or_draws_global_numbers_is_refused(
    result: str, sentence: str, tmp_path: Path
) -> None:
    module = f"bad{len(result)}"
    (tmp_path / f"{module}.py").write_text(f"import torch\ndef change(x, g):\n    return {result}\n")
    load_plugin(tmp_path / f"{module}.py")
    with pytest.raises(UserError, match=sentence):
        prepared(SIGNALS, augment=f"{module}:change")


@pytest.mark.parametrize(
    ("data", "augment", "sentence"),
    [
        (SIGNALS, "flips", "only images can be flipped"),
        (SIGNALS, "domainbed", "no image files"),
        (STACKS, "domainbed", "no image files"),
        (STACKS, "flip", "Did you mean 'flips'"),
        (STACKS, "missing_module:jitter", "cannot be imported"),
    ],
)
def test_mistakes(data: DomainDataset, augment: str, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        prepared(data, augment=augment)


def test_views_of_a_frozen_network_are_domainbeds(images: DomainDataset) -> None:
    with pytest.raises(UserError, match="--frozen"):
        prepared(images, augment="none", freeze=1, views=1)
