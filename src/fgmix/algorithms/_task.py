"""What a run knows about its task, for methods that ask: names of classes and domains, preprocessing, a text tower."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fgmix.errors import UserError
from fgmix.networks.clip import TextTower
from fgmix.networks.preprocessing import Normalisation


@dataclass(frozen=True)
class Task:
    """The task of a run. A method that declares `needs_task` gets it through `Algorithm.set_task`."""

    classes: tuple[str, ...]  # names in the order of the labels; in words for a head of text embeddings
    domains: tuple[str, ...]  # names of the source domains, in the order of the batches
    normalisation: Normalisation | None = None  # of the images that the network sees; None for arrays
    build_text: Callable[[], TextTower] | None = None  # builds the text tower of the backbone; None if it has none

    def require_text(self) -> TextTower:
        """Build the text tower of the backbone."""
        if self.build_text is None:
            raise UserError(
                "Expected a backbone with a text tower, such as open_clip:ViT-B-16.openai. Found one without. Name it "
                "with --backbone."
            )
        return self.build_text()
