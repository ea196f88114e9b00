"""The method ARM."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fgmix.algorithms._base import Algorithm, Batches, batch_of
from fgmix.algorithms._config import BaseConfig, Searched, setting
from fgmix.algorithms._registry import register
from fgmix.networks.context import InContext


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
    year = 2021
    paper = "https://arxiv.org/abs/2007.02931"
    family = "context"
    cost = 2.04
    domainbed_name = "ARM"
    needs_stages = True  # it needs a first convolution, which networks of arrays lack

    featurizer: InContext

    class Config(BaseConfig):
        train_context: bool = setting(False, help="train the context network (the authors' code); DomainBed does not")

    config: Config  # narrows the base's type

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
