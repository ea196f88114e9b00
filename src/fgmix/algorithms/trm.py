import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, one_hot
from torch.nn.utils.rnn import pad_sequence

from fgmix.algorithms import Algorithm, BaseConfig, Batches, log_uniform, register, search

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
    family = "meta-learning"
    cost = 1.0
    domainbed_name = "TRM"
    min_domains = 2
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
        """Compute 1/k Σ_q (…) for codes z and labels y of each domain; train the heads first, and update α last.

        All heads are computed at once, on batches that are padded to one length b; the share of padding in a mean is 0.
        """
        Z, k = pad_sequence(z, batch_first=True), len(z)  # (k, b, d)
        share = pad_sequence([torch.full_like(z_e[:, 0], 1 / len(z_e)) for z_e in z], batch_first=True).unsqueeze(2)
        labels = pad_sequence(y, batch_first=True)
        target = one_hot(labels, self.n_classes).to(Z.dtype)  # (k, b, C)
        W, bias = self._train_heads(Z.detach(), target, share)

        o = (Z @ W.flatten(0, 1).T + bias.flatten()).unflatten(2, (k, -1))  # (e, b, q, C): every code under every head
        surprise = -o.log_softmax(3).gather(3, labels[:, :, None, None].expand(-1, -1, k, 1)).squeeze(3)
        risks = (surprise * share).sum(1).T  # L_e(h_q), (q, e)
        alpha = self.alpha / self.alpha.sum(1, keepdim=True)
        after = alpha * torch.exp(self.config.eta * alpha * risks.detach())  # 0 for e = q
        # DomainBed multiplies by a view of α, which it updates in place before `backward`: the loss has α, its
        # gradient α after the update.
        weighted = after * risks + ((alpha - after) * risks).detach()
        R = (o.detach().softmax(3) - target.unsqueeze(2)) * share.unsqueeze(3) * alpha.T[:, None, :, None]
        of_others = (R.flatten(2).flatten(0, 1).T @ Z.detach().flatten(0, 1)).unflatten(0, (k, -1))  # (q, C, d)
        own = o.diagonal(dim1=0, dim2=2).permute(2, 0, 1)  # (k, b, C): every domain under its own head
        v = neumann(of_others, Z.detach(), own.detach(), share)
        self.alpha = after
        through_heads = (v * weight_gradient(Z, own, target, share)).sum()
        transfer: Tensor = (weighted.sum() - self.config.lam * through_heads) / k
        return transfer

    @torch.no_grad()
    def _train_heads(self, Z: Tensor, target: Tensor, share: Tensor) -> tuple[Tensor, Tensor]:
        """Train every head on the codes of its domain; returns their weights (k, C, d) and biases (k, C)."""
        heads = [head for head in self.heads if isinstance(head, nn.Linear)]
        W, bias = torch.stack([head.weight for head in heads]), torch.stack([head.bias for head in heads])
        follow(W, bias, Z, target, share)
        for head, W_q, bias_q in zip(heads, W, bias, strict=True):
            head.weight.copy_(W_q)
            head.bias.copy_(bias_q)
        return W, bias


@torch.no_grad()
def follow(W: Tensor, bias: Tensor, Z: Tensor, target: Tensor, share: Tensor) -> None:
    """Train k linear heads in place, by `HEAD_STEPS` steps of gradient descent on the cross-entropy of constant codes.

    W is (k, C, d) and bias (k, C); codes Z (k, b, d) have the one-hot classes `target` (k, b, C) and the weights
    `share` (k, b, 1) in the mean.
    """
    for _ in range(HEAD_STEPS):
        R = (torch.baddbmm(bias.unsqueeze(1), Z, W.mT).softmax(2) - target) * share
        W.baddbmm_(R.mT, Z, alpha=-HEAD_LR)
        bias.sub_(R.sum(1), alpha=HEAD_LR)


def weight_gradient(Z: Tensor, o: Tensor, target: Tensor, share: Tensor) -> Tensor:
    """Compute ∂L/∂W (k, C, d) of the mean cross-entropy of logits o = Z Wᵀ + b, differentiable in Z and o.

    Shapes are those of `follow`, with o (k, b, C).

    >>> target, share = torch.tensor([[[1.0, 0.0]]]), torch.ones(1, 1, 1)
    >>> weight_gradient(torch.tensor([[[2.0]]]), torch.zeros(1, 1, 2), target, share).tolist()
    [[[-1.0], [1.0]]]
    """
    return ((o.softmax(2) - target) * share).mT @ Z


@torch.no_grad()
def neumann(v: Tensor, Z: Tensor, o: Tensor, share: Tensor) -> Tensor:
    """Compute 2v₁ + v₂ + … ≈ H⁻¹ v of the Hessian H of each of k linear heads, with v_{n+1} = v_n − H v_n.

    No term is added once an entry exceeds the limit. `where` instead of `if` avoids GPU synchronisation. v is v₀ (k, C,
    d); codes Z, logits o and shares as in `weight_gradient`.
    """
    p = o.softmax(2)

    def next_term(v: Tensor) -> Tensor:
        A = Z @ v.mT
        return torch.baddbmm(v, (p * (A - (p * A).sum(2, keepdim=True)) * share).mT, Z, alpha=-1)

    v = next_term(v)
    total = 2 * v
    for _ in range(NEUMANN_TERMS - 1):
        v = next_term(v)
        total = torch.where(total.abs().amax((1, 2), keepdim=True) > NEUMANN_LIMIT, total, total + v)
    return total
