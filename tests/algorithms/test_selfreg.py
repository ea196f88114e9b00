"""SelfReg against DomainBed's update written out, and the values its terms must take."""

import copy
import math
from collections import Counter

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy, mse_loss

from algorithms.properties import assert_resumes_at
from algorithms.toys import linear_algorithm, toy_algorithm, toy_batches
from fgmix.algorithms import Batches
from fgmix.algorithms.selfreg import SelfReg, projection, same_class_permutation
from fgmix.errors import UserError
from reference.twin import Twin, assert_same_weights, wide


def domainbed_step(twin: Twin, cdpl: nn.Module, batches: Batches) -> None:
    """The batch sorted by class, partners copied row by row, λ as a number. Draws s, r and λ in SelfReg's order."""
    x, y = torch.cat([x for x, _ in batches]), torch.cat([y for _, y in batches])
    s, r = same_class_permutation(y), same_class_permutation(y)
    lam = torch.distributions.Beta(0.5, 0.5).sample().item()

    order = sorted(range(len(y)), key=lambda i: (int(y[i]), i))
    place = {i: position for position, i in enumerate(order)}
    x, y = x[order], y[order]
    features = twin.g(x)
    projected = cdpl(features)
    output = twin.h(features)
    output_2 = torch.stack([output[place[int(s[i])]] for i in order])
    feature_2 = torch.stack([projected[place[int(s[i])]] for i in order])
    output_3 = lam * output_2 + (1 - lam) * torch.stack([output[place[int(r[i])]] for i in order])
    feature_3 = lam * feature_2 + (1 - lam) * torch.stack([projected[place[int(r[i])]] for i in order])

    classification = cross_entropy(output, y)
    scale = min(classification.item(), 1.0)
    individual = ((output - output_2) ** 2).mean() + 0.3 * ((features - feature_2) ** 2).mean()
    hybrid = ((output - output_3) ** 2).mean() + 0.3 * ((features - feature_3) ** 2).mean()
    twin.descend(classification + scale * (lam * individual + (1 - lam) * hybrid))


@pytest.mark.parametrize("train_projection", [False, True])
def test_steps_are_domainbed_s_and_with_a_trained_projection_the_authors(train_projection: bool) -> None:
    selfreg, batches = wide(
        toy_algorithm("selfreg", shape=(6,), train_projection=train_projection), toy_batches(shape=(6,))
    )
    twin = Twin(selfreg)
    cdpl = copy.deepcopy(selfreg.projection)
    if train_projection:
        twin.optimizer.add_param_group({"params": cdpl.parameters()})
    for step in range(3):
        torch.manual_seed(step)
        selfreg.step(batches)
        torch.manual_seed(step)
        domainbed_step(twin, cdpl, batches)
        assert_same_weights(selfreg, twin)
        for ours, theirs in zip(selfreg.projection.parameters(), cdpl.parameters()):
            torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-7)


@pytest.mark.parametrize("train_projection", [False, True])
def test_projection_moves_only_where_it_is_to_be_trained(train_projection: bool) -> None:
    selfreg = toy_algorithm("selfreg", shape=(6,), train_projection=train_projection)
    before = [p.clone() for p in selfreg.projection.parameters()]
    selfreg.step(toy_batches(shape=(6,)))
    moved = [not torch.equal(a, b) for a, b in zip(before, selfreg.projection.parameters())]
    # The biases before a batch-norm have no effect, hence a gradient of rounding size or none.
    assert any(moved) if train_projection else not any(moved)


def one_of_each_class(cdpl: nn.Module | None = None) -> tuple[SelfReg, torch.Tensor, torch.Tensor]:
    """Three samples of three classes: every partner is the sample itself."""
    selfreg = linear_algorithm("selfreg", n_domains=1)
    assert isinstance(selfreg, SelfReg)
    if cdpl is not None:
        selfreg.projection = cdpl  # type: ignore[assignment]
    return selfreg, torch.randn(3, 5), torch.tensor([2, 0, 1])


def test_lone_samples_regress_on_their_own_projection() -> None:
    """Logit terms vanish, both feature terms are 0.3·MSE(z, P(z)), and λ cancels."""
    selfreg, x, y = one_of_each_class()
    own = 0.3 * mse_loss(x, copy.deepcopy(selfreg.projection)(x))
    terms = selfreg.objective([(x, y)])
    risk = cross_entropy(selfreg.classifier(x), y)
    torch.testing.assert_close(terms["individual"], own)
    torch.testing.assert_close(terms["hybrid"], own)
    torch.testing.assert_close(terms["loss"], risk + min(risk.item(), 1.0) * own)


def test_lone_samples_under_an_identity_projection_are_erm() -> None:
    selfreg, x, y = one_of_each_class(nn.Identity())
    terms = selfreg.objective([(x, y)])
    assert terms["loss"] == terms["risk"]


@pytest.mark.parametrize(("margin", "factor"), [(-3.0, 1.0), (3.0, None)])
def test_the_regularisation_is_scaled_by_the_risk_up_to_one(margin: float, factor: float | None) -> None:
    """Logits of ±margin for the true class put the risk above or below 1; the factor carries no gradient."""
    selfreg, _, y = one_of_each_class(nn.Sequential(nn.Linear(5, 5)))
    x = torch.cat([torch.eye(3)[y] * margin, torch.zeros(3, 2)], 1)
    with torch.no_grad():
        selfreg.classifier.weight.copy_(torch.eye(3, 5))
        selfreg.classifier.bias.zero_()
    terms = selfreg.objective([(x, y)])
    expected = math.log(1 + 2 * math.exp(-margin)) if factor is None else factor
    torch.testing.assert_close(terms["loss"], terms["risk"] + expected * terms["individual"])
    slopes = [
        torch.autograd.grad(terms[name], selfreg.classifier.weight, retain_graph=True) for name in ("loss", "risk")
    ]
    torch.testing.assert_close(*slopes)  # of the classifier, which the feature terms leave alone


def test_partners_are_uniform_within_the_class() -> None:
    y = torch.tensor([1, 0, 1, 0, 1])
    drawn = Counter(tuple(same_class_permutation(y).tolist()) for _ in range(2400))
    assert len(drawn) == 12  # 3!·2!
    assert all(abs(count - 200) < 5 * math.sqrt(200) for count in drawn.values())
    assert all(torch.equal(y[list(permutation)], y) for permutation in drawn)


def test_resumes_with_a_trained_projection() -> None:
    assert_resumes_at("selfreg", cut=3, train_projection=True)


def test_a_single_sample_is_refused() -> None:
    with pytest.raises(UserError, match="at least 2 samples"):
        toy_algorithm("selfreg", n_domains=1, shape=(6,)).step(toy_batches(1, b=1, shape=(6,)))


@pytest.mark.parametrize(("d", "hidden"), [(96, 192), (512, 1024), (2048, 2048)])
def test_width_of_the_projection_is_domainbed_s(d: int, hidden: int) -> None:
    with torch.device("meta"):
        layers = [layer for layer in projection(d) if isinstance(layer, nn.Linear)]
    assert [layer.out_features for layer in layers] == [hidden, hidden, d]
