from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fgmix.algorithms import Algorithm, BaseConfig, Batches, choice, register, search, setting


@register("mtl")
class MTL(Algorithm):
    """Marginal transfer learning: a classifier whose input includes an embedding of the sample's domain.

        L = Σ_e CE(h([z_e, m_e]), y_e),    m_e ← β · mean_i z_{e,i} + (1 − β) · m_e

    with z_e = g(x_e) the codes and m_e the embedding of domain e, updated before the loss, its old value constant; h is
    a linear layer with 2d inputs. A sample of an unknown domain is predicted with the mean of the source domains'
    embeddings.

    DomainBed's code overwrites the embedding with noise from N(0, 1), independent for each sample and entry, in
    training and in prediction. Training with noise is the default here too (`noise`); predictions then use the mean of
    the noise, 0, so that they are not random.

    Blanchard et al., "Domain Generalization by Marginal Transfer Learning", 2021, https://arxiv.org/abs/1711.07910.
    Variant: DomainBed's, a network in place of the paper's kernels; `noise=false` uses the embeddings.
    """

    label = "MTL"
    family = "context"
    cost = 1.0
    min_domains = 2
    targets = "soft"
    domainbed_name = "MTL"
    forms = {"embedding": {"noise": False}}

    classifier: WithEmbedding

    class Config(BaseConfig):
        ema: float = search(
            0.99,
            choice(0.5, 0.9, 0.99, 1.0),
            help="share β of the batch in a domain's embedding",
            domainbed="mtl_ema",
            ge=0,
            le=1,
        )
        noise: bool = setting(True, help="noise instead of the embedding, as in DomainBed's code")

    def __init__(self, featurizer: nn.Module, classifier: nn.Module, n_domains: int, config: Config) -> None:
        super().__init__(featurizer, classifier, n_domains, config)
        d = self.code_size
        self.classifier = WithEmbedding(nn.Linear(2 * d, self.n_classes), torch.zeros(n_domains, d), config.noise)
        self.optimizer = self.build_model_optimizer()

    def objective(self, batches: Batches) -> dict[str, Tensor]:
        z = self.encode(batches, alone=True)  # k tensors (b, d)
        m = [self.embedding(z_e, old) for z_e, old in zip(z, self.classifier.embeddings)]
        L = [cross_entropy(self.classifier.logits(z_e, m_e), y) for z_e, m_e, (_, y) in zip(z, m, batches)]
        self.classifier.embeddings = torch.stack([m_e.detach() for m_e in m])
        return {"loss": torch.stack(L).sum()}

    def embedding(self, z_e: Tensor, old: Tensor) -> Tensor:
        """Compute m_e (d,) = β · mean_i z_{e,i} + (1 − β) · m_e from a domain's codes z_e (b, d) and old embedding."""
        m_e: Tensor = self.config.ema * z_e.mean(0) + (1 - self.config.ema) * old
        return m_e


class WithEmbedding(nn.Module):
    """h: logits of [z, m], with m the mean of the domains' embeddings, or 0 if training uses noise instead of them.

    `head` maps [z, m] (n, 2d) to logits; the embeddings m_e (k, d) are a buffer.
    """

    embeddings: Tensor

    def __init__(self, head: nn.Linear, embeddings: Tensor, noise: bool) -> None:
        super().__init__()
        self.head = head
        self.noise = noise
        self.register_buffer("embeddings", embeddings)

    def forward(self, z: Tensor) -> Tensor:
        m = self.embeddings.mean(0)
        return self._of_both(z, (torch.zeros_like(m) if self.noise else m).expand_as(z))

    def logits(self, z: Tensor, m: Tensor) -> Tensor:
        """Compute logits in training, of codes z (n, d) of one domain and its embedding m (d,)."""
        return self._of_both(z, torch.randn_like(z) if self.noise else m.expand_as(z))

    def _of_both(self, z: Tensor, m: Tensor) -> Tensor:
        logits: Tensor = self.head(torch.cat([z, m.to(z.dtype)], 1))
        return logits
