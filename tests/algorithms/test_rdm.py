"""RDM against DomainBed's update written out, and its search space by dataset."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from algorithms.properties import assert_order_of_domains_is_irrelevant, assert_resumes_at
from algorithms.toys import toy_algorithm, toy_batches
from fgmix.algorithms import Batches
from fgmix.algorithms.rdm import matching_and_variance
from fgmix.errors import UserError
from fgmix.sweeps.search import sample_hparams
from reference.twin import Twin, assert_follows


def mmd_of_numbers(a: Tensor, b: Tensor) -> Tensor:
    def kernel(x: Tensor, y: Tensor) -> Tensor:
        squared = (x[:, None] - y[None, :]) ** 2
        return sum(torch.exp(-(10.0**power) * squared).mean() for power in range(-4, 4))

    return kernel(a, a) + kernel(b, b) - 2 * kernel(a, b)


@pytest.mark.parametrize("anneal", [0, 2, 100])
def test_steps_are_domainbeds(anneal: int) -> None:
    def step(twin: Twin, batches: Batches, step: int) -> None:
        risks = [cross_entropy(twin.h(twin.g(x)), y, reduction="none") for x, y in batches]
        worst = max(risks, key=lambda r: r.mean().item())
        loss = sum(r.mean() for r in risks) / len(risks)
        if step >= anneal:
            loss = loss + 3.0 * mmd_of_numbers(worst, torch.cat(risks))
            loss = loss + 0.5 * (torch.cat(risks).var() + worst.var())
        if step == anneal:
            twin.restart(lr=5e-3)
        twin.descend(loss)

    assert_follows("rdm", step, steps=5, anneal=anneal, lam=3.0, variance_weight=0.5, lr_after=5e-3)


@pytest.mark.parametrize(
    ("dataset", "lam", "anneal", "variance", "batch_size"),
    [
        ("PACS", 5.0, 1500, 0.004, 88),
        ("VLCS", 5.0, 1500, 0.004, 88),
        ("OfficeHome", 5.0, 1500, 0.0, 88),
        ("TerraIncognita", 5.0, 1500, 0.0, 40),
        ("DomainNet", 0.5, 2400, 0.0, 40),
    ],
)
def test_defaults_of_a_sweep_by_dataset(
    dataset: str, lam: float, anneal: int, variance: float, batch_size: int
) -> None:
    drawn = sample_hparams("rdm", dataset, "images", 0, 0)
    own = {name: drawn["settings"][name] for name in ("lam", "anneal", "variance_weight")}
    assert own == {"lam": lam, "anneal": anneal, "variance_weight": variance}
    assert drawn["batch_size"] == batch_size


def test_ranges_of_a_sweep_by_dataset() -> None:
    def ranges(dataset: str, kind: str = "images") -> dict[str, tuple[float, float]]:
        drawn = [sample_hparams("rdm", dataset, kind, h, 0) for h in range(1, 200)]
        values = {name: [d["settings"][name] for d in drawn] for name in ("lam", "anneal", "variance_weight")}
        values["batch_size"] = [d["batch_size"] for d in drawn]
        return {name: (min(each), max(each)) for name, each in values.items()}

    net, home, pacs = ranges("DomainNet"), ranges("OfficeHome"), ranges("PACS")
    assert 0.1 <= net["lam"][0] < 0.2
    assert 0.9 < net["lam"][1] <= 1
    assert 1500 <= net["anneal"][0] < 1600
    assert 2900 < net["anneal"][1] < 3000
    assert 1 <= pacs["lam"][0] < 1.5
    assert 9 < pacs["lam"][1] <= 10
    assert home["lam"][0] < 0.8
    assert home["variance_weight"] == (0, 0)
    assert pacs["variance_weight"][0] >= 0.001
    assert pacs["batch_size"][0] >= 70
    assert pacs["batch_size"][1] < 100
    assert ranges("rotated_mnist", "small_images")["batch_size"][0] < 20


def test_the_worst_domain_is_that_of_the_highest_mean() -> None:
    r = [torch.tensor([0.0, 0.1]), torch.tensor([1.0, 3.0]), torch.tensor([2.5, 0.5])]
    matching, variance = matching_and_variance(r)
    torch.testing.assert_close(matching, mmd_of_numbers(r[1], torch.cat(r)))
    torch.testing.assert_close(variance, torch.cat(r).var() + 2)


@pytest.mark.parametrize("cut", [2, 3, 4])
def test_resumes_before_at_and_after_the_anneal_step(cut: int) -> None:
    assert_resumes_at("rdm", cut, anneal=3)


def test_order_of_domains_is_irrelevant() -> None:
    assert_order_of_domains_is_irrelevant("rdm", anneal=0)


def test_batches_of_one_are_refused() -> None:
    with pytest.raises(UserError, match="at least 2 samples"):
        toy_algorithm("rdm", shape=(6,)).step(toy_batches(b=1, shape=(6,)))
