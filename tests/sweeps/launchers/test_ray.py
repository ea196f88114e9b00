"""Runs on Ray actors, on real clusters: one that is started here, and one of two nodes that loses one."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from copying import replace
from fgmix.errors import UserError
from fgmix.records.status import is_locked, read_status
from fgmix.sweeps.design import Sweep, plan
from fgmix.sweeps.execute import run_sweeps
from fgmix.sweeps.launchers import MAX_IN_A_ROW
from sweeps.toys import Here, make_data, records, sessions, tables, toy_sweep

ray = pytest.importorskip("ray")

from fgmix.sweeps.launchers.ray import Needs, RayPool, _check_needs, _make_paths_absolute, _select_variables, run_ray  # noqa: E402 (only where ray is installed)

# Ray's own sockets and processes, which it leaves to the collector.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")


def longer(data: str) -> Sweep:
    """Runs that take seconds and checkpoint often."""
    common = {"steps": 1500, "eval_every": 100, "checkpoint_every": 20, "averaging_start": 50}
    return toy_sweep(data, "erm", "coral", common=common, test_domains=("ct", "us"))


@pytest.fixture
def two_nodes(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A head without cores, which lives, and two workers of one core and one made-up GPU each.

    127.0.0.2 is this machine, too; for 127.0.0.1 Ray would put the address of the network card.
    """
    from ray.cluster_utils import Cluster

    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    arguments = {"num_cpus": 0, "node_ip_address": "127.0.0.2", "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=arguments)
    nodes = [cluster.add_node(num_cpus=1, num_gpus=1, node_ip_address="127.0.0.2") for _ in range(2)]
    cluster.wait_for_nodes()
    yield cluster, nodes
    ray.shutdown()
    cluster.shutdown()


@pytest.mark.parametrize(
    ("cpus", "gpus", "cores", "devices", "slots"),
    [
        (1, 0.0, 8, 4, 8),
        (3, 0.0, 8, 0, 2),
        (1, 1.0, 8, 4, 4),
        (4, 1.0, 8, 4, 2),
        (1, 2.0, 8, 5, 2),
        (1, 0.5, 8, 2, 4),
        (1, 0.4, 8, 2, 4),  # 0.2 of both is left
        (1, 1.0, 8, 0, 0),
    ],
)
def test_what_a_node_holds(cpus: int, gpus: float, cores: int, devices: int, slots: int) -> None:
    assert Needs(cpus, gpus, "auto").count_slots({"CPU": cores, **({"GPU": devices} if devices else {})}) == slots


def test_caches_and_hub_are_those_of_the_sweep(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in os.environ if name.startswith(("FGMIX_", "HF_", "TORCH_", "XDG_", "WANDB_"))]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    for name, value in {
        "FGMIX_CACHE": "cache",
        "FGMIX_DECODED_GB": "3",
        "HF_HUB_OFFLINE": "1",
        "HF_TOKEN": "secret",
        "WANDB_API_KEY": "secret",
        "WANDB_PROJECT": "mine",
        "TORCH_HOME": "/torch",
        "SHELL": "sh",
    }.items():
        monkeypatch.setenv(name, value)
    assert _select_variables() == {
        "FGMIX_CACHE": str(tmp_path / "cache"),
        "FGMIX_DECODED_GB": "3",
        "HF_HUB_OFFLINE": "1",
        "TORCH_HOME": "/torch",
        "WANDB_PROJECT": "mine",
    }


def test_paths_hold_wherever_a_task_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    spec = plan(toy_sweep(make_data(tmp_path)))[0].spec
    relative = replace(spec, dataset="scans.npz", data_root="data", weights="w.pt")
    absolute = _make_paths_absolute(relative)
    assert (absolute.dataset, absolute.data_root, absolute.weights) == tuple(
        str(tmp_path / name) for name in ("scans.npz", "data", "w.pt")
    )
    assert _make_paths_absolute(replace(spec, dataset="digits")).dataset == "digits"  # a name is no path


@pytest.fixture
def four_gpus() -> Iterator[None]:
    """A cluster of one node with four made-up GPUs."""
    ray.init(address="local", num_cpus=4, num_gpus=4, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


@pytest.mark.long
@pytest.mark.usefixtures("four_gpus")
def test_every_process_has_one_device_and_every_device_its_process(tmp_path: Path) -> None:
    runs = plan(toy_sweep(make_data(tmp_path), "erm", "coral"))[:4]
    pool = RayPool(runs, tmp_path, lambda _: None, _check_needs(1, None, "auto"))
    pool.needs = replace(pool.needs, device="cpu")  # no computation on a GPU that is made up
    pool.update_slots()
    workers = [pool.start(slot.place) for slot in pool.slots]
    for worker, run in zip(workers, runs, strict=True):
        pool.send(worker, run)
    assert {outcome.status for outcome in ray.get([worker.answer for worker in workers])} == {"done"}
    pool.stop(workers)
    used = [(session["gpus"], session["pid"]) for session in sessions(tmp_path)]
    assert sorted(gpu for gpu, _ in used) == ["0", "1", "2", "3"]
    assert len({pid for _, pid in used}) == 4


@pytest.mark.long
@pytest.mark.usefixtures("four_gpus")
def test_a_run_that_asks_for_a_gpu_is_never_trained_without(tmp_path: Path) -> None:
    """torch sees none of those that Ray has: the runs wait, and the one actor takes no more of them."""
    sweep = toy_sweep(make_data(tmp_path))
    result = run_sweeps([sweep], tmp_path / "out", partial(run_ray, gpus=1, cpus=4), progress=False)
    assert (result.done, result.failed, len(result.waiting)) == ((), (), 3)
    assert "Expected a device that torch can use here. Found 'cuda'" in result.stopped_by
    assert len(list((tmp_path / "out").glob("*/attempts.jsonl"))) == MAX_IN_A_ROW
    with pytest.raises(UserError, match=r"Expected a node .* with 1 cores and 5 GPUs .* nodes with 4 cores and 4 GPUs"):
        run_sweeps([sweep], tmp_path / "out", partial(run_ray, gpus=5), progress=False)
    with pytest.raises(UserError, match=r"`gpus` should be a fraction of one GPU or a whole number"):
        run_sweeps([sweep], tmp_path / "out", partial(run_ray, gpus=1.5), progress=False)


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

    def kill_one() -> None:
        """When both nodes are in the middle of a run."""
        deadline = time.monotonic() + 300
        while sum(is_locked(f) and (f / "checkpoint.pt").exists() for f in out.glob("scans-*")) < 2:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        cluster.remove_node(nodes[0], allow_graceful=False)

    killing = threading.Thread(target=kill_one)
    killing.start()
    launch = partial(run_ray, address=cluster.address, gpus=1, device="cpu")
    result = run_sweeps([longer(data)], out, launch, progress=False)
    killing.join()
    assert (len(result.done), len(result.failed)) == (4, 0)
    assert read_status(out).counts == {"done": 4}
    assert {session["gpus"] for session in sessions(out)} == {"0"}  # the one of each node
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
