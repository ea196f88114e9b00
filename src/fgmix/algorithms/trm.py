"""The method TRM."""

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, linear, one_hot

from fgmix.algorithms._base import Algorithm, Batches
from fgmix.algorithms._config import BaseConfig, log_uniform, search
from fgmix.algorithms._registry import register

HEAD_STEPS, HEAD_LR = 30, 0.1  # of plain gradient descent on the heads, in every step
NEUMANN_TERMS, NEUMANN_LIMIT = 10, 10.0


@register("trm")
class TRM(Algorithm):
    """Transfer risk minimization: the best classifier of one source domain should have a low risk on the others.

    A linear head h_q for each domain q is trained on the codes of its domain by 30 steps of gradient descent. Then

        L = CE + 1/k Σ_q ( Σ_{e≠q} α_{qe} L_e(h_q) − λ · vᵀ ∂L_q(h_q)/∂W_q ),   v ≈ H_q⁻¹ Σ_{e≠q} α_{qe} ∂L_e(h_q)/∂W_q

    with L_e(h_q) the cross-entropy of domain e under the head of domain q, W_q its weights, H_q the Hessian of L_q(h_q)
    in them, and v constant: the term with λ accounts for the change of the best W_q when the codes change. Each row of
    the weights α of the pairs is normalised to sum 1 before the loss, and then α_{qe} ← α_{qe} exp(η α_{qe} L_e(h_q));
    gradients of Σ α_{qe} L_e(h_q) use the updated α. Before step `anneal` the method is ERM.

    v is a Neumann series, v_{n+1} = v_n − H_q v_n, summed as 2v₁ + v₂ + … + v₁₀; no term is added once an entry of the
    sum exceeds 10 in absolute value. For a linear head under cross-entropy, with codes Z (n, d) and p = softmax, all
    derivatives have closed forms, ∂L/∂W = (p − onehot)ᵀ Z/n and H v = Sᵀ Z/n with S = p ∘ (Z vᵀ − Σ_c p_c (Z vᵀ)_c).

    Xu and Jaakkola, "Learning Representations that Support Robust Transfer of Predictors", 2021,
    https://arxiv.org/abs/2110.09940. Variant: DomainBed's, which is the authors'; a Neumann series would begin with v₀.
    """

    label = "TRM"
    year = 2021
    paper = "https://arxiv.org/abs/2110.09940"
    family = "meta-learning"
    cost = 1.0
    domainbed_name = "TRM"
    min_domains = 2
    at_work = {"anneal": 0}
    delayed = {"anneal": "the transfer risk"}

    alpha: Tensor  # α (k, k), zero on the diagonal

    class Config(BaseConfig):
        lam: float = search(
            1e-4, log_uniform(1e-5, 1), help="weight λ of the term with v", domainbed="cos_lambda", ge=0
        )
        anneal: int = search(
            200,
            log_uniform(1, 1e4, integer=True),
            help="first step with the transfer loss; ERM before",
            domainbed="iters",
            ge=0,
        )
        eta: float = search(
            1e-2, log_uniform(1e-3, 1e-1), help="step size η of the pairs' weights", domainbed="groupdro_eta", ge=0
        )

    config: Config  # narrows the base's type

    def __init__(self, featurizer: nn.Module, classifier: nn.Module, n_domains: int, config: Config) -> None:
        super().__init__(featurizer, classifier, n_domains, config)
        self.heads = nn.ModuleList(nn.Linear(self.code_size, self.n_classes) for _ in range(n_domains))
        self.heads.requires_grad_(False)  # trained by `follow`, not by the optimiser
        self.register_buffer("alpha", torch.ones(n_domains, n_domains) - torch.eye(n_domains))

    def objective(self, batches: Batches) -> dict[str, Tensor]:
        z, labels = self.encode(batches), [y for _, y in batches]  # k tensors (b, d), one forward pass
        risk = cross_entropy(self.classifier(torch.cat(z)), torch.cat(labels))
        if self.updates < self.config.anneal:
            return {"loss": risk, "risk": risk, "transfer": torch.zeros_like(risk)}
        with torch.autocast(risk.device.type, enabled=False):  # second derivatives: half precision is too coarse
            transfer = self.transfer_risk([z_e.to(self.alpha.dtype) for z_e in z], labels)
        return {"loss": risk + transfer, "risk": risk, "transfer": transfer}

    def transfer_risk(self, z: list[Tensor], y: list[Tensor]) -> Tensor:
        """Compute 1/k Σ_q (…) for codes z and labels y of each domain; train the heads first, and update α last."""
        alpha = self.alpha / self.alpha.sum(1, keepdim=True)
        terms, updated = [], []
        for q, head in enumerate(self.heads):
            assert isinstance(head, nn.Linear)
            follow(head, z[q].detach(), y[q])
            o = [linear(z_e, head.weight, head.bias) for z_e in z]
            risks = torch.stack([cross_entropy(o_e, y_e) for o_e, y_e in zip(o, y)])
            after = alpha[q] * torch.exp(self.config.eta * alpha[q] * risks.detach())  # 0 for e = q
            # DomainBed multiplies by a view of α, which it updates in place before `backward`: the loss has α, its
            # gradient α after the update.
            weighted = after * risks + ((alpha[q] - after) * risks).detach()
            g = [weight_gradient(*each) for each in zip(z, o, y)]
            of_others = torch.stack([a * g_e.detach() for a, g_e in zip(alpha[q], g)]).sum(0)
            v = neumann(of_others, z[q].detach(), o[q].detach())
            terms.append(weighted.sum() - self.config.lam * (v * g[q]).sum())
            updated.append(after)
        self.alpha = torch.stack(updated)
        return torch.stack(terms).mean()


@torch.no_grad()
def follow(head: nn.Linear, Z: Tensor, y: Tensor) -> None:
    """Train a linear head by `HEAD_STEPS` steps of gradient descent on its cross-entropy at constant codes Z (n, d)."""
    for _ in range(HEAD_STEPS):
        R = head(Z).softmax(1) - one_hot(y, head.out_features)
        head.weight.sub_(HEAD_LR * R.T @ Z / len(Z))
        head.bias.sub_(HEAD_LR * R.mean(0))


def weight_gradient(Z: Tensor, o: Tensor, y: Tensor) -> Tensor:
    """Compute ∂L/∂W (C, d) of the mean cross-entropy of logits o = Z Wᵀ + b, differentiable in Z and o.

    >>> weight_gradient(torch.tensor([[2.0]]), torch.zeros(1, 2), torch.tensor([0])).tolist()
    [[-1.0], [1.0]]
    """
    return (o.softmax(1) - one_hot(y, o.shape[1])).T @ Z / len(Z)


@torch.no_grad()
def neumann(v: Tensor, Z: Tensor, o: Tensor) -> Tensor:
    """Compute 2v₁ + v₂ + … ≈ H⁻¹ v of a linear head's Hessian H at codes Z and logits o, with v_{n+1} = v_n − H v_n.

    No term is added once an entry exceeds the limit. `where` instead of `if` avoids GPU synchronisation. v is v₀ (C,
    d), Z (n, d) and o (n, C).
    """
    p = o.softmax(1)

    def next_term(v: Tensor) -> Tensor:
        A = Z @ v.T
        return v - (p * (A - (p * A).sum(1, keepdim=True))).T @ Z / len(Z)

    v = next_term(v)
    total = 2 * v
    for _ in range(NEUMANN_TERMS - 1):
        v = next_term(v)
        total = torch.where(total.abs().max() > NEUMANN_LIMIT, total, total + v)
    return total
