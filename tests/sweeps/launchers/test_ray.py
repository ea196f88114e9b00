"""Runs as Ray tasks, on real clusters: one that is started here, and one of two nodes that loses one."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from fgmix.errors import UserError
from fgmix.sweeps.folder import is_locked
from fgmix.sweeps.running import run_sweeps
from fgmix.sweeps.status import read_status
from fgmix.sweeps.sweep import Sweep, plan
from sweeps.toys import Here, make_data, records, sessions, tables, toy_sweep

ray = pytest.importorskip("ray")

from fgmix.sweeps.launchers.ray import _everywhere, run_ray  # noqa: E402 (only where ray is installed)

# Ray's own sockets and processes, which it leaves to the collector.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")


def longer(data: str) -> Sweep:
    """Runs that take seconds and checkpoint often."""
    common = {"steps": 1500, "eval_every": 100, "checkpoint_every": 20, "averaging_start": 50}
    return toy_sweep(data, "erm", "coral", common=common)


@pytest.fixture
def two_nodes(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A head without cores, which lives, and two workers of one core each.

    127.0.0.2 is this machine, too; for 127.0.0.1 Ray would put the address of the network card.
    """
    from ray.cluster_utils import Cluster

    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    arguments = {"num_cpus": 0, "node_ip_address": "127.0.0.2", "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=arguments)
    nodes = [cluster.add_node(num_cpus=1, node_ip_address="127.0.0.2") for _ in range(2)]
    cluster.wait_for_nodes()
    yield cluster, nodes
    ray.shutdown()
    cluster.shutdown()


def test_paths_hold_wherever_a_task_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    spec = plan(toy_sweep(make_data(tmp_path)))[0].spec
    relative = replace(spec, dataset="scans.npz", data_root="data", weights="w.pt")
    absolute = _everywhere(relative)
    assert (absolute.dataset, absolute.data_root, absolute.weights) == tuple(
        str(tmp_path / name) for name in ("scans.npz", "data", "w.pt")
    )
    assert _everywhere(replace(spec, dataset="digits")).dataset == "digits"  # a name is no path


@pytest.mark.long
def test_a_cluster_that_is_started_here(tmp_path: Path) -> None:
    sweep = toy_sweep(make_data(tmp_path), "erm", "l2a_ot")
    result = run_sweeps([sweep], tmp_path / "out", run_ray, progress=False)
    assert not ray.is_initialized()
    assert (len(result.done), len(result.failed)) == (3, 3)  # l2a_ot cannot work on feature vectors
    run_sweeps([toy_sweep(make_data(tmp_path), "erm")], tmp_path / "here", Here(), progress=False)
    assert records(tmp_path / "out") == records(tmp_path / "here")


@pytest.mark.long
def test_a_node_that_dies_takes_no_result_with_it(two_nodes: Any, tmp_path: Path) -> None:
    """Both nodes work on a run each; one is killed: its run goes on elsewhere, from its checkpoint."""
    cluster, nodes = two_nodes
    data = make_data(tmp_path)
    out = tmp_path / "out"
    seen: list[Any] = []

    def launch(runs: Any, folder: Path, report: Any) -> Any:
        return run_ray(runs, folder, lambda outcome: (report(outcome), kill_one(outcome)), address=cluster.address)  # type: ignore[func-returns-value]

    def kill_one(outcome: Any) -> None:
        """After the first result, when both nodes are in the middle of a run."""
        seen.append(outcome)
        if len(seen) == 1:
            deadline = time.monotonic() + 120
            while sum(is_locked(f) and (f / "checkpoint.pt").exists() for f in out.glob("scans-*")) < 2:
                assert time.monotonic() < deadline
            cluster.remove_node(nodes[0], allow_graceful=False)

    result = run_sweeps([longer(data)], out, launch, progress=False)
    assert (len(result.done), len(result.failed)) == (6, 0)
    assert read_status(out).counts == {"done": 6}
    run_sweeps([longer(data)], tmp_path / "undisturbed", Here(), progress=False)
    assert records(out) == records(tmp_path / "undisturbed")
    assert tables(out) == tables(tmp_path / "undisturbed")
    assert any(session["first_step"] > 0 for session in sessions(out))  # a killed run went on, it did not start anew


def test_a_cluster_that_is_not_there(tmp_path: Path) -> None:
    launch = partial(run_ray, address="127.0.0.1:1")
    with pytest.raises(UserError, match=r"Expected a Ray cluster at 127\.0\.0\.1:1"):
        run_sweeps([toy_sweep(make_data(tmp_path))], tmp_path / "out", launch, progress=False)


@pytest.mark.parametrize("address", ["localhost:abc", "localhost:", "localhost:99999", "ray://localhost:-1"])
def test_an_address_without_a_port(tmp_path: Path, address: str) -> None:
    with pytest.raises(UserError, match="`address` should be HOST:PORT"):
        run_ray([], tmp_path, address=address)
