"""The method DPL: prompts that depend on the domain."""

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fgmix.algorithms._base import Batches, batch_of
from fgmix.algorithms._registry import register
from fgmix.algorithms._task import Task
from fgmix.algorithms.coop import CoOp
from fgmix.networks.prompts import ConditionalPromptHead


@register("dpl")
class DPL(CoOp):
    """Domain prompt learning: a network makes the prompt's vectors from the images of a domain.

        v_e = mean_i F(g(x_{e,i})),    o_c = s · cos(g(x), t_c(v_e)) for x of domain e
        L(F) = mean over all source domains of the cross-entropy

    with t_c(v) the embedding of the prompt [v_1] … [v_M] name of class c, as in CoOp. CLIP's towers are constant. A
    prediction takes its batch for images of one domain.

    Zhang et al., "Domain Prompt Learning for Efficiently Adapting CLIP to Unseen Domains", 2021,
    https://arxiv.org/abs/2111.12853.
    """

    label = "DPL"
    year = 2021
    paper = "https://arxiv.org/abs/2111.12853"
    cost = 0.34

    def build_head(self, task: Task) -> nn.Module:
        return ConditionalPromptHead(task.require_text(), task.classes, self.config.tokens, self.code_size)

    def objective(self, batches: Batches) -> dict[str, Tensor]:
        with torch.no_grad():
            z = self.encode(batches)
        logits = torch.cat([self.classifier(z_e) for z_e in z])  # each domain under its own prompt
        return {"loss": cross_entropy(logits, batch_of(batches)[1])}
