import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, normalize

from fgmix.algorithms import Algorithm, BaseConfig, Batches, batch_of, choice, domains_of, register, search, setting
from fgmix.functional import widen

BASE_TEMPERATURE = 0.07  # the authors'; the bottleneck is scaled by T / 0.07


@register("cad")
class CAD(Algorithm):
    """Contrastive adversarial domain bottleneck: a code's domain cannot be inferred from its neighbours.

        L = CE − λ · T/0.07 · mean_i log ( Σ_{j: e_j ≠ e_i} exp(z_i·z_j/T) / Σ_{j≠i} exp(z_i·z_j/T) )

    with e_i the domain of sample i; the mean is over samples that have another of their class in the batch. With
    `flipped=false`, the numerator is over e_j = e_i and the term is added.

    Ruan et al., "Optimal Representations for Covariate Shift", 2022, https://arxiv.org/abs/2201.00057. Variant:
    DomainBed's, which is the authors'; with `flipped=false` the numerator counts i itself, with similarity 0.
    """

    label = "CAD"
    domainbed_name = "CAD"
    family = "adversarial"
    cost = 1.0
    min_domains = 2

    class Config(BaseConfig):
        lam: float = search(
            0.1,
            choice(1e-4, 1e-3, 1e-2, 1e-1, 1.0, 1e1, 1e2),
            help="weight λ of the bottleneck",
            domainbed="lmbda",
            ge=0,
        )
        temperature: float = search(0.1, choice(0.05, 0.1), help="temperature T of the similarities", gt=0)
        normalized: bool = setting(False, help="compare codes of unit length", domainbed="is_normalized")
        flipped: bool = setting(
            True, help="raise the share of other domains instead of lowering that of the own", domainbed="is_flipped"
        )

    def objective(self, batches: Batches) -> dict[str, Tensor]:
        x, y = batch_of(batches)
        z = self.featurizer(x)
        risk = cross_entropy(self.classifier(z), y)
        bottleneck = self.bottleneck(z, y, domains_of(batches))
        return {"loss": risk + self.config.lam * bottleneck, "risk": risk, "bottleneck": bottleneck}

    def bottleneck(self, z: Tensor, y: Tensor, domain: Tensor) -> Tensor:
        """Compute the mean over the samples that have others to compare with; 0 if there are none."""
        same_class, same_domain = y[:, None] == y, domain[:, None] == domain
        other = ~torch.eye(len(y), dtype=torch.bool, device=y.device)
        compared, counted, wanted = self.masks(same_class & other, same_domain, other)
        s = self.similarities(z)
        share = masked_logsumexp(s, counted) - masked_logsumexp(s, compared)  # log of a share of the similarities
        loss = (-share if self.config.flipped else share) * self.config.temperature / BASE_TEMPERATURE
        has_any = wanted.any(1) & counted.any(1)
        return torch.where(has_any, loss, 0).sum() / has_any.sum().clamp(min=1)

    def similarities(self, z: Tensor) -> Tensor:
        """Compute z_i·z_j / T (n, n), 0 on the diagonal, as DomainBed has it."""
        with torch.autocast(z.device.type, enabled=False):  # scores up to hundreds: half precision is too coarse
            z = normalize(widen(z), dim=1) if self.config.normalized else widen(z)
            s = (z @ z.T).div(self.config.temperature)
        return s - torch.diag(s.diagonal())

    def masks(self, same_class: Tensor, same_domain: Tensor, other: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Build masks (n, n): samples compared with, those whose share counts, those of which at least one must exist.

        The arguments, all (n, n), are others of the same class; samples of the same domain, the sample itself among
        them; and all but the sample itself.
        """
        return other, ~same_domain if self.config.flipped else same_domain, same_class


@register("condcad")
class CondCAD(CAD):
    """CAD within classes: a code's domain cannot be inferred from its neighbours of the same class.

        L = CE − λ · T/0.07 · mean_i log ( Σ_{j in C_i: e_j ≠ e_i} exp(z_i·z_j/T) / Σ_{j in C_i} exp(z_i·z_j/T) )

    with e_i the domain of sample i and C_i the other samples of its class; the mean is over samples that have another
    of their class in another domain. With `flipped=false`, the numerator is over e_j = e_i and the term is added.

    Ruan et al., "Optimal Representations for Covariate Shift", 2022, https://arxiv.org/abs/2201.00057. Variant:
    DomainBed's, which is the authors'.
    """

    label = "CondCAD"
    domainbed_name = "CondCAD"

    def masks(self, same_class: Tensor, same_domain: Tensor, other: Tensor) -> tuple[Tensor, Tensor, Tensor]:  # noqa: ARG002 (CAD's)
        counted = same_class & (~same_domain if self.config.flipped else same_domain)
        return same_class, counted, counted


def masked_logsumexp(s: Tensor, mask: Tensor) -> Tensor:
    """Compute log Σ_{j in mask_i} exp s_ij (n,); an empty row gives an arbitrary finite number, and no NaN gradients.

    >>> masked_logsumexp(torch.zeros(1, 3), torch.tensor([[True, False, True]])).exp().item()
    2.0
    """
    mask = mask | ~mask.any(1, keepdim=True)
    return torch.where(mask, s, -torch.inf).logsumexp(1)
