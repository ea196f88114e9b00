"""Half precision: autocast, and loss scaling for float16.

float16 has no numbers between 0 and 6e-8, where many gradients lie. The loss is therefore multiplied by a scale S
before a backward pass, and gradients are divided by it afterwards. If they overflow, the optimisers skip the step and S
is halved; after 2,000 steps without overflow, S is doubled.

Micikevicius et al., "Mixed Precision Training", 2018. https://arxiv.org/abs/1710.03740
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from fgmix.algorithms import Algorithm
from fgmix.errors import UserError
from fgmix.records.schema import Precision

FIRST_SCALE = 2.0**16
SMALLEST_SCALE = 2.0**-8  # below it, the unscaled gradients themselves overflow
GROWTH, BACKOFF, GROWTH_STEPS = 2.0, 0.5, 2000  # powers of two, so that scaling is exact in float32


def autocast(precision: Precision, device: torch.device) -> AbstractContextManager[Any]:
    """A context in which a network computes in the given precision."""
    if precision == "fp32":
        return nullcontext()
    return torch.autocast(device.type, torch.bfloat16 if precision == "bf16" else torch.float16)


class LossScaler:
    """Scales the losses of a method that computes gradients by `backward` or by `torch.autograd.grad`.

    Within `step` both return unscaled gradients: methods need no code for it. Nothing waits for the device: a fused
    optimiser reads there whether to skip the step.

    Args:
        algorithm: the method, with its parameters and optimisers.

    Example:
        >>> from fgmix.algorithms import create
        >>> erm = create("erm", featurizer=torch.nn.Identity(), classifier=torch.nn.Linear(1, 2), n_domains=1)
        >>> scaler = LossScaler(erm)
        >>> with scaler.step():
        ...     erm.classifier(torch.ones(1, 1)).sum().backward()
        >>> erm.classifier.weight.grad.flatten().tolist(), scaler.state_dict()["scale"].item()
        ([1.0, 1.0], 65536.0)
    """

    def __init__(self, algorithm: Algorithm) -> None:
        self.algorithm = algorithm
        self.parameters = [p for p in algorithm.parameters() if p.requires_grad]
        device = self.parameters[0].device
        self.scale = torch.full((), FIRST_SCALE, device=device)
        self.good_steps = torch.zeros((), dtype=torch.int32, device=device)
        self.overflow = torch.zeros((), device=device)  # 1 once a gradient of this step was not finite

    @contextmanager
    def step(self) -> Iterator[None]:
        """The context of one step of the method."""
        self.overflow.zero_()
        with _Scaled(self):
            yield
        torch._amp_update_scale_(self.scale, self.good_steps, self.overflow, GROWTH, BACKOFF, GROWTH_STEPS)

    def backward(self, loss: Tensor, gradient: Tensor | None = None, **options: Any) -> None:
        """`loss.backward()`, which adds to existing gradients."""
        before = [p.grad for p in self.parameters]
        for p in self.parameters:
            p.grad = None
        loss.backward(self._seed(loss, gradient), **options)
        self._unscale_([p.grad for p in self.parameters if p.grad is not None])
        for p, earlier in zip(self.parameters, before):
            if earlier is not None:
                p.grad = earlier if p.grad is None else earlier + p.grad
        self._tell_optimizers()

    def grad(
        self,
        outputs: Tensor | Sequence[Tensor],
        inputs: Tensor | Sequence[Tensor],
        grad_outputs: Tensor | Sequence[Tensor | None] | None = None,
        **options: Any,
    ) -> tuple[Tensor | None, ...]:
        """`torch.autograd.grad(outputs, inputs)`, with all gradients in float32."""
        outputs = [outputs] if isinstance(outputs, Tensor) else list(outputs)
        given = [grad_outputs] if isinstance(grad_outputs, Tensor) else grad_outputs or [None] * len(outputs)
        seeds = [self._seed(output, gradient) for output, gradient in zip(outputs, given)]
        found = torch.autograd.grad(outputs, inputs, seeds, **options)
        self._tell_optimizers()
        return tuple(None if g is None else self._unscaled(g) for g in found)

    def check(self) -> None:
        """Raise an error if gradients overflow at any scale: the model would not train. Waits for the device."""
        if float(self.scale) < SMALLEST_SCALE:
            raise UserError(
                f"Expected gradients of {self.algorithm.label} that fit into float16. Found larger ones, step after "
                "step. Train with --precision bf16 or fp32."
            )

    def state_dict(self) -> dict[str, Tensor]:
        """The state that the next step depends on."""
        return {"scale": self.scale, "good_steps": self.good_steps}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        self.scale.copy_(state["scale"])
        self.good_steps.copy_(state["good_steps"])

    def _seed(self, output: Tensor, gradient: Tensor | None) -> Tensor:
        return (torch.ones_like(output) if gradient is None else gradient) * self.scale.to(output.dtype)

    def _unscale_(self, gradients: list[Tensor]) -> None:
        if gradients:
            torch._amp_foreach_non_finite_check_and_unscale_(gradients, self.overflow, self.scale.reciprocal())
        for g in gradients:
            g.nan_to_num_(0.0, 0.0, 0.0)  # the optimisers skip the step, but the method may use the gradients

    def _unscaled(self, g: Tensor) -> Tensor:
        """Differentiable, for gradients of gradients."""
        self.overflow.copy_(torch.maximum(self.overflow, (~torch.isfinite(g.detach())).any().float()))
        return g.float().nan_to_num(0.0, 0.0, 0.0) / self.scale

    def _tell_optimizers(self) -> None:
        """Pass the overflow flag to every optimiser; a method may have created a new one in this step.

        Only fused ones support it; others update by their momentum alone, with non-finite gradients set to zero.
        """
        for optimizer in self.algorithm.optimizers().values():
            if optimizer.defaults.get("fused"):
                optimizer.found_inf = self.overflow  # type: ignore[attr-defined]  # as torch's own scaler does


class _Scaled(TorchFunctionMode):
    """Redirects backward passes to a scaler."""

    def __init__(self, scaler: LossScaler) -> None:
        super().__init__()
        self.scaler = scaler

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is Tensor.backward and not kwargs.get("create_graph"):
            return self.scaler.backward(*args, **kwargs)
        if func is torch.autograd.grad and torch._C._functorch.peek_interpreter_stack() is None:  # not in torch.func
            return self.scaler.grad(*args, **kwargs)
        return func(*args, **kwargs)
