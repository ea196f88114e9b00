"""`check_algorithm` passes a sound method and names what is wrong with a broken one."""

from __future__ import annotations

import random
import signal
import subprocess
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fgmix.algorithms import Algorithm, BaseConfig, Batches, _registry, log_uniform, register, search, setting
from fgmix.algorithms._base import batch_of
from fgmix.algorithms.mixup import Mixup
from fgmix.errors import UserError
from fgmix.networks.stages import stages
from fgmix.testing import check_algorithm, checks, contract


class Sound(Algorithm):
    """ERM with a penalty that starts late."""

    at_work = {"anneal": 0}

    class Config(BaseConfig):
        gamma: float = search(1.0, log_uniform(1e-1, 1e1), help="weight γ of the penalty", ge=0)
        anneal: int = setting(1000, help="step from which the penalty acts", ge=0)

    config: Config

    def objective(self, batches: Batches) -> dict[str, Tensor]:
        x, y = batch_of(batches)
        logits = self.predict(x)
        risk = cross_entropy(logits, y)
        penalty = self.penalty(logits) if self.updates >= self.config.anneal else torch.zeros(())
        return {"loss": risk + self.config.gamma * penalty, "penalty": penalty}

    def penalty(self, logits: Tensor) -> Tensor:
        return logits.square().mean()


class CountsInPlain(Sound):
    """A counter that a checkpoint does not hold."""

    def __init__(self, *args: object) -> None:
        super().__init__(*args)  # type: ignore[arg-type]
        self.count = 0

    def objective(self, batches: Batches) -> dict[str, Tensor]:
        self.count += 1
        return super().objective(batches)


class HidesAModule(Sound):
    """A network in a list, which `state_dict` does not see."""

    def __init__(self, *args: object) -> None:
        super().__init__(*args)  # type: ignore[arg-type]
        self.hidden = [nn.Linear(2, 2)]

    def objective(self, batches: Batches) -> dict[str, Tensor]:
        with torch.no_grad():
            self.hidden[0].weight.add_(1)
        return super().objective(batches)


class RollsItsOwnDice(Sound):
    """Random numbers that the loop does not seed."""

    def objective(self, batches: Batches) -> dict[str, Tensor]:
        terms = super().objective(batches)
        return {**terms, "loss": terms["loss"] * random.random()}


class LatePenaltyIsNaN(Sound):
    """A penalty that is never reached at the defaults."""

    def penalty(self, logits: Tensor) -> Tensor:
        return logits.mean() / 0


class Stands(Sound):
    """Nothing is trained."""

    def update(self, batches: Batches) -> dict[str, Tensor]:
        return self.objective(batches)


class ReturnsAVector(Sound):
    """A metric with a number per domain."""

    def objective(self, batches: Batches) -> dict[str, Tensor]:
        return {**super().objective(batches), "risks": torch.zeros(len(batches))}


class PredictsOtherwise(Sound):
    """A prediction that g and h alone do not make."""

    def predict(self, x: Tensor) -> Tensor:
        return super().predict(x) * 2


class NeedsTwoDomains(Sound):
    """Two domains, undeclared."""

    def objective(self, batches: Batches) -> dict[str, Tensor]:
        _ = batches[1]
        return super().objective(batches)


class NeedsStages(Sound):
    """Stages, undeclared."""

    def objective(self, batches: Batches) -> dict[str, Tensor]:
        stages(self.featurizer)
        return super().objective(batches)


class NeedsNoStages(Sound):
    """Declares stages that it does not look for."""

    needs_stages = True


class NeedsEveryClass(Sound):
    """Fails without each class in each domain."""

    def objective(self, batches: Batches) -> dict[str, Tensor]:
        x, _ = batches[0]
        loss = torch.stack([self.predict(x[y == c]).mean(0)[c] for _, y in batches for c in range(4)]).mean()
        return {"loss": -loss}


class NeedsFloat32(Sound):
    """A product of a prediction and float32."""

    def objective(self, batches: Batches) -> dict[str, Tensor]:
        logits = self.predict(batch_of(batches)[0]).flatten()
        return {"loss": logits.dot(torch.ones(len(logits)))}


class CountsNoBatches(Sound):
    """Overrides `step`, and with it the check of the batches."""

    def step(self, batches: Batches) -> dict[str, Tensor]:
        return {name: value.detach() for name, value in self.update(batches).items()}


class NamesByOrder(Sound):
    """Metrics whose names depend on the domains' order."""

    def objective(self, batches: Batches) -> dict[str, Tensor]:
        first = "dark" if batches[0][0].mean() < batches[-1][0].mean() else "bright"
        return {**super().objective(batches), first: torch.zeros(())}


class UndeclaredSetting(Sound):
    """A setting without help or bounds."""

    class Config(Sound.Config):
        beta: float = 1.0


class DrawsOutOfBounds(Sound):
    """A search space beyond the bounds."""

    class Config(Sound.Config):
        beta: float = search(0.5, log_uniform(1e-1, 1e1), help="weight β", le=1)


class HalfOfDomainBed(Sound):
    """A hyper-parameter of DomainBed's in a method that is not."""

    class Config(Sound.Config):
        beta: float = search(1.0, log_uniform(1e-1, 1e1), help="weight β", domainbed="mldg_beta")


class MixesWeights(Mixup):
    """Mixes samples, which weights cannot stand for."""

    targets = "weighted"  # type: ignore[assignment]


@pytest.fixture(autouse=True)
def _only_for_the_test() -> Iterator[None]:
    before = dict(_registry._REGISTRY)
    yield
    _registry._REGISTRY.clear()
    _registry._REGISTRY.update(before)


def test_a_sound_method_passes_everything(capsys: pytest.CaptureFixture[str]) -> None:
    register("mine")(Sound)
    before = torch.get_rng_state()
    passed = check_algorithm("mine", verbose=True)
    assert torch.equal(torch.get_rng_state(), before)
    assert passed == [str(check) for check in checks("mine")]
    assert {"mine-resume", "mine-resume-at_work", "mine-declarations"} <= set(passed)
    assert capsys.readouterr().out.splitlines() == [f"{check}: passed" for check in passed]


@pytest.mark.parametrize(
    ("broken", "check", "sentence"),
    [
        (CountsInPlain, "state", "A checkpoint would lose `count`. Use `register_buffer`"),
        (HidesAModule, "state", "would lose `hidden`"),
        (RollsItsOwnDice, "resume", "random numbers from other generators"),
        (LatePenaltyIsNaN, "training-at_work", r"should be finite. Found \{'loss': (nan|inf|-inf)"),
        (Stands, "training", "No weight of the model has moved"),
        (ReturnsAVector, "training", "scalar tensor as 'risks'"),
        (PredictsOtherwise, "prediction", "Averaging and export keep g and h alone"),
        (NeedsTwoDomains, "number_of_domains", "`min_domains` says so. IndexError"),
        (NeedsStages, "arrays", "`needs_norms` says so. UserError: "),
        (NeedsNoStages, "arrays", "Expected a UserError"),
        (NeedsEveryClass, "missing_class", "should be finite"),
        (NeedsFloat32, "bfloat16", "RuntimeError: dot"),
        (CountsNoBatches, "number_of_batches", "not `step`"),
        (NamesByOrder, "order_of_domains", r"Found \['dark', .*\] and \['bright', "),
        (UndeclaredSetting, "declared_settings", r"Declare `beta` by `setting\(…\)`"),
        (HalfOfDomainBed, "declared_settings", "`beta` has a name of DomainBed's: declare `domainbed_name`"),
        (DrawsOutOfBounds, "search_space", "`beta` should be a number at most 1"),
        (MixesWeights, "targets", "`targets` should be soft"),
    ],
)
def test_what_is_broken_is_named(broken: type[Algorithm], check: str, sentence: str) -> None:
    register("broken")(broken)
    (found,) = [c for c in checks("broken") if str(c) == f"broken-{check}"]
    with pytest.raises(AssertionError, match=rf"^broken-{check} fails\. .*{sentence}"):
        found()


def test_a_penalty_that_starts_late_is_sound_until_it_is_at_work() -> None:
    register("broken")(LatePenaltyIsNaN)
    with pytest.raises(AssertionError, match=r"^broken-training-at_work fails"):
        check_algorithm("broken")


def test_an_unknown_name_is_named() -> None:
    with pytest.raises(UserError, match="Unknown algorithm 'minee'"):
        check_algorithm("minee")


def test_bfloat16_is_left_out_where_it_ends_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    (check,) = (check for check in checks("erm") if check.holds is contract.bfloat16)
    monkeypatch.setattr(contract, "_computes_bfloat16", contract._computes_bfloat16.__wrapped__)
    monkeypatch.setattr(contract, "run_steps", lambda *_: pytest.fail("a step in bfloat16"))
    died = subprocess.CompletedProcess([], -signal.SIGILL)
    monkeypatch.setattr(contract.subprocess, "run", lambda *_, **__: died)
    with pytest.warns(UserWarning, match="bfloat16"):
        check()
