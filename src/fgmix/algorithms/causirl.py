from collections.abc import Sequence

import torch
from torch import Tensor

from fgmix.algorithms import Algorithm, BaseConfig, Batches, log_uniform, register, search
from fgmix.functional.domains import domain_risks
from fgmix.functional.kernels import mmd
from fgmix.functional.moments import moment_distance


@register("causirl_coral")
class CausIRLCORAL(Algorithm):
    """Match mean and covariance of the codes of two random mixtures of the source domains.

        L = mean_e L_e + γ · ( mean (μ_A − μ_B)² + mean (C_A − C_B)² ),    A = ∪_e z_e[:s_e],  B = ∪_e z_e[s_e:]

    with L_e the cross-entropy and z_e the codes of domain e, split at a random position s_e; μ and C are means and
    covariances of codes (see `coral`). The mixtures contain the domains in random proportions and so act as
    interventions on the domain, under which codes that depend on the causes alone do not change. There is no penalty if
    one of them has fewer than two codes.

    Chevalley et al., "Invariant Causal Mechanisms through Distribution Matching", 2022,
    https://arxiv.org/abs/2206.11646. Variant: DomainBed's, which is the authors'.
    """

    label = "CausIRL-CORAL"
    domainbed_name = "CausIRL_CORAL"
    family = "alignment"
    cost = 1.0
    min_domains = 2
    targets = "soft"

    class Config(BaseConfig):
        gamma: float = search(
            1.0, log_uniform(1e-1, 1e1), help="weight γ of the alignment", domainbed="mmd_gamma", ge=0
        )

    def objective(self, batches: Batches) -> dict[str, Tensor]:
        z = self.encode(batches, alone=True)  # k tensors (b, d)
        risk = domain_risks(map(self.classifier, z), batches).mean()
        a, b = random_mixtures(z)
        gap = self.distance(a, b) if min(len(a), len(b)) > 1 else risk.new_zeros(())
        return {"loss": risk + self.config.gamma * gap, "risk": risk, "gap": gap}

    def distance(self, a: Tensor, b: Tensor) -> Tensor:
        """Compute d(A, B) of codes (n, d) and (m, d), at least two each."""
        return moment_distance([a, b])


@register("causirl_mmd")
class CausIRLMMD(CausIRLCORAL):
    """Match the code distributions of two random mixtures of the source domains by the maximum mean discrepancy.

        L = mean_e L_e + γ · MMD²(A, B),    A = ∪_e z_e[:s_e],  B = ∪_e z_e[s_e:]

    with L_e the cross-entropy and z_e the codes of domain e, split at a random position s_e; MMD² as in `mmd`.

    Chevalley et al., "Invariant Causal Mechanisms through Distribution Matching", 2022,
    https://arxiv.org/abs/2206.11646. Variant: DomainBed's, which is the authors'.
    """

    label = "CausIRL-MMD"
    domainbed_name = "CausIRL_MMD"

    def distance(self, a: Tensor, b: Tensor) -> Tensor:
        return mmd([a, b])


def random_mixtures(z: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """Return A and B: the codes of every domain before a random position, and those from it on.

    >>> a, b = random_mixtures([torch.zeros(3, 2), torch.ones(4, 2)])
    >>> len(a) + len(b), len(b) >= 2
    (7, True)
    """
    cuts = [int(torch.randint(len(z_e), ())) for z_e in z]
    return torch.cat([z_e[:s] for z_e, s in zip(z, cuts)]), torch.cat([z_e[s:] for z_e, s in zip(z, cuts)])
