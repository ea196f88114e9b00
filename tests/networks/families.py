"""What `fgmix.networks.stages` finds in the smallest model of every family of timm: docs/backbones-tested.md.

python tests/networks/families.py        prints the table, in minutes
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from fgmix.errors import UserError
from fgmix.networks import Featurizer, build_featurizer, residual_blocks, stages
from fgmix.networks.names import load_timm
from fgmix.networks.stages import FeatureMap, Stage

LARGEST = 150_000_000  # parameters; families without a smaller model are left out
PAGE = Path(__file__).resolve().parents[2] / "docs" / "backbones-tested.md"


class Row(NamedTuple):
    family: str
    model: str
    px: str
    stages: str
    blocks: str


def rows() -> Iterator[Row]:
    """The rows of the page's table."""
    for line in PAGE.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| `") and len(cells) == len(Row._fields):
            yield Row(cells[0].strip("`"), cells[1].strip("`"), *cells[2:])


class Parts(NamedTuple):
    """The stages and residual blocks of a network, or the error that it has none."""

    stages: list[Stage] | UserError
    blocks: list[FeatureMap] | UserError


def find_parts(featurizer: Featurizer) -> Parts:
    return Parts(_attempt(stages, featurizer), _attempt(residual_blocks, featurizer))


def describe(family: str, model: str, px: int, parts: Parts) -> Row:
    """Write the row of a model."""
    ends = (
        _explain(parts.stages) if isinstance(parts.stages, UserError) else ", ".join(map(_describe_end, parts.stages))
    )
    blocks = _explain(parts.blocks) if isinstance(parts.blocks, UserError) else str(len(parts.blocks))
    return Row(family, model, str(px), ends, blocks)


def build(model: str, px: int) -> Featurizer:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # timm's own, on building old models
        return build_featurizer(model, (3, px, px)).eval()


def _describe_end(stage: Stage) -> str:
    return f"`{stage.end.name.removeprefix('net.')}` {stage.end.size[0]}{'*' * stage.end.channels_last}"


def _attempt(find: Callable[[Featurizer], list[Any]], featurizer: Featurizer) -> list[Any] | UserError:
    try:
        return find(featurizer)
    except UserError as error:
        return error


def _explain(error: UserError) -> str:
    """Shorten a refusal to what it says was found."""
    reason = re.search(r"Found \w+, (?:which has|whose blocks put out) (.+?)(?: instead of .+)?\. Use", str(error))
    return f"– ({reason[1] if reason else 'does not run'})"


def _smallest(family: str, timm: Any) -> str | None:
    """The model of a family with the fewest parameters, counted without allocating them; None if all are large."""

    def size(model: str) -> int:
        with torch.device("meta"):
            return sum(p.numel() for p in timm.create_model(model, num_classes=0).parameters())

    size_of = {model: size(model) for model in timm.list_models(module=family)}
    smallest = min(size_of, key=lambda model: size_of[model])
    return smallest if size_of[smallest] <= LARGEST else None


def _runs(model: str, sides: Sequence[int]) -> int:
    """The first of the sides, in pixels, at which a model runs."""
    for px in sides:
        try:
            with torch.no_grad():
                build(model, px)(torch.zeros(1, 3, px, px))
        except Exception:
            continue
        return px
    return sides[-1]


def main() -> None:
    timm = load_timm()
    known = {row.family: row.model for row in rows()}
    print("| family | model | px | stages | residual blocks |\n| --- | --- | --- | --- | --- |")
    for family in timm.list_modules():
        model = known.get(family) or _smallest(family, timm)
        if model is None:
            continue
        px = _runs(model, (64, timm.get_pretrained_cfg(model).input_size[-1]))
        _, _, *cells = describe(family, model, px, find_parts(build(model, px)))
        print(f"| `{family}` | `{model}` | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
