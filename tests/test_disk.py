"""A full disk: one sentence with the file and its size, exit code 2, and the same command resumes."""

from __future__ import annotations

import errno
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fgmix.sweeps.launchers import local
from sweeps.toys import Here, records
from workbench import Workbench, fgmix, words_of

SIZE = 3_000_000  # bytes of the small disk
FULL = r"fgmix: .*{path}.* \(\d[\d.]* (bytes|kB|MB)\).*disk is full"  # the file, its size, the reason
TRAIN = (
    "train --dataset {arrays} --algorithm erm --test-domain us --steps 30 --eval-every 10 --checkpoint-every 5 "
    "--averaging none --device cpu --quiet --keep best --out {new}"
)
SWEEP = (
    "sweep --datasets {arrays} --algorithms erm --trials 1 --hparams 1 --steps 4 --averaging none "
    "--keep best --device cpu --out {new}"
)
COMMANDS = {
    "train": TRAIN,
    "fit": "fit {arrays} --algorithm erm --steps 2 --no-estimate --device cpu --quiet --out {new}",
    "sweep": SWEEP,
    "report": "report {sweep} --format html --out {new}/report.html",
    "domainbed": "report {sweep} --to-domainbed {new}",
    "predict": "predict {model} {arrays} --quiet --out {new}/p.csv",
    "export": "export {model} --format pt2 --out {new}/m.pt2",
    "pack": "report {sweep} --pack {new}/all.records.xz",
    "soup": "soup {erm} {fgmix} --device cpu --quiet --out {new}/soup",
    "plot": "plot results {erm} --kind curves --out {new}",
    "plot in rows": "plot flatness {erm} --directions 2 --samples 5 --out {new}",
}


@pytest.fixture(autouse=True)
def _workers_are_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    def here(runs: Any, out: Path, report: Any, **_: Any) -> Any:
        return Here()(runs, out, report)

    monkeypatch.setattr(local, "run_local", here)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 3 MB, where this process may mount one."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = shutil.which("mount")
    options = ["-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs"]
    if mount is None or os.geteuid() or subprocess.run([mount, *options, disk], capture_output=True).returncode:
        pytest.skip("no small disk can be mounted here")
    yield disk
    subprocess.run(["umount", disk], check=True)


def fill(disk: Path, free: int) -> Path:
    """Write a file that leaves `free` bytes."""
    filler = disk / "filler"
    filler.write_bytes(bytes(max(0, shutil.disk_usage(disk).free - free)))
    return filler


def whole_files(folder: Path) -> bool:
    return not [path for path in folder.rglob("*") if ".tmp" in path.name]


@pytest.mark.parametrize("name", COMMANDS)
def test_a_disk_that_is_full_from_the_start(
    name: str, bench: Workbench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def no_space(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    (tmp_path / "new").mkdir()
    words = words_of(COMMANDS[name], bench, new=tmp_path / "new")
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", no_space)
        assert fgmix(*words) == 2
    (sentence,) = (line for line in capsys.readouterr().err.splitlines() if line.startswith("fgmix: "))
    assert re.match(FULL.format(path=re.escape(str(tmp_path / "new"))), sentence)
    assert whole_files(tmp_path)
    assert fgmix(*words) == 0


def test_other_commands_on_a_small_disk(bench: Workbench, small_disk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Really full, unlike above: for the first write, or for a large one after small ones."""
    full = {"domainbed": 0, "pack": 0, "predict": 0, "report": 20_000, "export": 20_000, "soup": 20_000, "plot": 20_000}
    for name, free in full.items():
        new = small_disk / "new"
        new.mkdir()
        filler = fill(small_disk, free)
        assert fgmix(*words_of(COMMANDS[name], bench, new=new)) == 2, name
        (sentence,) = (line for line in capsys.readouterr().err.splitlines() if line.startswith("fgmix: "))
        assert re.match(FULL.format(path=re.escape(str(new))), sentence)
        assert whole_files(small_disk)
        shutil.rmtree(new)
        filler.unlink()


def test_images_on_a_small_disk(
    bench: Workbench,
    small_disk: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """What is decoded is named with the space that it needs before anything is written."""
    archive = tmp_path / "pacs.zip"
    with zipfile.ZipFile(archive, "w") as pictures:
        for domain in ("art_painting", "cartoon", "photo", "sketch"):
            pictures.writestr(f"{domain}/dog/1.png", bytes(100_000))
    monkeypatch.setenv("FGMIX_CACHE", str(small_disk / "cache"))
    options = "--algorithms erm --trials 1 --hparams 1 --steps 2 --device cpu --out {new}"
    small = "--backbone small_cnn --image-size 8"
    commands = {
        "data prepare {images} --image-size 8 --quiet": r"decoded images.*cache.*set FGMIX_CACHE",
        f"plan --datasets {{images}} {small} {options}": r"decoded images.*cache.*set FGMIX_CACHE",
        f"data download PACS --archive {archive} --data-root {{new}} --quiet": r"The disk is full",
    }
    fill(small_disk, 0)
    for words, sentence in commands.items():
        assert fgmix(*words_of(words, bench, new=small_disk / "new")) == 2, words
        assert re.search(sentence, capsys.readouterr().err), words
        assert whole_files(small_disk)
    assert fgmix(*words_of(f"plan --datasets {{arrays}} {options}", bench, new=small_disk / "sweep")) == 0
    assert not (small_disk / "sweep").exists()  # a plan writes nothing


@pytest.mark.parametrize("free", [0, 300_000, 1_200_000, 1_900_000])
def test_training_on_a_small_disk_resumes_once_there_is_space(
    free: int, bench: Workbench, small_disk: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    filler = fill(small_disk, free)
    words = words_of(TRAIN, bench, new=small_disk / "runs")
    assert fgmix(*words) == 2
    assert re.match(FULL.format(path=re.escape(str(small_disk / "runs"))), capsys.readouterr().err)
    assert whole_files(small_disk)
    filler.unlink()
    assert fgmix(*words) == 0
    assert fgmix(*words_of(TRAIN, bench, new=tmp_path / "undisturbed")) == 0
    assert records(small_disk / "runs") == records(tmp_path / "undisturbed")


def test_a_sweep_on_a_small_disk_stops_and_resumes(
    bench: Workbench, small_disk: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """There is space for its first run and for no other."""
    filler = fill(small_disk, 1_250_000)
    out = small_disk / "sweep"
    words = words_of(SWEEP, bench, new=out)
    assert fgmix(*words) == 1
    printed = capsys.readouterr()
    assert printed.out.startswith("1 runs done")
    assert re.search(r"fgmix: 2 runs .*disk is full", printed.err)
    assert not list(out.glob("*/error.json"))
    filler.unlink()
    assert fgmix(*words) == 0
    assert fgmix(*words_of(SWEEP, bench, new=tmp_path / "undisturbed")) == 0
    assert records(out) == records(tmp_path / "undisturbed")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no device that is always full")
def test_an_output_that_is_full() -> None:
    """Python itself would print a traceback at its end, when it writes what is left."""
    with open("/dev/full", "w") as full:
        command = [Path(sys.executable).with_name("fgmix"), "--version"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 2
    assert done.stderr.startswith("fgmix: ")
    assert "disk is full" in done.stderr
    assert done.stderr.count("\n") == 1
