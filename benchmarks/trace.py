"""Trace one `fgmix train` on 60 images: the functions, files and changes of package that a reader follows.

Run `python -m benchmarks.trace` at the top of the repository; `--list` prints each function in first-call order.
"""

from __future__ import annotations

import inspect
import os
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from types import CodeType, FrameType

import numpy as np
from PIL import Image

import fgmix

SOURCE = Path(fgmix.__file__).parent
DOMAINS, CLASSES, IMAGES = ("art", "photo", "sketch"), ("cat", "dog"), 10
OPTIONS = (
    "train --dataset images --algorithm erm --test-domain sketch --out runs --backbone small_cnn --no-pretrained "
    "--image-size 32 --steps 2 --batch-size 4 --device cpu"
)


def trace_functions(action: Callable[[], object]) -> list[CodeType]:
    """Return the functions of fgmix that `action` runs, in the order of their first calls, from all threads."""
    seen: dict[CodeType, None] = {}

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            seen.setdefault(frame.f_code)

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        action()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]  # which typeshed does not allow for
    return [code for code in seen if is_function(code) and Path(code.co_filename).is_relative_to(SOURCE)]


def is_function(code: CodeType) -> bool:
    """Tell a named function from modules, class bodies, lambdas and comprehensions."""
    return bool(code.co_flags & inspect.CO_OPTIMIZED) and not code.co_name.startswith("<")


def name_package(code: CodeType) -> str:
    """Return the room of a function: the folder or the module below fgmix."""
    return Path(code.co_filename).relative_to(SOURCE).parts[0]


def write_images(folder: Path) -> None:
    """Write 60 images of noise: 3 domains of 2 classes of 10."""
    rng = np.random.default_rng(0)
    for domain in DOMAINS:
        for class_name in CLASSES:
            (folder / domain / class_name).mkdir(parents=True)
            for i in range(IMAGES):
                image = Image.fromarray(rng.integers(256, size=(32, 32, 3), dtype=np.uint8))
                image.save(folder / domain / class_name / f"{i}.png")


@contextmanager
def enter_empty_folder() -> Iterator[Path]:
    """Work in a new folder with an empty cache of images."""
    with tempfile.TemporaryDirectory() as name:
        before = Path.cwd()
        os.environ["FGMIX_CACHE"] = str(Path(name) / "cache")
        os.chdir(name)
        try:
            yield Path(name)
        finally:
            os.chdir(before)


def trace_train() -> list[CodeType]:
    """Return the functions of one `fgmix train` with a cold cache, without those that only run during imports."""
    from fgmix.cli import main

    for room in ("training.loop", "results.other_metrics"):
        import_module(f"fgmix.{room}")

    def run() -> None:
        try:
            main()
        except SystemExit as stop:  # which ends every command
            if stop.code:
                raise

    with enter_empty_folder() as folder:
        write_images(folder / "images")
        sys.argv = ["fgmix", *OPTIONS.split()]
        return trace_functions(run)


if __name__ == "__main__":
    verbose = "--list" in sys.argv
    functions = trace_train()
    if verbose:
        for code in functions:
            print(f"{Path(code.co_filename).relative_to(SOURCE)}:{code.co_firstlineno} {code.co_qualname}")
    packages = [name_package(code) for code in functions]
    changes = sum(before != after for before, after in pairwise(packages))
    files = {code.co_filename for code in functions}
    print(f"{len(functions)} functions in {len(files)} files, {changes} changes of package")
