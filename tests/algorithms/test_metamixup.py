"""MetaMixup: the look-ahead derivative against closed forms and differences, and the order of the updates."""

from __future__ import annotations

from copy import deepcopy

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from algorithms.toys import linear_algorithm, toy_algorithm, toy_batches
from fgmix import algorithms
from fgmix.algorithms import Algorithm
from fgmix.algorithms.metamixup import look_ahead_gradient
from fgmix.networks import build_featurizer

FORMS = ("classifier", "network")


@pytest.mark.parametrize(("through_sigmoid", "slope"), [(False, -0.34), (True, -0.085)])
def test_closed_form_of_one_weight(through_sigmoid: bool, slope: float) -> None:
    """f = θx, loss ½(f − y)², θ = 0, pair (2, 2), (0, 1), λ = 0.5, η = 0.1, validation (1, 1).

    By hand: θ'(λ) = η·x̃·ỹ = 0.1·2λ·(1 + λ), so dθ'/dλ = 0.1·(2 + 4λ) = 0.4, θ' = 0.15 and
    dL_val/dλ = (θ' − 1)·0.4 = −0.34; λ = sigmoid(0) scales it by λ(1 − λ) = ¼.
    """
    theta = {"theta": torch.tensor(0.0, requires_grad=True)}
    raw = torch.tensor(0.0 if through_sigmoid else 0.5, requires_grad=True)

    def L_mix(w: dict[str, Tensor], raw: Tensor) -> Tensor:
        lam = torch.sigmoid(raw) if through_sigmoid else raw
        f = w["theta"] * (lam * 2 + (1 - lam) * 0)
        return lam * (f - 2) ** 2 / 2 + (1 - lam) * (f - 1) ** 2 / 2

    validation, derivative = look_ahead_gradient(L_mix, lambda w: (w["theta"] - 1) ** 2 / 2, theta, raw, {"theta": 0.1})
    assert validation.item() == pytest.approx(0.85**2 / 2)
    assert derivative.item() == pytest.approx(slope)


class Toy(nn.Module):
    """A smooth two-layer network in float64: differences are exact enough to judge derivatives by."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 5)

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.layer(x))


def smooth_algorithm(**settings: object) -> Algorithm:
    torch.manual_seed(7)
    g, h = Toy().double(), nn.Linear(5, 3).double()
    method = algorithms.create("metamixup", featurizer=g, classifier=h, n_domains=3, lr=0.3, **settings)
    return method.double()


@pytest.mark.parametrize("form", FORMS)
def test_derivative_is_that_of_a_step_really_taken(form: str) -> None:
    """Central difference of L_val after an SGD step taken at λ ± δ on a copy, layer by layer."""
    method = smooth_algorithm(look_ahead=form)
    batches = [(x.double(), y) for x, y in toy_batches(b=4, shape=(3,), classes=3)]
    torch.manual_seed(5)
    validation, derivative = method.meta_gradient(batches)
    torch.manual_seed(5)
    t = int(torch.randint(3, ()))
    pi = torch.randperm(8)
    x, y = (torch.cat([batches[e][part] for e in range(3) if e != t]) for part in (0, 1))

    def validation_after_step(lam: float) -> float:
        copy = deepcopy(method)
        logits = copy.predict(lam * x + (1 - lam) * x[pi])
        (lam * cross_entropy(logits, y) + (1 - lam) * cross_entropy(logits, y[pi])).backward()
        moved = copy.classifier.parameters() if form == "classifier" else copy.parameters()
        with torch.no_grad():
            for p in moved:
                if p.grad is not None:
                    p -= 0.3 * p.grad
            return float(cross_entropy(copy.predict(batches[t][0]), batches[t][1]))

    delta = 1e-5
    slope = (validation_after_step(0.7 + delta) - validation_after_step(0.7 - delta)) / (2 * delta)
    # 0.7 is a float32 in the parameter; seven digits of it
    assert validation.item() == pytest.approx(validation_after_step(0.7), rel=1e-6)
    assert float(derivative) == pytest.approx(slope, rel=1e-5)


def test_the_forms_differ_where_the_featurizer_learns_and_agree_where_it_cannot() -> None:
    batches = [(x.double(), y) for x, y in toy_batches(b=4, shape=(3,), classes=3)]

    def slope(form: str, frozen: bool) -> float:
        method = smooth_algorithm(look_ahead=form)
        method.featurizer.requires_grad_(not frozen)
        torch.manual_seed(5)
        return float(method.meta_gradient(batches)[1])

    assert slope("network", frozen=True) == pytest.approx(slope("classifier", frozen=False), rel=1e-9)
    assert slope("network", frozen=False) != pytest.approx(slope("classifier", frozen=False), rel=1e-3)


@pytest.mark.parametrize("k", [2, 3])
def test_step_updates_lambda_first_then_the_model_with_the_new_one(k: int) -> None:
    """Adam's first step is lr·sign(g); the model's step is mixup of the ring at the new λ, as a twin takes it."""
    ours = toy_algorithm("metamixup", n_domains=k, lam_lr=0.05).double()  # Adam turns float32's rounding into steps
    twin, batches = deepcopy(ours), [(x.double(), y) for x, y in toy_batches(k, b=6)]
    torch.manual_seed(4)
    metrics = ours.step(batches)

    torch.manual_seed(4)
    _, derivative = twin.meta_gradient(batches)
    lam = twin.lam.item() - 0.05 * float(derivative / (derivative.abs() + 1e-8))
    order = torch.randperm(k).tolist()
    loss = torch.zeros((), dtype=torch.float64)
    for i, j in zip(order, order[1:] + order[:1]):
        (x_i, y_i), (x_j, y_j) = batches[i], batches[j]
        logits = twin.predict(lam * x_i + (1 - lam) * x_j)
        loss = loss + (lam * cross_entropy(logits, y_i) + (1 - lam) * cross_entropy(logits, y_j)) / k
    parts = [*twin.featurizer.parameters(), *twin.classifier.parameters()]
    optimizer = torch.optim.Adam(parts, lr=twin.config.lr)
    loss.backward()
    optimizer.step()

    assert float(metrics["lam"]) == pytest.approx(lam, abs=1e-6)
    torch.testing.assert_close(metrics["loss"], loss.detach())
    for p, q in zip([*ours.featurizer.parameters(), *ours.classifier.parameters()], parts):
        torch.testing.assert_close(p, q, atol=1e-5, rtol=0)


def test_symmetric_pairs_at_one_half_have_no_gradient() -> None:
    """Why λ does not start at 0.5: pairs (i, j) and (j, i) pull it in opposite directions."""
    method = linear_algorithm("metamixup", n_domains=2, lam=0.5)
    x, y = toy_batches(1, b=2, shape=(5,), classes=3)[0]
    torch.manual_seed(1)  # draws the permutation that swaps the two
    assert torch.randint(2, ()) >= 0
    assert torch.randperm(2).tolist() == [1, 0]
    torch.manual_seed(1)
    _, derivative = method.meta_gradient([(x, y), (x, y)])
    assert abs(float(derivative)) < 1e-9


def test_lambda_stays_in_its_interval() -> None:
    method = linear_algorithm("metamixup", lam=0.99, lam_lr=0.5)
    seen = [float(method.step(toy_batches(shape=(5,), classes=3))["lam"]) for _ in range(8)]
    assert all(0 <= lam <= 1 for lam in seen)
    assert {0.0, 1.0} & set(seen)  # it did reach an end


def test_reported_lambda_is_a_snapshot() -> None:
    method = linear_algorithm("metamixup")
    first = method.step(toy_batches(shape=(5,), classes=3))["lam"]
    before = float(first)
    method.step(toy_batches(shape=(5,), classes=3))
    assert float(first) == before != method.lam.item()


def test_weight_decay_leaves_lambda_alone() -> None:
    with_decay, without = (linear_algorithm("metamixup", weight_decay=w) for w in (0.1, 0.0))
    for method in (with_decay, without):
        torch.manual_seed(0)
        method.step(toy_batches(shape=(5,), classes=3))
    assert torch.equal(with_decay.lam, without.lam)


@pytest.mark.parametrize("form", FORMS)
def test_the_virtual_step_touches_nothing(form: str) -> None:
    """Batch-norm in training mode: running statistics, weights and gradients are as before."""
    torch.manual_seed(0)
    g = build_featurizer("resnet18", (3, 32, 32), freeze_bn=False)
    method = algorithms.create(
        "metamixup", featurizer=g, classifier=nn.Linear(512, 4), n_domains=2, look_ahead=form
    ).train()
    before = {name: t.clone() for name, t in method.state_dict().items() if isinstance(t, Tensor)}
    method.meta_gradient(toy_batches(2, b=2, shape=(3, 32, 32)))
    assert all(torch.equal(t, before[name]) for name, t in method.state_dict().items() if isinstance(t, Tensor))
    assert all(p.grad is None for p in method.parameters())


def test_one_sample_per_domain() -> None:
    metrics = linear_algorithm("metamixup", n_domains=2).step(toy_batches(2, b=1, shape=(5,), classes=3))
    assert all(torch.isfinite(value) for value in metrics.values())


@pytest.mark.parametrize("form", FORMS)
def test_autocast_and_dropout(form: str) -> None:
    method = toy_algorithm("metamixup", look_ahead=form).train()
    method.featurizer.dropout = nn.Dropout(0.5)
    with torch.autocast("cpu", torch.bfloat16):
        metrics = method.step(toy_batches(b=2))
    assert all(torch.isfinite(value) for value in metrics.values())


@pytest.mark.parametrize("frozen", [False, True])
def test_a_virtual_step_moves_a_transformer(frozen: bool) -> None:
    """Its attention is differentiated twice, also where only the featurizer can move."""
    g = build_featurizer("test_vit", (3, 32, 32))
    h = nn.Linear(g.out_features, 4).requires_grad_(not frozen)
    settings = {} if frozen else {"look_ahead": "network"}
    method = algorithms.create("metamixup", featurizer=g, classifier=h, n_domains=3, **settings)
    before = method.lam.item()
    batches = [(torch.randn(2, 3, 32, 32), torch.arange(2)) for _ in range(3)]
    assert method.step(batches)["loss"].isfinite()
    assert method.lam.item() != before
