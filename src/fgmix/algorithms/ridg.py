import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fgmix.algorithms import Algorithm, BaseConfig, Batches, batch_of, log_uniform, register, search
from fgmix.errors import UserError
from fgmix.networks.text import TextHead

_CACHED = 2**17  # elements of R̄ that are processed at a time on a CPU, 512 kB in float32


@register("ridg")
class RIDG(Algorithm):
    """Rationale invariance: the contributions of features to logits should agree within a class.

        R_i = W ∘ z_i  (C, d),  whose rows sum up to the logits (without bias)
        R̄_c ← (1 − m) R̄_c + m · mean_{i: y_i = c} R_i,  initialised with the first such mean
        L = CE + α Σ_c mean_{i: y_i = c} 1/C Σ_j ‖R_{i,j} − R̄_{c,j}‖²

    with W the weight of the linear classifier, R_i the rationale of sample i (each row of W times z_i, elementwise) and
    R̄_c the mean rationale of class c, updated before the loss is computed and constant in it. The sum over c is over
    the classes in the batch, the sum over j over the rows of a rationale.

    Chen et al., "Domain Generalization via Rationale Invariance", 2023, equations 2 to 5,
    https://arxiv.org/abs/2308.11158. Variant: the authors' code, a sum over classes and a mean over the rows of a
    rationale.
    """

    label = "RIDG"
    family = "penalty"
    cost = 1.0

    rationales: Tensor  # R̄ (C, C, d)
    seen: Tensor  # (C,), the classes whose R̄_c is initialised

    class Config(BaseConfig):
        alpha: float = search(
            0.01, None, paper=log_uniform(1e-2, 1e-1), help="weight α of the invariance of rationales", ge=0
        )
        momentum: float = search(
            0.001, None, paper=log_uniform(1e-4, 1e-1), help="share m of a batch in the mean rationales", ge=0, le=1
        )

    def __init__(self, featurizer: nn.Module, classifier: nn.Module, n_domains: int, config: BaseConfig) -> None:
        super().__init__(featurizer, classifier, n_domains, config)
        if not isinstance(classifier, nn.Linear):
            raise UserError(
                "RIDG expects a linear classifier, whose weights make the rationales. Found "
                f"{type(classifier).__name__}. Use --head linear."
            )
        C, d = classifier.weight.shape
        self.register_buffer("rationales", torch.zeros(C, C, d, dtype=classifier.weight.dtype))
        self.register_buffer("seen", torch.zeros(C, dtype=torch.bool))

    def objective(self, batches: Batches) -> dict[str, Tensor]:
        x, y = batch_of(batches)
        z: Tensor = self.featurizer(x)
        risk = cross_entropy(self.classifier(z), y)
        W: Tensor = self.classifier.weight  # type: ignore[assignment]
        z = z.to(W.dtype)
        if isinstance(self.classifier, TextHead):  # of which logits are sums of normalised factors
            W, z = self.classifier.factors(z)
        classes, of = self._visit(y)
        n_c = z.new_zeros(len(classes)).index_add(0, of, torch.ones_like(z[:, 0]))
        z_c = z.new_zeros(len(classes), z.shape[1]).index_add(0, of, z) / n_c.clamp_min(1).unsqueeze(1)
        # mean_i ‖W ∘ z_i − R̄_c‖² = ‖W ∘ z_c − R̄_c‖² + mean_i ‖W ∘ (z_i − z_c)‖², with z_c the mean code of the class.
        spread = ((z - z_c[of]).square() / n_c[of].unsqueeze(1)).sum(0)  # (d,)
        within = (W.square() * spread).sum()
        variance = (self._move_means(classes, W, z_c, n_c > 0) + within) / len(W)
        return {"loss": risk + self.config.alpha * variance, "risk": risk, "variance": variance}

    def _visit(self, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return the classes whose R̄_c are processed, and the position of each label among them.

        Those of the batch, or all if R̄ is small or on a GPU, where counting classes would synchronise.
        """
        if y.is_cpu and self.rationales.numel() > _CACHED:
            classes, position = y.unique(return_inverse=True)
            return classes, position
        return torch.arange(len(self.seen), device=y.device), y

    def _move_means(self, classes: Tensor, W: Tensor, z_c: Tensor, present: Tensor) -> Tensor:
        """Update R̄_c and return Σ_c ‖W ∘ z_c − R̄_c‖² after the update, differentiable in W and z_c.

        R̄_c + m (W ∘ z_c − R̄_c) leaves the difference (1 − m)(W ∘ z_c − R̄_c): one pass over R̄_c serves the update, the
        distance and its gradient.

        Args:
            classes: of `_visit`, (v,): all, or some that are processed one by one, so that R̄_c stays in the cache.
            W: weight of the classifier (C, d).
            z_c: mean codes of these classes (v, d).
            present: which of them are in the batch (v,).
        """
        m = torch.where(self.seen[classes], self.config.momentum, 1.0).to(W.dtype) * present
        left = (1 - m) * present
        with torch.no_grad():
            shares, z, z_left = m.view(-1, 1, 1), z_c.unsqueeze(1), (left.unsqueeze(1) * z_c).unsqueeze(1)
            every = len(classes) == len(self.seen)
            visits = [(slice(None),) * 2] if every else [(slice(i, i + 1), c) for i, c in enumerate(classes.tolist())]
            squares, W_gradient, z_gradient = torch.zeros_like(m), torch.zeros_like(W), torch.zeros_like(z_c)
            for v, c in visits:
                R = self.rationales[c].view(-1, *W.shape)
                apart = torch.addcmul(R, W, z[v], value=-1)  # R̄_c − W ∘ z_c
                R.addcmul_(apart, shares[v], value=-1)
                squares[v] = apart.square().sum((1, 2))
                z_gradient[v] = (apart * W).sum(1)
                W_gradient += (apart * z_left[v]).sum(0)
            self.seen[classes] |= present
        # Both products are zero and add the gradients.
        through_W = (-2 * W_gradient * (W - W.detach())).sum()
        through_z = (-2 * left.unsqueeze(1) * z_gradient * (z_c - z_c.detach())).sum()
        return (left.square() * squares).sum() + through_W + through_z
