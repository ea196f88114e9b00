import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fgmix.algorithms import Algorithm, BaseConfig, Batches, Task, batch_of, log_uniform, register, search, setting
from fgmix.networks.text import PromptHead


@register("coop")
class CoOp(Algorithm):
    """Context optimization: CLIP's towers are constant, and the words of the prompt are learned as vectors.

        o_c = s · cos(g(x), t_c(v)),    t_c(v) the embedding of the prompt [v_1] … [v_M] name of class c
        L(v) = mean over all source domains of the cross-entropy

    The vectors v are shared by all classes and domains.

    Zhou et al., "Learning to Prompt for Vision-Language Models", 2022, https://arxiv.org/abs/2109.01134. Variant:
    unified context, with the class at the end.
    """

    label = "CoOp"
    family = "text"
    cost = 0.34
    targets = "weighted"
    head = "text-frozen"
    needs_task = True
    per_sample = True
    wrappable = False  # a wrapper would perturb the constant towers

    class Config(BaseConfig):
        tokens: int = setting(16, help="learned vectors M of a prompt", ge=1, le=64)
        prompt_lr: float = search(
            2e-3, None, paper=log_uniform(2e-4, 2e-2), help="learning rate of the prompt, in place of lr", gt=0
        )

    def set_task(self, task: Task) -> None:
        super().set_task(task)
        self.featurizer.requires_grad_(False)
        self.classifier = self.build_head(task)
        learned = [p for p in self.classifier.parameters() if p.requires_grad]
        self.optimizer = self.build_optimizer(learned, lr=self.config.prompt_lr)

    def build_head(self, task: Task) -> nn.Module:
        """Build the head of learned prompts."""
        return PromptHead(task.require_text(), task.classes, self.config.tokens)

    def objective(self, batches: Batches) -> dict[str, Tensor]:
        x, y = batch_of(batches)
        with torch.no_grad():
            z = self.featurizer(x)
        return {"loss": cross_entropy(self.classifier(z), y)}
