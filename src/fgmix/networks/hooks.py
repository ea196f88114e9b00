"""Change what a network computes inside, for the length of one forward pass."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager

from torch import Tensor, nn


@contextmanager
def changing_outputs(modules: Iterable[nn.Module], change: Callable[[Tensor], Tensor]) -> Iterator[None]:
    """Within the block, the output h of each of `modules` becomes `change(h)`.

    Nothing stays behind: outside the block the network is the one it was, so evaluation, averaging, copies and
    exports cannot see the change. It comes before hooks that stay, such as SelfNorm's.

    Example:
        >>> import torch
        >>> layer = nn.Identity()
        >>> with changing_outputs([layer], lambda h: 2 * h):
        ...     layer(torch.tensor(3.0))
        tensor(6.)
        >>> layer(torch.tensor(3.0))
        tensor(3.)
    """

    def hook(_module: nn.Module, _inputs: tuple[Tensor, ...], h: Tensor) -> Tensor:
        return change(h)

    with ExitStack() as stack:
        for module in modules:
            stack.enter_context(module.register_forward_hook(hook, prepend=True))
        yield
