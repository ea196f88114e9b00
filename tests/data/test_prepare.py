"""`prepare_images`: afterwards no image file is opened."""

from __future__ import annotations

import builtins
import os
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from data.pictures import make_folder, truncate, two_domains
from fgmix.data import LoadOptions, image_cache
from fgmix.data.image_dataset import load_images, prepare_images
from fgmix.errors import UserError
from fgmix.records.schema import RunSpec
from fgmix.training.loop import train

pytestmark = pytest.mark.usefixtures("image_cache")
QUIET = LoadOptions(image_size=8, progress=False)


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


def test_first_use_opens_an_image_three_times_and_chooses_its_encoding_once(
    tmp_path: Path, calls: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """For the depth of its values, for the digest and the size, and to decode it."""
    chosen = []
    choose = image_cache._choose_recipe
    monkeypatch.setattr(image_cache, "_choose_recipe", lambda *given: chosen.append(choose(*given)) or chosen[-1])
    root = two_domains(tmp_path / "tree")
    calls.clear()
    load_images(root, QUIET)
    assert calls["open"] == 3 * 8
    assert len(chosen) == 1


def test_a_run_after_prepare_opens_no_image_file(
    tmp_path: Path, calls: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """From its start over training to the evaluation at its end."""
    files = [f"{number}.png" for number in range(5)]
    layout = {domain: {"cat": files, "dog": files} for domain in ("art", "photo")}
    root = make_folder(tmp_path / "tree", layout)
    later = time.time_ns() + 60 * 10**9  # when the files are old enough for their digests to be kept
    monkeypatch.setattr(time, "time_ns", lambda: later)
    prepare_images(root, QUIET)
    calls.clear()
    options = {"backbone": "small_cnn", "image_size": 8, "steps": 2, "batch_size": 2}
    spec = RunSpec(dataset=str(root), algorithm="erm", test_domains="art", **options)  # type: ignore[arg-type]
    assert train(spec, tmp_path / "runs", device="cpu", progress=False).status == "done"
    assert calls["open"] == 0


def test_prepare_says_where_everything_is(tmp_path: Path) -> None:
    root = make_folder(
        tmp_path / "pets", {"art": {"cat": ["1.png"], "dog": ["1.jpg", "2.png"]}, "photo": {"dog": ["1.png"]}}
    )
    truncate(root / "art" / "dog" / "2.png")
    options = LoadOptions(image_size=8, progress=False, cache=tmp_path / "local", skip_unreadable=True)
    lines = prepare_images(root, options)
    assert lines[0] == "pets: 3 images in 2 classes (art 2, photo 1)."
    assert lines[1].startswith(f"Decoded for 8 px as pixels: {tmp_path}/local/decoded/")
    assert lines[2:] == list(load_images(root, options).notes)
    assert not (tmp_path / "cache").exists()


def test_names_of_any_bytes_are_read(tmp_path: Path) -> None:
    layout = {"Réel": {"a b": ["été.png", os.fsdecode(b"\xff.png")]}, "日本": {"a b": ["x.png"]}}
    dataset = load_images(make_folder(tmp_path / "pets", layout), QUIET)
    assert [len(domain) for domain in dataset.domains] == [2, 1]


def test_a_cache_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"file.*Not a directory"):
        prepare_images(
            two_domains(tmp_path / "pets"), LoadOptions(image_size=8, progress=False, cache=tmp_path / "file")
        )
