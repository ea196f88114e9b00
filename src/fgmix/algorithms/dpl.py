import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fgmix.algorithms import Batches, Task, batch_of, register, setting
from fgmix.algorithms.coop import CoOp
from fgmix.networks.text import ConditionalPromptHead


@register("dpl")
class DPL(CoOp):
    """Domain prompt learning: a network makes the prompt's vectors from the images of a domain.

        v_e = mean_i F(g(x_{e,i})),    o_c = s · cos(g(x), t_c(v_e)) for x of domain e
        L(F) = mean over all source domains of the cross-entropy

    with t_c(v) the embedding of the prompt [v_1] … [v_M] name of class c, as in CoOp. CLIP's towers are constant. A
    prediction takes its batch for images of one domain, whose prompt it makes: it adapts to them.

    Zhang et al., "Domain Prompt Learning for Efficiently Adapting CLIP to Unseen Domains", 2021,
    https://arxiv.org/abs/2111.12853.
    """

    label = "DPL"
    cost = 0.34
    adapts_at_test = True

    class Config(CoOp.Config):
        test_batch_size: int = setting(64, help="samples of a domain that make a prompt in evaluation", ge=1)

    def build_head(self, task: Task) -> nn.Module:
        return ConditionalPromptHead(task.require_text(), task.classes, self.config.tokens, self.code_size)

    def objective(self, batches: Batches) -> dict[str, Tensor]:
        with torch.no_grad():
            z = self.encode(batches)
        logits = torch.cat([self.classifier(z_e) for z_e in z])  # each domain under its own prompt
        return {"loss": cross_entropy(logits, batch_of(batches)[1])}
