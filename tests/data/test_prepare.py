"""`prepare_images`: afterwards a run opens no image."""

from __future__ import annotations

import builtins
import os
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from data.pictures import make_folder, picture, truncate, two_domains
from fgmix.data import DomainDataset, LoadOptions, image_cache
from fgmix.data.image_dataset import load_images, prepare_images
from fgmix.errors import UserError
from fgmix.records.schema import RunSpec
from fgmix.training.loop import train

pytestmark = pytest.mark.usefixtures("image_cache")
QUIET = LoadOptions(image_size=8, progress=False)
DOMAINS, CLASSES, EACH = 4, 5, 8
FOLDERS = 1 + DOMAINS + DOMAINS * CLASSES


def same(one: DomainDataset, other: DomainDataset) -> bool:
    return (one.fingerprint, one.notes, one.name, one.classes) == (
        other.fingerprint,
        other.notes,
        other.name,
        other.classes,
    )


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often files and folders below a path called `tree` were looked at."""
    count: Counter[str] = Counter()

    def watch(module: Any, name: str) -> None:
        original: Callable[..., Any] = getattr(module, name)

        def watched(path: Any, *more: Any, **options: Any) -> Any:
            if isinstance(path, str | Path) and "tree" in Path(path).parts:
                count[name] += 1
            return original(path, *more, **options)

        monkeypatch.setattr(module, name, watched)

    for name in ("stat", "lstat", "scandir", "listdir", "open"):
        watch(os, name)
    watch(builtins, "open")
    return count


def big_tree(root: Path) -> Path:
    """Many hard links to one picture for each domain: quickly made."""
    for d in range(DOMAINS):
        picture(d).save(root.with_name(f"{d}.png"))
        for c in range(CLASSES):
            folder = root / f"domain{d}" / f"class{c}"
            folder.mkdir(parents=True)
            for i in range(EACH):
                os.link(root.with_name(f"{d}.png"), folder / f"{i}.png")
    return root


def test_first_use_opens_an_image_twice_and_chooses_its_encoding_once(
    tmp_path: Path, calls: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """For its digest with what the header says, and to decode it."""
    chosen = []
    choose = image_cache._choose_decoding
    monkeypatch.setattr(image_cache, "_choose_decoding", lambda *given: chosen.append(choose(*given)) or chosen[-1])
    root = two_domains(tmp_path / "tree")
    calls.clear()
    load_images(root, QUIET)
    assert calls["open"] == 2 * 8
    assert len(chosen) == 1


def test_a_run_after_prepare_opens_no_image_file(
    tmp_path: Path, calls: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """From its start over training to the evaluation at its end."""
    root = big_tree(tmp_path / "tree")
    later = time.time_ns() + 60 * 10**9
    monkeypatch.setattr(time, "time_ns", lambda: later)  # files that have just changed may change again unnoticed
    prepare_images(root, QUIET)
    calls.clear()
    options = {"backbone": "small_cnn", "image_size": 8, "steps": 2, "batch_size": 2}
    spec = RunSpec(dataset=str(root), algorithm="erm", test_domains="domain0", **options)  # type: ignore[arg-type]
    assert train(spec, tmp_path / "runs", device="cpu", progress=False).status == "done"
    assert calls["open"] == calls["listdir"] == 0
    assert calls["scandir"] == FOLDERS


def test_prepared_or_not_the_dataset_is_the_same(tmp_path: Path) -> None:
    layout = {"art": {"cat": ["1.png"], "dog": ["1.jpg", "2.png"], "eel": []}, "photo": {"dog": ["1.png"]}}
    root = make_folder(tmp_path / "pets", layout)
    (root / "art" / "cat" / "x.gif").touch()
    truncate(root / "art" / "dog" / "2.png")
    options = LoadOptions(image_size=8, progress=False, skip_unreadable=True)
    unprepared = load_images(root, options)
    assert len(unprepared.notes) == 4
    prepare_images(root, options)
    assert same(load_images(root, options), unprepared)
    with pytest.raises(UserError, match=r"art/dog/2\.png.*--skip-unreadable"):
        load_images(root, QUIET)


def test_prepare_says_where_everything_is(tmp_path: Path) -> None:
    root = two_domains(tmp_path / "pets")
    options = LoadOptions(image_size=8, progress=False, cache=tmp_path / "local")
    lines = prepare_images(root, options)
    assert lines[0] == "pets: 8 images in 2 classes (art 4, photo 4)."
    assert lines[1].startswith(f"Decoded for 8 px as pixels: {tmp_path}/local/decoded/")
    assert not (tmp_path / "cache").exists()
    assert len(load_images(root, options).domains) == 2


def test_a_cache_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"file.*Not a directory"):
        prepare_images(
            two_domains(tmp_path / "pets"), LoadOptions(image_size=8, progress=False, cache=tmp_path / "file")
        )
