from torch import Tensor
from torch.nn.functional import cross_entropy

from fgmix.algorithms import Algorithm, BaseConfig, Batches, batch_of, log_uniform, register, search
from fgmix.functional import widen


@register("sd")
class SD(Algorithm):
    """Spectral decoupling: penalise large logits, so that a feature learned early does not suppress the others.

        L = CE(o, y) + λ · mean o²,    o = h(g(x))

    with o the logits and the mean over samples and classes. Cross-entropy saturates once one feature separates the
    classes; the penalty keeps the gradients of the other features from vanishing.

    Pezeshki et al., "Gradient Starvation: A Learning Proclivity in Neural Networks", 2021,
    https://arxiv.org/abs/2011.09468. Variant: DomainBed's, the mean over classes instead of the sum.
    """

    label = "SD"
    family = "penalty"
    cost = 1.0
    targets = "soft"
    per_sample = True
    domainbed_name = "SD"

    class Config(BaseConfig):
        lam: float = search(0.1, log_uniform(1e-5, 1e-1), help="penalty weight λ", domainbed="sd_reg", ge=0)

    def objective(self, batches: Batches) -> dict[str, Tensor]:
        x, y = batch_of(batches)
        o = widen(self.predict(x))
        risk, penalty = cross_entropy(o, y), o.square().mean()
        return {"loss": risk + self.config.lam * penalty, "risk": risk, "penalty": penalty}
