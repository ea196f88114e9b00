"""Where a run computes: deterministic operations, compiled featurizers, and the GPU that a record names."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from copying import replace
from fgmix.errors import UserError
from fgmix.training import devices
from fgmix.training.devices import describe_gpu, deterministic_operations
from fgmix.training.loop import train
from training.killed_run import toy_data, toy_spec


def test_deterministic_operations_are_asked_for_within_the_block_alone() -> None:
    with deterministic_operations():
        assert torch.are_deterministic_algorithms_enabled()
    assert not torch.are_deterministic_algorithms_enabled()


def test_an_operation_without_a_deterministic_form_is_one_sentence() -> None:
    sentence = r"\(put_ does not have a deterministic.*Train without --deterministic"
    with pytest.raises(UserError, match=sentence), deterministic_operations():
        torch.zeros(3).put_(torch.tensor([0]), torch.ones(1))  # the one operation that a CPU refuses
    assert not torch.are_deterministic_algorithms_enabled()


def test_other_errors_pass() -> None:
    with pytest.raises(RuntimeError, match="inside"), deterministic_operations():
        raise RuntimeError("inside")


def test_a_deterministic_run_on_a_cpu_has_the_same_weights(tmp_path: Path) -> None:
    """It was deterministic before; the record says which it was."""
    plain, strict = (
        train(replace(toy_spec(), deterministic=wanted), tmp_path, dataset=toy_data(), device="cpu", progress=False)
        for wanted in (False, True)
    )
    assert strict.evaluations == plain.evaluations
    assert strict.spec.name != plain.spec.name


def test_a_compiled_run_trains_and_its_files_are_those_of_any_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compiled by the backend that calls the same kernels: the weights are equal, under the same names."""
    calls: list[nn.Module] = []

    def compile_eagerly(module: nn.Module) -> None:
        calls.append(module)
        module._compiled_call_impl = torch.compile(module._call_impl, backend="eager")

    monkeypatch.setattr(nn.Module, "compile", compile_eagerly)
    spec = replace(toy_spec(), dropout=0.0, steps=12, eval_every=6)
    plain, compiled = (
        train(replace(spec, compile=wanted), tmp_path, dataset=toy_data(), device="cpu", progress=False)
        for wanted in (False, True)
    )
    assert len(calls) == 1
    assert compiled.evaluations == plain.evaluations
    for name in ("best.pt", "last_swa.pt"):
        assert plain.folder is not None
        assert compiled.folder is not None
        left, right = (torch.load(folder / name, weights_only=True) for folder in (plain.folder, compiled.folder))
        assert left.keys() == right.keys()
        assert all(torch.equal(left[key], right[key]) for key in left)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An NVIDIA A100 as torch and its driver describe it."""
    driver = tmp_path / "version"
    driver.write_text("NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC 2023\nGCC\n")
    monkeypatch.setattr(devices, "NVIDIA_VERSION", str(driver))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "NVIDIA A100-SXM4-40GB")
    monkeypatch.setattr(torch.version, "cuda", "12.4")
    monkeypatch.setattr(torch.backends.cudnn, "version", lambda: 90100)


@pytest.mark.usefixtures("gpu")
def test_a_gpu_is_named_with_its_driver() -> None:
    assert describe_gpu(torch.device("cuda:1")) == {
        "name": "NVIDIA A100-SXM4-40GB",
        "driver": "535.104.05",
        "cuda": "12.4",
        "cudnn": "90100",
    }


@pytest.mark.usefixtures("gpu")
def test_what_a_machine_does_not_tell_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "NVIDIA_VERSION", "/nowhere")
    monkeypatch.setattr(torch.backends.cudnn, "version", lambda: None)
    found = describe_gpu(torch.device("cuda"))
    assert found is not None
    assert (found["driver"], found["cudnn"]) == ("unknown", "none")


def test_a_cpu_is_no_gpu() -> None:
    assert describe_gpu(torch.device("cpu")) is None
