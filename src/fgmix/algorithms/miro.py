import copy
import math
from typing import Self

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, softplus

from fgmix.algorithms import Algorithm, BaseConfig, Batches, batch_of, choice, register, search, setting
from fgmix.functional import widen
from fgmix.networks.parts import record_features
from fgmix.networks.stages import Stage, sections

INITIAL_VARIANCE = 0.1
LEAST_VARIANCE = 1e-5


@register("miro")
class MIRO(Algorithm):
    """Mutual-information regularisation: keep the features close to those of the network that training started from.

        L = CE + λ Σ_l ½ mean( (f_l − f⁰_l)²/σ²_l + log σ²_l ),    σ²_l = softplus(b_l) + 10⁻⁵

    with f_l the features of layer l (the output of the stem and of each section of the network), f⁰_l those of a copy
    of the network that is frozen before the first step, and σ²_l a learned variance per channel. Up to scale and a
    constant, the sum is the negative of a lower bound on the mutual information between f and f⁰, in which f_l is the
    mean of f⁰_l given f_l.

    Cha et al., "Domain Generalization by Mutual-Information Regularization with Pre-trained Models", 2022,
    https://arxiv.org/abs/2203.10789. Variant: the authors' code, whose mean encoder is the identity and whose variance
    encoder is b_l alone. The copy stays in evaluation mode.
    """

    label = "MIRO"
    family = "penalty"
    cost = 1.34
    targets = "soft"
    per_sample = True
    keeps = "a frozen copy"

    class Config(BaseConfig):
        lam: float = search(0.1, None, paper=choice(0.001, 0.01, 0.1, 1.0), help="weight λ of the regularisation", ge=0)
        lr_mult: float = setting(10.0, help="learning rate of the variances, as a multiple of the network's", gt=0)

    def __init__(self, featurizer: nn.Module, classifier: nn.Module, n_domains: int, config: Config) -> None:
        super().__init__(featurizer, classifier, n_domains, config)
        self.initial = copy.deepcopy(featurizer).requires_grad_(False).eval()
        self.places = tuple(sections(featurizer))
        self.b = nn.ParameterList(_variances(self.initial, self.places, self.code_size))
        self.add_parameters(self.b, lr=config.lr * config.lr_mult)

    def train(self, mode: bool = True) -> Self:
        super().train(mode)
        self.initial.eval()
        return self

    def objective(self, batches: Batches) -> dict[str, Tensor]:
        x, y = batch_of(batches)
        z, f = features(self.featurizer, self.places, x)
        with torch.no_grad():
            _, f0 = features(self.initial, self.places, x)
        risk = cross_entropy(self.classifier(z), y)
        axes = _axes(self.places)
        gap = torch.stack([information_gap(*layer) for layer in zip(f, f0, self.b, axes, strict=True)]).sum()
        return {"loss": risk + self.config.lam * gap, "risk": risk, "gap": gap}


def features(network: nn.Module, places: tuple[Stage, ...], x: Tensor) -> tuple[Tensor, list[Tensor]]:
    """Return codes (n, d), and the outputs of the stem and of each of `places`; without places the codes alone."""
    with record_features(network, places) as recorded:
        z: Tensor = network(x)
    return z, recorded or [z]


def information_gap(f: Tensor, f0: Tensor, b: Tensor, axis: int) -> Tensor:
    """Compute ½ mean( (f − f⁰)²/σ² + log σ² ), σ² = softplus(b) + 10⁻⁵: Gaussian −log p(f⁰ | f) without its constant.

    f and f⁰ have one shape with c channels at `axis`; b (c,) has one number per channel.

    >>> b = torch.tensor([math.log(math.e - 1)])  # σ² = 1
    >>> round(float(information_gap(torch.ones(4, 1), torch.zeros(4, 1), b, axis=1)), 3)
    0.5
    """
    shape = [1] * f.ndim
    shape[axis] = -1
    variance = (softplus(widen(b)) + LEAST_VARIANCE).view(shape)
    return ((widen(f) - widen(f0)).square() / variance + variance.log()).mean() / 2


def _axes(places: tuple[Stage, ...]) -> list[int]:
    """Return the axis of the channels in each feature; the stem's output has the layout of the first section's."""
    return [place.end.axis for place in (*places[:1], *places)] or [1]


@torch.no_grad()
def _variances(network: nn.Module, places: tuple[Stage, ...], code_size: int) -> list[nn.Parameter]:
    """Compute b_l (c,) of every layer, at which σ² is `INITIAL_VARIANCE`."""
    start = math.log(math.expm1(INITIAL_VARIANCE - LEAST_VARIANCE))
    like = next(network.parameters(), torch.empty(()))
    channels = [code_size]
    if places:
        x = torch.zeros(2, *network.input_shape, dtype=like.dtype, device=like.device)  # type: ignore[misc]
        channels = [f.shape[axis] for f, axis in zip(features(network, places, x)[1], _axes(places), strict=True)]
    return [nn.Parameter(torch.full((c,), start, dtype=like.dtype, device=like.device)) for c in channels]
