"""Peak memory of small runs on images, each in a process of its own."""

from __future__ import annotations

import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

PER_STEP = 96  # images


def measure_memory(folder: Path | None, *, image_size: int = 64, steps: int = 10) -> Iterator[tuple[str, float]]:
    """Measure the peak megabytes of processes that import torch, take a step of a bare loop, and train on a folder of
    images, which are decoded before, or on `digits`."""
    dataset = "digits" if folder is None else str(folder.absolute())
    test = "photo" if folder is None else sorted(path.name for path in folder.iterdir() if path.is_dir())[-1]
    run = f"train({{!r}}, {dataset!r}, {test!r}, {image_size if folder else 0}, {steps})"
    works = {
        "import torch": "None",
        "a step in torch": f"take_bare_step({image_size})",
        "erm": run.format("erm"),
        "fgmix": run.format("fgmix"),
    }
    _measure(run.format("erm"))  # decodes
    for what, work in works.items():
        yield what, _measure(work)


def _measure(work: str) -> float:
    code = f"from benchmarks.memory import *; print_peak(lambda: {work})"
    return float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)


def print_peak(work: Callable[[], object]) -> None:
    """Do the work in this process, and print its peak memory."""
    work()
    print(read_peak())


def read_peak() -> float:
    """Peak resident memory of this process in megabytes.

    From /proc if it exists: `ru_maxrss` starts at the size of the parent process.
    """
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) / 1024
    unit = 1024**2 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


def take_bare_step(image_size: int) -> None:
    """Take a step of Adam on `small_cnn`, with random images."""
    from fgmix.networks.own import SmallCNN

    network = torch.nn.Sequential(features := SmallCNN(3), torch.nn.Linear(features.out_features, 7))
    optimizer = torch.optim.Adam(network.parameters())
    x, y = torch.randn(PER_STEP, 3, image_size, image_size), torch.arange(PER_STEP) % 7
    torch.nn.functional.cross_entropy(network(x), y).backward()
    optimizer.step()


def train(algorithm: str, dataset: str, test_domain: str, image_size: int, steps: int) -> None:
    """Train `small_cnn` on all domains but one, quietly."""
    import fgmix
    from fgmix.records.schema import RunSpec

    common = {"test_domains": (test_domain,), "steps": steps, "backbone": "small_cnn", "image_size": image_size}
    with TemporaryDirectory() as out:
        fgmix.train(RunSpec(dataset=dataset, algorithm=algorithm, **common), out, device="cpu", progress=False)
