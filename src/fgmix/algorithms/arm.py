from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fgmix.algorithms import Algorithm, BaseConfig, Batches, Searched, batch_of, register, setting
from fgmix.errors import UserError


@register("arm")
class ARM(Algorithm):
    """Adaptive risk minimization: the network also receives a context computed from the images of the batch.

        L = CE(h(g([x_{e,i}, c̄_e])), y_{e,i}),    c̄_e = mean_j c(x_{e,j})

    with c a small network from an image to one channel of its size, and c̄_e its mean over the batch of domain e, which
    is appended to every image as an extra channel. A prediction uses the mean context of its batch; a single image is
    its own context.

    Zhang et al., "Adaptive Risk Minimization: Learning to Adapt to Domain Shift", 2021,
    https://arxiv.org/abs/2007.02931. Variant: the paper's ARM-CML as in DomainBed, where c keeps its random weights
    (no optimiser updates it); `train_context` trains it.
    """

    label = "ARM"
    family = "context"
    cost = 2.04
    targets = "soft"
    domainbed_name = "ARM"
    needs_stages = True  # it needs a first convolution, which networks of arrays lack

    featurizer: InContext

    class Config(BaseConfig):
        train_context: bool = setting(False, help="train the context network (the authors' code); DomainBed does not")

    def __init__(self, featurizer: nn.Module, classifier: nn.Module, n_domains: int, config: Config) -> None:
        in_context = InContext(featurizer)
        in_context.context.requires_grad_(config.train_context)
        super().__init__(in_context, classifier, n_domains, config)

    @classmethod
    def domainbed_space(cls, dataset: str, kind: str) -> dict[str, Searched]:  # noqa: ARG003 (the same for all)
        return {"batch_size": Searched("batch_size", 8, None)} if kind == "images" else {}

    def objective(self, batches: Batches) -> dict[str, Tensor]:
        x, y = batch_of(batches)
        z = self.featurizer(x, sizes=[len(y_e) for _, y_e in batches])
        return {"loss": cross_entropy(self.classifier(z), y)}


class InContext(nn.Module):
    """z_i = g([x_i, c̄]),   c̄ = mean_j c(x_j) over the samples j of the same group.

    The context network c maps an image to one channel of its size, for which the first convolution of g is widened.

    `net` is g, whose first layer is a convolution. It is modified in place.

    >>> g = InContext(nn.Sequential(nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten()))
    >>> g(torch.zeros(5, 3, 8, 8), sizes=[2, 3]).shape
    torch.Size([5, 4])
    """

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.context = context_network(_widen_first_convolution(net))
        self.net = net
        self.out_features: int | None = getattr(net, "out_features", None)

    def forward(self, x: Tensor, sizes: Sequence[int] | None = None) -> Tensor:
        """Return codes of images x (n, c, h, w) in consecutive groups of `sizes`; None for one group."""
        context: Tensor = self.context(x)  # (n, 1, h, w)
        groups = context.split(list(sizes)) if sizes else (context,)
        means = torch.cat([c.mean(0, keepdim=True).expand_as(c) for c in groups])
        z: Tensor = self.net(torch.cat([x, means.to(x.dtype)], 1))
        return z


def context_network(channels: int, width: int = 64) -> nn.Module:
    """Build c: three 5×5 convolutions with batch norm and ReLU between them, and one output channel.

    >>> context_network(3)(torch.zeros(2, 3, 8, 8)).shape
    torch.Size([2, 1, 8, 8])
    """
    return nn.Sequential(
        nn.Conv2d(channels, width, 5, padding=2),
        nn.BatchNorm2d(width),
        nn.ReLU(),
        nn.Conv2d(width, width, 5, padding=2),
        nn.BatchNorm2d(width),
        nn.ReLU(),
        nn.Conv2d(width, 1, 5, padding=2),
    )


def _widen_first_convolution(net: nn.Module) -> int:
    """Add an input channel to the first convolution, with the weights of its first channel; return the old number."""
    first = next((m for m in net.modules() if isinstance(m, nn.Conv2d)), None)
    if first is None or first.groups != 1:
        raise UserError(
            "Expected a network of images whose first layer is a convolution, which gets one more channel. "
            "Found none. Use a network such as small_cnn or resnet50."
        )
    channels, weight = first.in_channels, first.weight
    wider = torch.cat([weight.detach(), weight.detach()[:, :1]], 1)
    first.weight = nn.Parameter(wider, requires_grad=weight.requires_grad)  # frozen stays frozen
    first.in_channels = channels + 1
    return channels
