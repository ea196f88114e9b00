import copy

import torch
from torch import Tensor, nn
from torch.optim import Adam

from fgmix.algorithms._base import BATCH_NORMS, Algorithm, Predict, descend
from fgmix.algorithms._config import BaseConfig, choice, search, setting
from fgmix.algorithms._registry import register_wrapper
from fgmix.errors import UserError
from fgmix.functional.losses import softmax_entropy

NORMS = (*BATCH_NORMS, nn.LayerNorm, nn.GroupNorm)


@register_wrapper("tent")
class Tent(Algorithm):
    """Test entropy minimization: adapt scale and shift of the normalisation layers to the batches of a domain.

        θ ← Adam(θ, ∇_θ mean_i H(softmax h(g_θ(x_i)))),    η = α · lr

    once or more per batch, with θ the scales and shifts of g and H the entropy; the prediction of a batch is that of
    the last pass, before its step. Batch-norm layers use the statistics of the batch. θ and Adam continue from batch to
    batch of one part of a domain, and start again from the trained model with the next part. Training is that of the
    wrapped method: ERM in `tent`, CORAL in `tent+coral`.

    Wang et al., "Tent: Fully Test-Time Adaptation by Entropy Minimization", 2021, https://arxiv.org/abs/2006.10726.
    Variant: that of the authors of T3A for DomainBed; layer norm and group norm are adapted, too, without statistics.
    """

    label = "Tent"
    family = "test-time"
    cost = 1.0
    needs_norms = True
    adapts_at_test = True

    class Config(BaseConfig):
        tent_alpha: float = search(
            1.0, None, paper=choice(0.1, 1.0, 10.0), help="factor α of the learning rate at test time", ge=0
        )
        tent_steps: int = search(1, None, paper=choice(1, 3), help="updates per batch", ge=1)
        test_batch_size: int = setting(64, help="samples that are predicted, and adapted to, at a time", ge=1)

    def __init__(self, featurizer: nn.Module, classifier: nn.Module, n_domains: int, config: Config) -> None:
        super().__init__(featurizer, classifier, n_domains, config)
        if not list_scales(self.featurizer):
            raise UserError(
                "Tent needs batch norm, layer norm or group norm with a scale and a shift. The backbone has none. Use "
                "one that has, such as `small_cnn` or `resnet18`."
            )

    def start_test(self) -> Predict:
        with torch.inference_mode(False):  # else the copy could not be trained
            g, h = copy.deepcopy((self.featurizer, self.classifier))
        theta = list_scales(g)
        use_batch_statistics(g)
        for module in (g, h):
            module.requires_grad_(False)
        for parameter in theta:
            parameter.requires_grad_(True)
        optimizer = Adam(theta, lr=self.config.tent_alpha * self.config.lr, weight_decay=self.config.weight_decay)

        def predict(x: Tensor) -> Tensor:
            if len(x) == 1:  # has no statistics
                return self.predict(x)
            with torch.inference_mode(False), torch.enable_grad():
                x = x.clone()  # no longer a tensor of inference mode
                for _ in range(self.config.tent_steps):
                    logits: Tensor = h(g(x))
                    descend(optimizer, softmax_entropy(logits.float()).mean())
                return logits.detach()

        return predict


def list_scales(network: nn.Module) -> list[nn.Parameter]:
    """List scales and shifts of the normalisation layers of a network."""
    norms = [module for module in network.modules() if isinstance(module, NORMS)]
    return [parameter for norm in norms for parameter in norm.parameters(recurse=False)]


def use_batch_statistics(network: nn.Module) -> None:
    """Let batch-norm layers normalise by the statistics of the batch, in evaluation mode too, and update none."""
    for module in network.modules():
        if isinstance(module, BATCH_NORMS):
            module.track_running_stats = False
            module.running_mean = module.running_var = None
