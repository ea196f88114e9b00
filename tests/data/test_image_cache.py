"""The cache of decoded images: what it stores, when it is built, what may go wrong."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import socket
from multiprocessing.queues import SimpleQueue
from multiprocessing.synchronize import Barrier
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from data.pictures import picture, truncate
from fgmix.data import LoadOptions, images
from fgmix.data import image_cache as cache_module
from fgmix.data.dataset import fingerprint_of
from fgmix.data.image_cache import CachedImages, decode_images, read_contents
from fgmix.data.images import Change, Picture, stored_size
from fgmix.errors import UserError

pytestmark = pytest.mark.usefixtures("image_cache")
QUIET = LoadOptions(progress=False)


def save(folder: Path, n: int = 4) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{i}.png" for i in range(n)]
    for i, path in enumerate(paths):
        picture(i, width=12 + i).save(path)
    return paths


def build(files: list[Path], image_size: int = 8, *, skip_unreadable: bool = False) -> CachedImages:
    return decode_images(files, LoadOptions(image_size=image_size, skip_unreadable=skip_unreadable, progress=False))


@pytest.fixture
def decodings(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The files that were decoded."""
    seen: list[Path] = []
    original = images.decode

    def counted(path: Path, *how: str) -> Picture:
        seen.append(path)
        return original(path, *how)

    monkeypatch.setattr(images, "decode", counted)
    return seen


def entries(cache: Path) -> list[str]:
    return sorted(path.name for path in (cache / "decoded").iterdir() if not path.name.endswith(".lock"))


# what is stored


def test_images_come_back_as_they_were(tmp_path: Path, image_cache: Path) -> None:
    files = save(tmp_path / "in")
    built = build(files, image_size=64)  # nothing to reduce
    assert len(built) == 4
    for i in range(4):
        np.testing.assert_array_equal(built[i], np.asarray(picture(i, width=12 + i)))
    assert built.widths.tolist() == [12, 13, 14, 15]
    assert len(entries(image_cache)) == 1


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        ((640, 480), (103, 77)),  # ⌈64/√0.7⌉ = 77
        ((77, 200), (77, 200)),
        ((78, 78), (77, 77)),
        ((10, 3), (10, 3)),  # never enlarged
    ],
)
def test_shorter_side_is_reduced_to_what_the_smallest_crop_needs(
    tmp_path: Path, size: tuple[int, int], expected: tuple[int, int]
) -> None:
    assert stored_size(*size, image_size=64) == expected
    picture(0, *size).save(tmp_path / "x.png")
    assert build([tmp_path / "x.png"], image_size=64)[0].shape == (expected[1], expected[0], 3)


def test_reduction_is_antialiased(tmp_path: Path) -> None:
    """Stripes one pixel wide become their mean, not one of the two colours."""
    stripes = np.zeros((160, 160, 3), np.uint8)
    stripes[:, ::2] = 255
    Image.fromarray(stripes).save(tmp_path / "stripes.png")
    inner = build([tmp_path / "stripes.png"], image_size=16)[0][:, 3:-3].astype(float)
    assert inner.mean() == pytest.approx(127.5, abs=3)
    assert inner.std() < 15


# when it is built


def test_second_time_decodes_nothing(tmp_path: Path, decodings: list[Path]) -> None:
    files = save(tmp_path / "in")
    first = build(files)
    assert sorted(decodings) == files
    decodings.clear()
    second = build(files)
    assert decodings == []
    np.testing.assert_array_equal(first.pixels, second.pixels)


def test_cache_follows_content_not_place(tmp_path: Path, decodings: list[Path]) -> None:
    files = save(tmp_path / "in")
    build(files)
    decodings.clear()
    shutil.copytree(tmp_path / "in", tmp_path / "copy")
    build([tmp_path / "copy" / path.name for path in files])
    assert decodings == []


def test_another_content_order_or_size_gives_another_key(tmp_path: Path, image_cache: Path) -> None:
    files = save(tmp_path / "in")
    keys = [build(files).key, build(files, image_size=9).key, build(files[::-1]).key]
    picture(50, width=12).save(files[0])
    keys.append(build(files).key)
    assert len(set(keys)) == 4
    assert entries(image_cache) == sorted(keys)


def test_fractions_of_images_give_another_key_than_the_folder_s(tmp_path: Path, image_cache: Path) -> None:
    """A cache of whole images, as earlier versions made it in the same folder, is other data."""
    picture(0, 400, 400).save(tmp_path / "x.jpg")
    built = build([tmp_path / "x.jpg"], image_size=64)
    assert built.changes.tolist() == [Change.FRACTION]
    assert [built.key] != entries(image_cache)
    assert build([tmp_path / "x.jpg"], image_size=64).key == built.key
    assert build([tmp_path / "x.jpg"], image_size=224).key in entries(image_cache)


def test_old_files_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = save(tmp_path / "in")
    later = cache_module.time.time_ns() + 60 * 10**9
    monkeypatch.setattr(cache_module.time, "time_ns", lambda: later)
    before = read_contents(files, QUIET)
    with monkeypatch.context() as patch:
        patch.setattr(cache_module, "inspect_file", lambda path, _: pytest.fail(f"{path} is read again"))
        assert read_contents(files, QUIET) == before
    stat = files[0].stat()
    while files[0].stat().st_ctime_ns == stat.st_ctime_ns:  # until the file system's clock ticks: milliseconds
        files[0].write_bytes(files[0].read_bytes()[:-1] + b"!")  # same size …
        os.utime(files[0], ns=(stat.st_atime_ns, stat.st_mtime_ns))  # … and modification time
    assert read_contents(files, QUIET) != before


def test_files_just_written_are_not_remembered(tmp_path: Path, image_cache: Path) -> None:
    read_contents(save(tmp_path / "in"), QUIET)
    assert not (image_cache / "contents").exists()


def left_over(finished: Path, host: str) -> Path:
    """Make a finished cache look like one that was killed half-way on a machine."""
    left = finished.with_suffix(f".{host}.0123.tmp")
    finished.rename(left)
    truncate(left / "images.bin")
    return left


def test_leftovers_of_a_killed_build_are_replaced(tmp_path: Path, image_cache: Path) -> None:
    files = save(tmp_path / "in")
    finished = build(files)
    pixels = finished.pixels.tobytes()
    left_over(finished.file.parent, socket.gethostname().replace(".", "_"))
    assert build(files).pixels.tobytes() == pixels
    assert entries(image_cache) == [finished.key]


def test_a_build_of_another_machine_is_left_alone_until_it_is_old(tmp_path: Path, image_cache: Path) -> None:
    """Its lock may be out of our sight."""
    files = save(tmp_path / "in")
    left = left_over(build(files).file.parent, "elsewhere")
    finished = build(files)
    assert entries(image_cache) == [finished.key, left.name]
    for path in (*left.iterdir(), left):
        os.utime(path, (0, 0))
    shutil.rmtree(finished.file.parent)
    assert build(files).key == finished.key
    assert entries(image_cache) == [finished.key]


def test_two_machines_that_build_at_once_agree(
    tmp_path: Path, image_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a common lock, the second to finish uses what the first has put in place."""
    files = save(tmp_path / "in")
    write = cache_module.write_arrays

    def overtaken(path: Path, content: object) -> None:
        monkeypatch.undo()
        monkeypatch.setenv("FGMIX_CACHE", str(image_cache))
        write(path, content)
        shutil.copytree(path.parent, path.parent.with_name(path.parent.name.partition(".")[0]))
        monkeypatch.setattr(cache_module.shutil, "rmtree", lambda *_, **__: None)  # which would clear the way

    monkeypatch.setattr(cache_module, "write_arrays", overtaken)
    np.testing.assert_array_equal(build(files, image_size=64)[0], np.asarray(picture(0, width=12)))


FORK = multiprocessing.get_context("fork")  # milliseconds, where a fresh interpreter imports torch for seconds


def build_in_process(files: list[Path], kill_at: int, barrier: Barrier, results: SimpleQueue) -> None:
    """Build once all processes are ready; report what came out and how many files this process decoded."""
    seen: list[Path] = []
    original = images.decode

    def watched(path: Path, *how: str) -> Picture:
        seen.append(path)
        if 0 < kill_at <= len(seen):
            os.kill(os.getpid(), signal.SIGKILL)
        return original(path, *how)

    images.decode = watched
    barrier.wait()
    built = build(files)
    results.put((built.key, fingerprint_of([built.pixels]), len(seen)))


def run_processes(files: list[Path], kill_at: list[int]) -> tuple[list[int], list[tuple[str, str, int]]]:
    """Exit codes and results of processes that start at once; process i kills itself at its kill_at[i]-th file."""
    barrier, results = FORK.Barrier(len(kill_at)), FORK.SimpleQueue()
    processes = [FORK.Process(target=build_in_process, args=(files, n, barrier, results)) for n in kill_at]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    codes = [process.exitcode for process in processes]
    return codes, [results.get() for code in codes if code == 0]


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_of_several_processes_one_builds_and_all_use_it(tmp_path: Path, image_cache: Path) -> None:
    files = save(tmp_path / "in", n=20)
    codes, results = run_processes(files, kill_at=[0, 0, 0])
    assert codes == [0, 0, 0]
    assert sorted(n for _, _, n in results) == [0, 0, 20]
    built = build(files)
    assert {(key, pixels) for key, pixels, _ in results} == {(built.key, fingerprint_of([built.pixels]))}
    assert entries(image_cache) == [built.key]


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_killed_build_leaves_no_cache_and_no_lock(tmp_path: Path, image_cache: Path) -> None:
    files = save(tmp_path / "in", n=20)
    codes, _ = run_processes(files, kill_at=[10])
    assert codes == [-signal.SIGKILL]
    (half,) = entries(image_cache)
    assert half.endswith(".tmp")
    codes, ((key, pixels, n),) = run_processes(files, kill_at=[0])
    assert (codes, n) == ([0], 20)
    shutil.rmtree(image_cache)
    never_killed = build(files)
    assert (key, pixels) == (never_killed.key, fingerprint_of([never_killed.pixels]))


# what may go wrong


def broken_files(folder: Path) -> dict[str, Path]:
    folder.mkdir()
    picture(0, 200, 200).save(folder / "truncated.jpg")
    truncate(folder / "truncated.jpg")
    (folder / "text.png").write_text("this is no image")
    (folder / "empty.jpg").touch()
    (folder / "dangling.png").symlink_to(folder / "absent.png")
    return {path.stem: path for path in folder.iterdir()}


@pytest.mark.parametrize("kind", ["truncated", "text", "empty", "dangling"])
def test_a_broken_file_stops_with_its_path(tmp_path: Path, image_cache: Path, kind: str) -> None:
    path = broken_files(tmp_path / "broken")[kind]
    with pytest.raises(UserError, match=rf"{path}.*cannot be decoded.*--skip-unreadable"):
        build([*save(tmp_path / "in"), path])
    assert entries(image_cache) == []


def test_broken_files_can_be_skipped(tmp_path: Path) -> None:
    good = save(tmp_path / "in")
    files = [good[0], *broken_files(tmp_path / "broken").values(), *good[1:]]
    built = build(files, image_size=64, skip_unreadable=True)
    assert built.readable.tolist() == [0, 5, 6, 7]
    for row, i in zip(built.readable, range(4)):
        np.testing.assert_array_equal(built[row], np.asarray(picture(i, width=12 + i)))
    with pytest.raises(UserError, match="cannot be decoded"):  # the cache exists now, but skipping was not asked for
        build(files, image_size=64)


def test_nothing_readable_is_empty_not_a_crash(tmp_path: Path) -> None:
    built = build(list(broken_files(tmp_path / "broken").values()), skip_unreadable=True)
    assert len(built.readable) == 0


def test_lack_of_memory_is_no_reason_to_skip_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def out_of_memory(*_: object) -> Picture:
        raise MemoryError

    monkeypatch.setattr(images, "decode", out_of_memory)
    with pytest.raises(MemoryError):
        build(save(tmp_path / "in"), skip_unreadable=True)


@pytest.mark.parametrize("limit", [100, 60])  # Pillow warns above the limit and refuses above twice the limit
def test_decompression_bombs_are_unreadable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", limit)
    picture(0, width=13, height=10).save(tmp_path / "bomb.png")
    with pytest.raises(UserError, match=r"bomb\.png.*announces more than .* pixels"):
        build([tmp_path / "bomb.png"])


def test_a_cache_that_cannot_be_written_names_the_way_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("FGMIX_CACHE", str(tmp_path / "file"))
    with pytest.raises(UserError, match="set FGMIX_CACHE"):
        build(save(tmp_path / "in"))


def test_a_full_disk_names_the_way_out_and_leaves_nothing(
    tmp_path: Path, image_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(cache_module.os, "fsync", full)
    with pytest.raises(UserError, match=r"No space left on device.*FGMIX_CACHE"):
        build(save(tmp_path / "in"))
    assert entries(image_cache) == []


def test_too_little_room_is_seen_before_decoding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, decodings: list[Path]
) -> None:
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(cache_module.shutil, "disk_usage", lambda _: usage._replace(free=100))
    with pytest.raises(UserError, match=r"decoded images.*FGMIX_CACHE"):
        build(save(tmp_path / "in"))
    assert decodings == []


def test_a_finished_cache_serves_even_if_read_only(
    tmp_path: Path, image_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is locked, made or written where everything is there."""
    files = save(tmp_path / "in")
    key = build(files).key
    before = {path: path.stat().st_mtime_ns for path in image_cache.rglob("*")}
    monkeypatch.setattr(cache_module, "wait_for_lock", lambda *_, **__: pytest.fail("locked"))
    assert build(files).key == key
    assert {path: path.stat().st_mtime_ns for path in image_cache.rglob("*")} == before
