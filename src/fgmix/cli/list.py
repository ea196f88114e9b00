"""fgmix list: what there is."""

from __future__ import annotations

from typing import Annotated

import typer

from fgmix.errors import unknown

KINDS = ("algorithms", "datasets", "backbones")


def list_(
    kind: Annotated[str, typer.Argument(help="algorithms, datasets or backbones")],
    pattern: Annotated[str, typer.Argument(help="only names that match, such as '*resnet*'")] = "*",
) -> None:
    """List algorithms (with their settings when one is named), datasets or backbones.

    Example: fgmix list algorithms fgmix
    """
    if kind not in KINDS:
        raise unknown("kind of thing to list", kind, KINDS)
    {"algorithms": _algorithms, "datasets": _datasets, "backbones": _backbones}[kind](pattern)


def _algorithms(pattern: str) -> None:
    from fnmatch import fnmatch

    from fgmix import algorithms

    matching = [name for name in algorithms.names() if fnmatch(name, pattern)]
    if not matching:
        raise unknown("algorithm", pattern, algorithms.names())
    for name in matching:
        cls = algorithms.get(name)
        print(f"{name:16} {(cls.__doc__ or '').strip().partition(chr(10))[0]}".rstrip())
        if pattern != "*":
            reference = ", ".join(str(part) for part in (cls.label, cls.year, cls.paper) if part)
            print(f"    {reference}")
            for field, (default, text) in cls.Config.help().items():
                print(f"    {field} = {default}: {text}")


def _datasets(pattern: str) -> None:
    from fnmatch import fnmatch

    from fgmix import data

    matching = {name: summary for name, summary in data.summaries().items() if fnmatch(name, pattern)}
    if not matching:
        raise unknown("dataset", pattern, data.names())
    for name, summary in matching.items():
        print(f"{name:16} {summary}")
    print("Or a folder laid out domain/class/image, or an .npz file with X, y and domain.")


def _backbones(pattern: str) -> None:
    from fgmix.networks import backbones

    matching = backbones(pattern)
    if not matching:
        raise unknown("backbone", pattern, backbones(f"*{pattern.strip('*')[:6]}*"))
    print("\n".join(matching))
