"""Change intermediate results of a network temporarily."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager

from torch import Tensor, nn

from fgmix.networks.stages import FeatureMap


@contextmanager
def changing_outputs(modules: Iterable[nn.Module], change: Callable[[Tensor], Tensor]) -> Iterator[None]:
    """Within the block, the output h of each of `modules` becomes `change(h)`.

    The hooks are removed after the block, so evaluation, averaging, copies and exports are not affected. They run
    before permanent hooks, such as SelfNorm's.

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


@contextmanager
def changing_maps(network: nn.Module, maps: Iterable[FeatureMap], change: Callable[[Tensor], Tensor]) -> Iterator[None]:
    """Within the block, each of `maps` becomes `change(map)`; `change` gets (n, c, h, w) for either layout."""

    def change_channels_last(h: Tensor) -> Tensor:
        return change(h.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)

    with ExitStack() as stack:
        for place in maps:
            module = network.get_submodule(place.name)
            stack.enter_context(changing_outputs([module], change_channels_last if place.channels_last else change))
        yield
