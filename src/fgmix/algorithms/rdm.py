from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from fgmix.algorithms import Algorithm, BaseConfig, Batches, Searched, register, search, uniform
from fgmix.functional import require_two, widen
from fgmix.functional.kernels import BANDWIDTHS, mmd

GAMMAS = (1e-4, *BANDWIDTHS)  # DomainBed's for RDM: one more than for MMD


@register("rdm")
class RDM(Algorithm):
    """Risk distribution matching: match the per-sample risks in the worst source domain to those in all domains.

        L = mean_e L_e + λ_t · MMD²(r_w, r) + ν_t · (var r + var r_w),    w = argmax_e L_e

    with r_{e,i} the cross-entropy of sample i of domain e, L_e their mean, r those of all domains together, var the
    unbiased variance and MMD² the squared maximum mean discrepancy of the kernel Σ_s exp(−s (·)²), s = 1e-4, …, 1e3.
    λ_t and ν_t are 0 before step `anneal`, λ and ν from then on; at that step Adam is reset and gets the learning rate
    `lr_after`.

    Nguyen et al., "Domain Generalisation via Risk Distribution Matching", 2024, https://arxiv.org/abs/2310.18598.
    Variant: DomainBed's, which is the authors'.
    """

    label = "RDM"
    family = "penalty"
    cost = 1.0
    min_domains = 2
    targets = "soft"
    domainbed_name = "RDM"
    delayed = {"anneal": "the penalty"}
    restarts = ("anneal",)

    class Config(BaseConfig):
        lam: float = search(5.0, uniform(0.1, 10.0), help="weight λ of the matching", domainbed="rdm_lambda", ge=0)
        variance_weight: float = search(
            0.004, uniform(0.001, 0.007), help="weight ν of the risks' variances", domainbed="variance_weight", ge=0
        )
        anneal: int = search(
            1500,
            uniform(800, 2700, integer=True),
            help="step from which the weights are λ and ν instead of 0",
            domainbed="rdm_penalty_anneal_iters",
            ge=0,
        )
        lr_after: float = search(
            1.5e-5, uniform(8e-6, 2e-5), help="learning rate from step `anneal` on", domainbed="rdm_lr", gt=0
        )

    @classmethod
    def domainbed_space(cls, dataset: str, kind: str) -> Mapping[str, Searched]:
        space = {}
        if dataset in ("PACS", "TerraIncognita"):
            space["lam"] = Searched("rdm_lambda", 5.0, uniform(1.0, 10.0))
        if dataset == "DomainNet":
            space["lam"] = Searched("rdm_lambda", 0.5, uniform(0.1, 1.0))
            space["anneal"] = Searched("rdm_penalty_anneal_iters", 2400, uniform(1500, 3000, integer=True))
        if dataset in ("TerraIncognita", "OfficeHome", "DomainNet"):
            space["variance_weight"] = Searched("variance_weight", 0.0, None)
        if kind == "images":
            fewer = dataset in ("DomainNet", "TerraIncognita")
            size = (40, uniform(30, 60, integer=True)) if fewer else (88, uniform(70, 100, integer=True))
            space["batch_size"] = Searched("batch_size", *size)
        return space

    def objective(self, batches: Batches) -> dict[str, Tensor]:
        logits = [widen(self.classifier(z_e)) for z_e in self.encode(batches)]
        r = [cross_entropy(o, y, reduction="none") for o, (_, y) in zip(logits, batches)]  # k tensors (b,)
        risk = torch.stack([r_e.mean() for r_e in r]).mean()
        active = self.updates >= self.config.anneal
        with torch.set_grad_enabled(active):  # before step `anneal` the penalties are only reported
            matching, variance = matching_and_variance(r)
        penalty = self.config.lam * matching + self.config.variance_weight * variance
        return {"loss": risk + penalty if active else risk, "risk": risk, "matching": matching, "variance": variance}


def matching_and_variance(r: list[Tensor]) -> tuple[Tensor, Tensor]:
    """Compute MMD²(r_w, r) and var r + var r_w, with w the domain with the highest mean risk.

    r are the risks of each domain's samples, k tensors (b_e,); longer ones are cut to the shortest.

    >>> matching, variance = matching_and_variance([torch.tensor([1.0, 1.0]), torch.tensor([1.0, 1.0])])
    >>> matching.item(), variance.item()
    (0.0, 0.0)
    """
    b = min(map(len, r))
    require_two(b, "A variance")
    R = torch.stack([r_e[:b] for r_e in r])  # (k, b)
    worst = R.index_select(0, R.mean(1).argmax().view(1)).flatten()  # not R[i], which would synchronise with the GPU
    return mmd([worst[:, None], R.flatten()[:, None]], GAMMAS), R.var() + worst.var()
