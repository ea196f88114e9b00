import torch
from torch import Tensor, nn
from torch.nn.functional import normalize, one_hot

from fgmix.algorithms import Algorithm, BaseConfig, Predict, choice, register_wrapper, search, setting
from fgmix.functional.losses import softmax_entropy


@register_wrapper("t3a")
class T3A(Algorithm):
    """Test-time template adjuster: classify by prototypes, the means of the most certain codes of a domain so far.

        o_c(x) = z · μ_c/‖μ_c‖,    μ_c = Σ_{s ∈ S_c} s/‖s‖,    z = g(x)

    with S_c the K codes of the lowest entropy H(softmax h(s)) among those that h assigns to class c: of the batch, of
    the batches of this part of the domain before it, and the rows of the weight of h. With several layers in h, its
    last one takes the place of h. Training is that of the wrapped
    method: ERM in `t3a`, CORAL in `t3a+coral`.

    Iwasawa and Matsuo, "Test-Time Classifier Adjustment Module for Model-Agnostic Domain Generalization", 2021,
    https://openreview.net/forum?id=e_yvNqkJKAW. Variant: the authors' code, whose prediction of a batch uses the batch.
    """

    label = "T3A"
    family = "test-time"
    cost = 1.0
    adapts_at_test = True

    class Config(BaseConfig):
        t3a_k: int = search(
            100,
            None,
            paper=choice(1, 5, 20, 50, 100, 0),
            help="number K of codes of a class that make its prototype; 0: all",
            ge=0,
        )
        test_batch_size: int = setting(64, help="samples that are predicted, and adapted to, at a time", ge=1)

    def __init__(self, featurizer: nn.Module, classifier: nn.Module, n_domains: int, config: Config) -> None:
        super().__init__(featurizer, classifier, n_domains, config)
        self._linear_layers()  # raises an error if there is none

    def start_test(self) -> Predict:
        *_, layer = self._linear_layers()
        supports = Supports(layer.weight, layer(layer.weight), self.config.t3a_k)

        def predict(x: Tensor) -> Tensor:
            codes: list[Tensor] = []
            with layer.register_forward_pre_hook(lambda _layer, inputs: codes.append(inputs[0])):
                logits = self.predict(x)
            supports.add(codes[0], logits)
            return codes[0].float() @ supports.prototypes

        return predict


class Supports:
    """The codes S_c of every class, in the order of their entropies, of which at most K are kept.

    Args:
        z: the first codes (n, d).
        logits: theirs (n, C).
        k: K; 0 for all.
    """

    def __init__(self, z: Tensor, logits: Tensor, k: int) -> None:
        self.k = k
        self.codes, self.logits = z[:0].float(), logits[:0].float()
        self.add(z, logits)

    def add(self, z: Tensor, logits: Tensor) -> None:
        """Add codes, and drop those that are not among the K of their class with the lowest entropy."""
        codes, logits = torch.cat([self.codes, z.float()]), torch.cat([self.logits, logits.float()])
        order = softmax_entropy(logits).argsort(stable=True)
        self.codes, self.logits = codes[order], logits[order]
        if self.k:
            rank = (self.labels.cumsum(0) * self.labels).sum(1)  # within the class, from 1 on
            self.codes, self.logits = self.codes[rank <= self.k], self.logits[rank <= self.k]

    @property
    def labels(self) -> Tensor:
        """The classes that h assigns to the codes, one-hot (n, C)."""
        return one_hot(self.logits.argmax(1), self.logits.shape[1]).float()

    @property
    def prototypes(self) -> Tensor:
        """μ_c/‖μ_c‖ as columns (d, C); 0 for a class without a code."""
        return normalize(normalize(self.codes, dim=1).T @ self.labels, dim=0)
