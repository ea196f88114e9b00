"""`prepare_images`: afterwards a start looks at folders, not at files."""

from __future__ import annotations

import builtins
import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from copying import replace
from data.pictures import make_folder, picture, truncate, two_domains
from fgmix.data import DomainDataset, LoadOptions, image_cache
from fgmix.data.image_dataset import _read_listing, load_images, prepare_images
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


def test_a_start_after_prepare_looks_at_folders_only(tmp_path: Path, calls: Counter[str]) -> None:
    root = big_tree(tmp_path / "tree")
    prepare_images(root, QUIET)
    assert calls["stat"] >= DOMAINS * CLASSES * EACH  # the watch sees what a full reading does
    assert calls["scandir"] == FOLDERS
    full = load_images(root, QUIET)
    calls.clear()
    dataset = load_images(root, QUIET)
    assert dataset.fingerprint == full.fingerprint
    assert [len(domain) for domain in dataset.domains] == [CLASSES * EACH] * DOMAINS
    assert calls["open"] == calls["scandir"] == calls["listdir"] == 0
    assert calls["stat"] <= FOLDERS + 10  # each folder, and the root a few times more


def test_a_run_after_prepare_opens_no_image_file(tmp_path: Path, calls: Counter[str]) -> None:
    """From its start over training to the evaluation at its end."""
    root = big_tree(tmp_path / "tree")
    prepare_images(root, QUIET)
    calls.clear()
    options = {"backbone": "small_cnn", "image_size": 8, "steps": 2, "batch_size": 2}
    spec = RunSpec(dataset=str(root), algorithm="erm", test_domains="domain0", **options)  # type: ignore[arg-type]
    assert train(spec, tmp_path / "runs", device="cpu", progress=False).status == "done"
    assert calls["open"] == calls["scandir"] == calls["listdir"] == 0
    assert calls["stat"] <= FOLDERS + 10  # each folder, and the root a few times more


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
    (listing,) = (tmp_path / "local" / "prepared").iterdir()
    assert lines[0] == "pets: 8 images in 2 classes (art 4, photo 4)."
    assert lines[1].startswith(f"Decoded for 8 px as pixels: {tmp_path}/local/decoded/")
    assert str(listing) in lines[2]
    assert not (tmp_path / "cache").exists()
    assert len(load_images(root, options).domains) == 2


@pytest.mark.parametrize(
    "change",
    [
        lambda root: picture(50).save(root / "art" / "cat" / "new.png"),
        lambda root: (root / "art" / "cat" / "1.png").unlink(),
        lambda root: (root / "art" / "cat" / "1.png").rename(root / "art" / "cat" / "9.png"),
        lambda root: (root / "art" / "cat").rename(root / "art" / "puma"),
        lambda root: make_folder(root, {"sketch": {"cat": ["1.png"], "dog": ["1.png"]}}),
    ],
    ids=["added", "removed", "renamed", "class renamed", "domain added"],
)
def test_a_changed_folder_is_read_in_full_and_noted(
    tmp_path: Path, change: Callable[[Path], object], capsys: pytest.CaptureFixture[str]
) -> None:
    """Once, and not among the notes of the data, which every record has: they say nothing of a machine's files."""
    root = two_domains(tmp_path / "pets")
    for folder in (root, root / "art", root / "art" / "cat"):
        os.utime(folder, (1, 1))  # long ago, so that the change shows on any clock
    prepare_images(root, QUIET)
    change(root)
    dataset, _ = (load_images(root, replace(QUIET, progress=True)) for _ in range(2))
    (note,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("note: Changed since")]
    assert note.endswith("Prepare again.")
    prepare_images(root, QUIET)
    assert same(load_images(root, QUIET), dataset)


def test_another_image_size_uses_what_was_prepared_once_it_is_decoded(tmp_path: Path, calls: Counter[str]) -> None:
    root = two_domains(tmp_path / "tree")
    prepare_images(root, QUIET)
    other = LoadOptions(image_size=9, progress=False)
    built = load_images(root, other)
    calls.clear()
    assert same(load_images(root, other), built)
    assert calls["open"] == 0


def test_a_damaged_list_is_reported_and_not_used(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = two_domains(tmp_path / "pets")
    prepare_images(root, QUIET)
    dataset = load_images(root, QUIET)
    (listing,) = (tmp_path / "cache" / "prepared").iterdir()
    listing.write_bytes(listing.read_bytes()[:-2])
    assert same(load_images(root, QUIET), dataset)
    assert f"{listing}. Found other bytes: it is damaged. Every file is looked at" in capsys.readouterr().err


def test_names_of_any_bytes_survive(tmp_path: Path) -> None:
    layout = {"Réel": {"a b": ["été.png", os.fsdecode(b"\xff.png")]}, "日本": {"a b": ["x.png"]}}
    root = make_folder(tmp_path / "pets", layout)
    dataset = load_images(root, QUIET)
    prepare_images(root, QUIET)
    known = _read_listing(root, QUIET)
    assert known is not None
    files = [*sorted((root / "Réel" / "a b").iterdir()), root / "日本" / "a b" / "x.png"]
    assert [file.path for file in known[0].files] == files
    assert same(load_images(root, QUIET), dataset)


def test_a_cache_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"file.*Not a directory"):
        prepare_images(
            two_domains(tmp_path / "pets"), LoadOptions(image_size=8, progress=False, cache=tmp_path / "file")
        )
