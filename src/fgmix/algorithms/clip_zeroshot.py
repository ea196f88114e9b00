import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from fgmix.algorithms import Algorithm, Batches, batch_of, register


@register("clip_zeroshot")
class ClipZeroShot(Algorithm):
    """CLIP without training: the class whose text embedding is closest to the image's embedding.

        o_c = s · cos(g(x), t_c)

    with t_c the mean embedding of the texts of class c and s = 1/τ of the pre-trained model. A run has one step, which
    changes no weight, and one evaluation.

    Radford et al., "Learning Transferable Visual Models From Natural Language Supervision", 2021,
    https://arxiv.org/abs/2103.00020.
    """

    label = "CLIP ZeroShot"
    family = "text"
    cost = 0.34
    targets = "weighted"
    head = "text-frozen"
    trains = False

    def update(self, batches: Batches) -> dict[str, Tensor]:
        x, y = batch_of(batches)
        with torch.no_grad():
            return {"loss": cross_entropy(self.predict(x), y)}
