"""Two tiny finished runs, opened: ERM, and FGMix with the same seed and network. Tests import the fixtures."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from copying import replace
from fgmix.algorithms import Algorithm
from fgmix.data import Domain
from fgmix.data.dataset import Indices
from fgmix.records.evaluations import Score
from fgmix.training.evaluate import Subset, score_subsets
from fgmix.training.loop import train
from fgmix.training.open_run import OpenedRun, open_run
from training.killed_run import toy_data, toy_spec

SETTINGS = {"fgmix": {"tau": 0.2, "n": 8, "directions": 5, "eta2": 1e-2}}


def make(algorithm: str, out: Path) -> OpenedRun:
    spec = replace(toy_spec(algorithm), settings=SETTINGS.get(algorithm, {}))
    record = train(spec, out, dataset=toy_data(), device="cpu", progress=False)
    assert record.folder is not None
    return open_run(record.folder, dataset=toy_data())


def score_domain(algorithm: Algorithm, domain: Domain, indices: Indices) -> Score:
    """Score an algorithm in evaluation mode on samples of a domain."""
    cpu = torch.device("cpu")
    return score_subsets({"raw": algorithm.start_test}, [Subset(domain, indices)], cpu, algorithm.n_classes)["raw"][0]


@pytest.fixture(scope="session")
def erm(tmp_path_factory: pytest.TempPathFactory) -> OpenedRun:
    return make("erm", tmp_path_factory.mktemp("erm"))


@pytest.fixture(scope="session")
def mixing(tmp_path_factory: pytest.TempPathFactory) -> OpenedRun:
    return make("fgmix", tmp_path_factory.mktemp("fgmix"))
