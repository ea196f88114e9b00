"""Gradients and scores: the factored forms against the literal ones, values and gradients of ω, and huge inputs."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from fgmix.mixing import Compatibility, block_sizes, classifier_gradients, cosine_scores, scores
from fgmix.mixing.scores import LinearGradients, Vectors, hash_outputs
from reference.literal import gradients_by_func, gradients_by_loop, pair_scores

D, C, M = 6, 4, 10
HEADS = {
    "linear": lambda: nn.Linear(D, C),
    "without bias": lambda: nn.Linear(D, C, bias=False),
    "sequential": lambda: nn.Sequential(nn.Linear(D, C)),
    "mlp": lambda: nn.Sequential(nn.Linear(D, 5), nn.ReLU(), nn.Dropout(0.0), nn.Linear(5, C, bias=False)),
    "normalised": lambda: nn.Sequential(nn.Linear(D, 5), nn.LayerNorm(5), nn.Linear(5, C)),
    "in place": lambda: nn.Sequential(nn.Linear(D, 5), nn.ReLU(inplace=True), nn.Linear(5, C)),
}


def codes() -> tuple[Tensor, Tensor]:
    return torch.randn(M, D) * 3, torch.arange(M) % C


def literal_mlp(A: Compatibility) -> nn.Sequential:
    """A_ω as a plain MLP on concatenated vectors, with a copy of ω."""
    h, width = A.weight().shape
    net = nn.Sequential(nn.Linear(width, h), nn.Tanh(), nn.Linear(h, h), nn.Tanh(), nn.Linear(h, 1))
    net[0].load_state_dict({"weight": A.weight().detach(), "bias": A.bias.detach()})
    net[2].load_state_dict(A.rest[1].state_dict())
    net[4].load_state_dict(A.rest[3].state_dict())
    return net


@pytest.mark.parametrize("kind", HEADS)
def test_gradients_equal_the_loop_and_torch_func(kind: str) -> None:
    head, (z, y) = HEADS[kind](), codes()
    g = classifier_gradients(head, z, y)
    assert isinstance(g, LinearGradients) == (kind not in ("normalised", "in place"))
    torch.testing.assert_close(g.dense(), gradients_by_loop(head, z, y), rtol=0, atol=1e-5)
    torch.testing.assert_close(g.dense(), gradients_by_func(head, z, y), rtol=0, atol=1e-5)
    assert not g.dense().requires_grad


@pytest.fixture(params=[True, False], ids=["large", "small"])
def _both_sizes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """W z for all classes is computed at once if it is small, else in parts, by oneDNN: have both at a test's size."""
    if request.param:
        monkeypatch.setattr(scores, "_CHUNK", D * M)
        monkeypatch.setattr(scores, "_LARGE", 1)


@pytest.mark.usefixtures("_both_sizes")
@pytest.mark.parametrize("kind", HEADS)
@pytest.mark.parametrize("k", [2, 3, 5])
def test_learned_scores_equal_concatenated_pairs_through_the_mlp(kind: str, k: int) -> None:
    """Values and gradients of ω, to 1e-5, against gradients by a loop and a plain nn.Sequential."""
    head, (z, y) = HEADS[kind](), codes()
    position = torch.stack([torch.randperm(M)[:k] for _ in range(7)])
    A = Compatibility(block_sizes(head))
    net = literal_mlp(A)
    cotangent = torch.randn(7, k)

    s = A.scores(classifier_gradients(head, z, y), position)
    literal = pair_scores(net, gradients_by_loop(head, z, y)[position])
    torch.testing.assert_close(s, literal, rtol=0, atol=1e-5)

    (s * cotangent).sum().backward()
    (literal * cotangent).sum().backward()
    h = A.hidden
    got = torch.cat([w.grad[:h] for w in A.blocks] + [w.grad[h:] for w in A.blocks], 1)
    pairs = [(got, net[0].weight.grad), (A.bias.grad, net[0].bias.grad)]
    pairs += [(A.rest[i].weight.grad, net[i + 1].weight.grad) for i in (1, 3)]
    pairs += [(A.rest[1].bias.grad, net[2].bias.grad)]
    for fast, slow in pairs:
        torch.testing.assert_close(fast, slow, rtol=1e-5, atol=1e-5)


@pytest.mark.usefixtures("_both_sizes")
@pytest.mark.parametrize("bias", [True, False])
def test_gradients_written_over_dropped_ones_are_right_and_nothing_else_is_overwritten(bias: bool) -> None:
    head, position = nn.Linear(D, C, bias=bias), torch.tensor([[0, 4, 8], [1, 5, 9]])
    A = Compatibility(block_sizes(head))
    weight = A.blocks[0]

    def backward(z: Tensor) -> Tensor:
        s = A.scores(classifier_gradients(head, z, torch.arange(M) % C), position)
        A.zero_grad(set_to_none=True)
        s.square().sum().backward()
        return weight.grad

    z_1, z_2 = torch.randn(M, D), torch.randn(M, D)
    address = backward(z_1).data_ptr()
    assert backward(z_2).data_ptr() == address  # dropped and not held: the same memory
    second = weight.grad.clone()
    held = weight.grad
    assert backward(z_1).data_ptr() != address  # held by someone: new memory
    assert torch.equal(held, second)
    first = weight.grad.clone()
    s = A.scores(classifier_gradients(head, z_2, torch.arange(M) % C), position)
    s.square().sum().backward()  # not dropped: added
    torch.testing.assert_close(weight.grad, first + second)


def test_calling_the_module_is_the_definition() -> None:
    A = Compatibility([5, 3])
    v_i, v_j = torch.randn(4, 8), torch.randn(4, 8)
    torch.testing.assert_close(A(v_i, v_j), literal_mlp(A)(torch.cat([v_i, v_j], 1)).squeeze(1))


def test_compatibility_starts_as_a_linear_layer_does() -> None:
    A = Compatibility([200, 50])
    bound = 1 / math.sqrt(500)
    assert A.weight().abs().max() <= bound
    assert A.weight().std().item() == pytest.approx(bound / math.sqrt(3), rel=0.02)


def test_two_members_get_different_scores() -> None:
    """A_ω is asymmetric: with k = 2 the cosine's scores are equal, the learned ones are not."""
    head, (z, y) = nn.Linear(D, C), codes()
    g, position = classifier_gradients(head, z, y), torch.tensor([[0, 4], [1, 5]])
    cosine, learned = cosine_scores(g, position), Compatibility(block_sizes(head)).scores(g, position)
    torch.testing.assert_close(cosine[:, 0], cosine[:, 1])
    assert (learned[:, 0] - learned[:, 1]).abs().min() > 1e-4


@pytest.mark.parametrize("kind", HEADS)
def test_cosine_scores_of_gradients(kind: str) -> None:
    head, (z, y) = HEADS[kind](), codes()
    position = torch.tensor([[0, 4, 8], [1, 5, 9], [0, 0, 3]])
    g = gradients_by_loop(head, z, y)[position]
    cosines = torch.cosine_similarity(g.unsqueeze(1), g.unsqueeze(2), dim=-1)
    expected = (cosines * (1 - torch.eye(3))).sum(2)
    torch.testing.assert_close(cosine_scores(classifier_gradients(head, z, y), position), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("kind", HEADS)
def test_normalised_gradients_have_mean_square_one_and_the_same_direction(kind: str) -> None:
    head, (z, y) = HEADS[kind](), codes()
    g = classifier_gradients(head, z, y)
    scaled = g.normalise().dense()
    torch.testing.assert_close(scaled.square().mean(1), torch.ones(M))
    torch.testing.assert_close(torch.cosine_similarity(scaled, g.dense()), torch.ones(M))


def test_a_well_fitted_instance_keeps_the_direction_of_its_gradient() -> None:
    """p_y − 1 would round to 0 at p_y = 1 − 1e-9 and lose the largest component of δ."""
    head = nn.Linear(1, 3, bias=False)
    nn.init.zeros_(head.weight)
    with torch.no_grad():
        head.weight[0] = 21.0
    g = classifier_gradients(head, torch.ones(1, 1), torch.tensor([0])).dense()[0].double()
    p = math.exp(-21) / (1 + 2 * math.exp(-21))
    torch.testing.assert_close(g, torch.tensor([-2 * p, p, p], dtype=torch.float64), rtol=1e-5, atol=0)


@pytest.mark.usefixtures("_both_sizes")
@pytest.mark.parametrize("size", [1e6, 1e20, 1e36])
def test_huge_codes_saturate_and_stay_finite(size: float) -> None:
    head, (z, y) = nn.Linear(D, C), codes()
    position = torch.tensor([[0, 4, 8], [1, 5, 9]])
    g = classifier_gradients(head, z * size, y)
    A = Compatibility(block_sizes(head))
    for vectors in (g, g.normalise()):
        s = A.scores(vectors, position)
        assert torch.isfinite(s).all()
        for gradient in torch.autograd.grad(s.sum(), list(A.parameters())):
            assert torch.isfinite(gradient).all()
    assert torch.isfinite(cosine_scores(g, position)).all()
    assert cosine_scores(g, position).abs().max() <= 2 + 1e-5


def test_huge_vectors_saturate_and_stay_finite() -> None:
    """1e38 is near the end of float32: sums of such numbers overflow, tanh of them does not."""
    v = Vectors((torch.randn(6, 300).sign() * 1e38,))
    A = Compatibility([300])
    s = A.scores(v, torch.tensor([[0, 1, 2], [3, 4, 5]]))
    assert torch.isfinite(s).all()
    assert all(torch.isfinite(g).all() for g in torch.autograd.grad(s.sum(), list(A.parameters())))


def test_zero_gradients_score_zero_cosine() -> None:
    v = Vectors((torch.zeros(2, 3),))
    assert torch.equal(cosine_scores(v, torch.tensor([[0, 1]])), torch.zeros(1, 2))
    assert torch.equal(v.normalise().dense(), torch.zeros(2, 3))


def test_a_head_in_training_mode_is_looked_at_in_evaluation_mode() -> None:
    """Dropout and batch statistics belong to no instance; modes and statistics are left as they were."""
    head = nn.Sequential(nn.Linear(D, 5), nn.BatchNorm1d(5), nn.Dropout(0.5), nn.Linear(5, C)).train()
    head[2].eval()
    before = {name: t.clone() for name, t in head.state_dict().items()}
    z, y = codes()
    g = classifier_gradients(head, z, y).dense()
    assert [m.training for m in head] == [True, True, False, True]
    assert all(torch.equal(t, before[name]) for name, t in head.state_dict().items())
    torch.testing.assert_close(g, gradients_by_loop(head.eval(), z, y), rtol=0, atol=1e-5)


def test_a_subclass_of_linear_takes_the_general_path() -> None:
    """A parametrised layer is a Linear by inheritance only: its parameters are others."""
    head = nn.utils.parametrizations.weight_norm(nn.Linear(D, C))
    z, y = codes()
    g = classifier_gradients(head, z, y)
    assert isinstance(g, Vectors)
    torch.testing.assert_close(g.dense(), gradients_by_loop(head, z, y), rtol=0, atol=1e-5)


@pytest.mark.parametrize("kind", HEADS)
def test_norms_of_factored_gradients_are_those_of_the_gradients(kind: str) -> None:
    gradients = classifier_gradients(HEADS[kind](), *codes())
    expected = gradients.dense().pow(2).sum(1, keepdim=True).sqrt()
    torch.testing.assert_close(gradients.norms(), expected)


def test_hashed_gradients_keep_inner_products_on_average() -> None:
    """⟨δ_i H, δ_j H⟩ over 4,000 random H, within five standard errors."""
    torch.manual_seed(0)
    g = classifier_gradients(nn.Linear(4, 9).double(), torch.randn(3, 4).double(), torch.tensor([0, 1, 8]))
    assert isinstance(g, LinearGradients)
    hashes = [hash_outputs(9, 4).double() for _ in range(4000)]
    assert all(torch.equal(H.abs().sum(1), torch.ones(9).double()) for H in hashes)
    products = torch.stack([g.hash(H).dense() @ g.hash(H).dense().T for H in hashes])
    error = products.std(0) / math.sqrt(len(hashes))
    assert ((products.mean(0) - g.dense() @ g.dense().T).abs() <= 5 * error + 1e-12).all()
