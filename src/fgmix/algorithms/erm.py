from torch import Tensor
from torch.nn.functional import cross_entropy

from fgmix.algorithms import Algorithm, Batches, batch_of, register


@register("erm")
class ERM(Algorithm):
    """Empirical risk minimization: the average loss over all source domains.

        L(θ, φ) = 1/(k·b) Σ_e Σ_i l(y_{e,i}, h_φ(g_θ(x_{e,i})))

    with l the cross-entropy. It has no settings of its own.

    Vapnik, "An Overview of Statistical Learning Theory", 1999, https://doi.org/10.1109/72.788640. Variant: DomainBed's,
    one cross-entropy on the concatenated batch.
    """

    label = "ERM"
    family = "baseline"
    cost = 1.0
    targets = "weighted"
    per_sample = True
    domainbed_name = "ERM"

    def objective(self, batches: Batches) -> dict[str, Tensor]:
        x, y = batch_of(batches)
        return {"loss": cross_entropy(self.predict(x), y)}
