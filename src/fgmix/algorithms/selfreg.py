import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, mse_loss

from fgmix.algorithms import Algorithm, BaseConfig, Batches, batch_of, register, setting
from fgmix.functional import require_two

FEATURE_WEIGHT = 0.3  # of the terms on codes, relative to those on logits; the authors' constant


@register("selfreg")
class SelfReg(Algorithm):
    """Pull samples of the same class together, across domains, by self-supervised regression.

        z = g(x),  o = h(z),  q = P(z);    s, r: random permutations within each class;    λ ~ Beta(½, ½)
        R_ind = MSE(o, o_s) + 0.3 MSE(z, q_s)
        R_hdl = MSE(o, λ o_s + (1 − λ) o_r) + 0.3 MSE(z, λ q_s + (1 − λ) q_r)
        L = CE + min(CE, 1) · (λ R_ind + (1 − λ) R_hdl),  the factor min(CE, 1) constant

    o_s, q_s are the logits and projections of the partners under s. P projects the code of the partner only: Linear,
    BatchNorm, ReLU, twice, then Linear, BatchNorm. MSE is the mean over samples and entries. One λ per step.
    In the code R_ind is `individual` and R_hdl `hybrid`. A step needs one forward pass of the featurizer.

    Kim et al., "SelfReg: Self-supervised Contrastive Regularization for Domain Generalization", 2021,
    https://arxiv.org/abs/2104.09841. Variant: DomainBed's, where P keeps its random weights; `train_projection` trains
    P, as in the authors' code. Their curriculum over domains is left out.
    """

    label = "SelfReg"
    family = "penalty"
    cost = 1.0
    domainbed_name = "SelfReg"

    class Config(BaseConfig):
        train_projection: bool = setting(False, help="train the projection P (the authors' code); DomainBed does not")

    def __init__(self, featurizer: nn.Module, classifier: nn.Module, n_domains: int, config: Config) -> None:
        super().__init__(featurizer, classifier, n_domains, config)
        self.projection = projection(self.code_size)
        if config.train_projection:
            self.add_parameters(self.projection.parameters())
        else:
            self.projection.requires_grad_(False)

    def objective(self, batches: Batches) -> dict[str, Tensor]:
        x, y = batch_of(batches)
        require_two(len(y), "selfreg, which normalises over the batch,")
        z = self.featurizer(x)
        o, q = self.classifier(z), self.projection(z)
        s, r = same_class_permutation(y), same_class_permutation(y)
        lam = torch.distributions.Beta(0.5, 0.5).sample()

        o_mix, q_mix = lam * o[s] + (1 - lam) * o[r], lam * q[s] + (1 - lam) * q[r]

        individual = mse_loss(o, o[s]) + FEATURE_WEIGHT * mse_loss(z, q[s])
        hybrid = mse_loss(o, o_mix) + FEATURE_WEIGHT * mse_loss(z, q_mix)
        risk = cross_entropy(o, y)
        loss = risk + risk.detach().clamp(max=1) * (lam * individual + (1 - lam) * hybrid)
        return {"loss": loss, "risk": risk, "individual": individual, "hybrid": hybrid}


def projection(d: int) -> nn.Sequential:
    """Build P: d → hidden → hidden → d with hidden = 2d, or d for d = 2048 (ResNet-50), as in DomainBed."""
    hidden = d if d == 2048 else 2 * d
    first = nn.Linear(d, hidden), nn.BatchNorm1d(hidden), nn.ReLU(inplace=True)
    second = nn.Linear(hidden, hidden), nn.BatchNorm1d(hidden), nn.ReLU(inplace=True)
    return nn.Sequential(*first, *second, nn.Linear(hidden, d), nn.BatchNorm1d(d))


def same_class_permutation(y: Tensor) -> Tensor:
    """Return a permutation π, uniform among those with y[π] = y: each sample's partner has its class.

    Sorting by class twice, once from a shuffled order, puts the samples of every class in the same positions.

    >>> y = torch.tensor([2, 0, 2, 1])
    >>> torch.equal(y[same_class_permutation(y)], y)
    True
    """
    shuffle = torch.randperm(len(y), device=y.device)
    partners = shuffle[y[shuffle].argsort(stable=True)]
    return torch.empty_like(partners).scatter_(0, y.argsort(stable=True), partners)
