"""T3A against its rule, written out for one code after the other in numpy."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch import nn

from algorithms.toys import toy_algorithm
from fgmix.algorithms import create
from fgmix.errors import UserError

Array = npt.NDArray[np.float64]
BATCHES, SIZE, D, C = 4, 7, 5, 3


def adjust(w: Array, b: Array, batches: list[Array], k: int) -> list[Array]:
    """Predict batches of codes with classifier w, b: supports as lists of (entropy, code) by class."""

    def judge(z: Array) -> tuple[int, float]:
        o = w @ z + b
        p = np.exp(o - o.max()) / np.exp(o - o.max()).sum()
        return int(o.argmax()), float(-sum(q * np.log(q) for q in p))

    supports: list[list[tuple[float, Array]]] = [[] for _ in w]
    logits = []
    for codes in [w, *batches]:
        for z in codes:
            label, entropy = judge(z)
            supports[label].append((entropy, z))
        columns = []
        for of_class in supports:
            of_class.sort(key=lambda pair: pair[0])
            if k:
                del of_class[k:]
            mu = sum((z / np.linalg.norm(z) for _, z in of_class), np.zeros(D))
            columns.append(mu / max(np.linalg.norm(mu), 1e-12))
        logits.append(codes @ np.stack(columns, 1))
    return logits[1:]


@pytest.mark.parametrize("k", [0, 1, 4])
def test_predictions_are_those_of_prototypes_of_certain_codes(k: int) -> None:
    torch.manual_seed(0)
    algorithm = create("t3a", featurizer=nn.Flatten(), classifier=nn.Linear(D, C), n_domains=2, t3a_k=k).double().eval()
    head = algorithm.classifier
    batches = [torch.randn(SIZE, D, dtype=torch.float64) for _ in range(BATCHES)]
    expected = adjust(head.weight.detach().numpy(), head.bias.detach().numpy(), [x.numpy() for x in batches], k)
    predict = algorithm.start_test()
    with torch.inference_mode():
        for x, o in zip(batches, expected, strict=True):
            torch.testing.assert_close(predict(x), torch.tensor(o, dtype=torch.float32), rtol=1e-4, atol=1e-5)


def test_a_nonlinear_head_is_adjusted_at_its_last_layer() -> None:
    torch.manual_seed(0)
    first, last = nn.Linear(D, 4), nn.Linear(4, C)
    head = nn.Sequential(first, nn.ReLU(), last)
    whole = create("t3a", featurizer=nn.Flatten(), classifier=head, n_domains=2).eval()
    rest = create("t3a", featurizer=nn.Sequential(first, nn.ReLU()), classifier=last, n_domains=2).eval()
    x = torch.randn(SIZE, D)
    with torch.inference_mode():
        assert torch.equal(whole.start_test()(x), rest.start_test()(x))


def test_training_and_the_network_are_those_of_the_inner_method() -> None:
    for name, inner in (("t3a", "erm"), ("t3a+coral", "coral")):
        ours, theirs = toy_algorithm(name), toy_algorithm(inner)
        x = torch.rand(3, 3, 16, 16)
        assert torch.equal(ours.eval().predict(x), theirs.eval().predict(x))
        assert ours.state_dict().keys() == theirs.state_dict().keys()


def test_a_head_without_a_linear_layer_is_refused() -> None:
    with pytest.raises(UserError, match="Linear"):
        create("t3a", featurizer=nn.Linear(D, C), classifier=nn.Identity(), n_domains=2)
