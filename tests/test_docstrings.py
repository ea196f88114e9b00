"""Every example in a docstring runs and gives what it says."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import fgmix

# packages of extras
OPTIONAL = {"ray", "submitit", "onnx", "onnxruntime", "selenium", "tensorboard", "wandb", "mlflow", "pyarrow"}
MODULES = sorted(
    module.name for module in pkgutil.walk_packages(fgmix.__path__, "fgmix.") if not module.name.endswith("__main__")
)


@pytest.mark.parametrize("name", MODULES)
def test_examples(name: str) -> None:
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name not in OPTIONAL:
            raise
        pytest.skip(f"needs {error.name}")
    assert doctest.testmod(module).failed == 0


def test_there_are_examples() -> None:
    """The finder sees them: a rename of the package must not turn the test above into nothing."""
    finder = doctest.DocTestFinder(exclude_empty=True)
    found = [t for name in ("fgmix.records.schema", "fgmix.training.loop") for t in finder.find(_module(name))]
    assert sum(len(test.examples) for test in found) > 5


def _module(name: str) -> object:
    return importlib.import_module(name)
