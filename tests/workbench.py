"""What a user has after a day's work, tiny: data, runs, a sweep, models. Made once; tests copy what they change."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import typer.main

from data.pictures import make_folder
from fgmix.cli import main
from fgmix.sweeps.execute import run_sweeps
from sweeps.toys import Here, make_data, toy_sweep

SHORT = ["--steps", "4", "--device", "cpu", "--quiet"]
build_parser = cache(typer.main.get_command)  # once a process instead of once a call: 33 ms


@dataclass(frozen=True)
class Workbench:
    """Where things are.

    Args:
        root: all of it.
        arrays: .npz file of features in three domains: ct, mr, us.
        images: folder of two domains, art and photo.
        erm: finished run, with snapshots.
        fgmix: finished run on the same data, with snapshots.
        sweep: folder of a sweep of erm and coral, one domain held out.
        model: fitted to the arrays.
        image_model: fitted to the images.
    """

    root: Path
    arrays: Path
    images: Path
    erm: Path
    fgmix: Path
    sweep: Path
    model: Path
    image_model: Path


def make(root: Path) -> Workbench:
    arrays = Path(make_data(root))
    names = [f"{i}.png" for i in range(4)]
    images = make_folder(root / "images", {d: {"cat": names, "dog": names} for d in ("art", "photo")})
    runs = root / "runs"
    fixed = ["--dataset", str(arrays), "--test-domain", "us", "--snapshots", "2", "--averaging-start", "2"]
    for algorithm in ("erm", "fgmix"):
        settings = ["--set", "tau=0.2", "--set", "directions=3"] if algorithm == "fgmix" else []
        succeed("train", "--algorithm", algorithm, *fixed, *settings, *SHORT, "--out", str(runs))
    run_sweeps([toy_sweep(str(arrays), "erm", "coral", test_domains=("us",))], root / "sweep", Here(), progress=False)
    fit = ["--algorithm", "erm", "--no-estimate", *SHORT]
    succeed("fit", str(arrays), *fit, "--out", str(root / "model"))
    small = ["--backbone", "small_cnn", "--image-size", "8"]
    succeed("fit", str(images), *fit, *small, "--out", str(root / "image_model"))
    (erm,), (fgmix,) = runs.glob("*-erm-*"), runs.glob("*-fgmix-*")
    return Workbench(root, arrays, images, erm, fgmix, root / "sweep", root / "model", root / "image_model")


def fgmix(*words: object) -> int:
    """Exit code of `fgmix words`, in this process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["fgmix", *map(str, words)])
        patch.setattr(typer.main, "get_command", build_parser)
        with pytest.raises(SystemExit) as stop:
            main()
    return int(stop.value.code or 0)


def succeed(*words: object) -> None:
    assert fgmix(*words) == 0, words


def save_npz(path: Path, **arrays: object) -> Path:
    np.savez(path, **{name: np.asarray(value) for name, value in arrays.items()})
    return path


def words_of(command: str, bench: Workbench, **places: object) -> Sequence[str]:
    """The words of a command in which {name} is a place on the workbench or one of `places`."""
    return [word.format(**vars(bench), **places) for word in command.split()]
