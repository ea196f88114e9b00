"""fgmix list: algorithms, datasets and backbones."""

from __future__ import annotations

import textwrap
from fnmatch import fnmatch
from typing import Annotated

import typer

from fgmix.cli.options import check_choice
from fgmix.errors import UserError, unknown
from fgmix.records.code import has_plug_ins
from fgmix.records.declarations import Overview, filter_family, read_overview, read_summaries
from fgmix.records.schema import OPTIMIZER


def list_(
    kind: Annotated[str, typer.Argument(metavar="KIND", help="algorithms, datasets or backbones")],
    pattern: Annotated[str, typer.Argument(metavar="PATTERN", help="only names that match, such as '*resnet*'")] = "*",
    family: Annotated[str | None, typer.Option(help="only algorithms of this family, such as mixup")] = None,
) -> None:
    """List algorithms, datasets or backbones.

    An algorithm that is named is listed with its settings, a dataset with its domains. Without a pattern, recommended
    backbones are listed.

    Example: fgmix list algorithms --family mixup
    """
    kind = check_choice("kind of thing to list", kind, ("algorithms", "datasets", "backbones"))
    if kind == "algorithms":
        _list_algorithms(pattern, family)
    elif family is not None:
        raise UserError("--family applies to `list algorithms` only.")
    elif kind == "datasets":
        _list_datasets(pattern)
    else:
        _list_backbones(pattern)


def _list_algorithms(pattern: str, family: str | None) -> None:
    """Print a table of all methods or of a family; for a pattern, the settings of those that match."""
    if pattern == "*" and not has_plug_ins("fgmix.algorithms"):
        _print_table(filter_family(read_overview(), family))
        return
    from fgmix import algorithms

    known = algorithms.names() if "+" not in pattern else algorithms.compositions()
    matching = [name for name in known if fnmatch(name, pattern)]
    if not matching and "+" in pattern and not set("*?[") & set(pattern):
        algorithms.get(pattern)  # its error names the unknown part
    if not matching:
        raise unknown("algorithm", pattern, known)
    rows = algorithms.overview(matching, family)
    if pattern == "*":
        _print_table(rows)
        return
    for row in rows:
        _print_method(row)


def _print_table(rows: list[Overview]) -> None:
    line = "{:14} {:14} {:4} {:13} {:4} {}"
    print(line.format("name", "method", "year", "family", "cost", "needs"))
    for row in rows:
        cells = line.format(row.name, row.label, row.year, row.family, row.cost, row.needs)
        print(textwrap.fill(cells, 80, subsequent_indent=" " * 54))
    print("cost: floating-point operations of a training step, relative to ERM")
    print("Settings and paper of a method: fgmix list algorithms NAME")


def _print_method(row: Overview) -> None:
    """Print a method's description and declarations, those of the method it wraps, if any, and its settings."""
    from fgmix import algorithms

    _, _, inner = row.name.partition("+")
    for told in (row, *algorithms.overview([inner] if inner else [])):
        what = (algorithms.get(told.name).__doc__ or "").strip().partition("\n")[0]
        cost = f"{told.cost} × the operations of ERM" if told.cost else ""
        _print_wrapped(f"{told.name:16} {what}".rstrip())
        about = (told.label, told.year, told.family, cost, told.needs, told.paper)
        _print_wrapped(f"    {', '.join(filter(None, about))}")
    config = algorithms.get(row.name).Config
    settings = {f: ("none" if default is None else default, text) for f, (default, text) in config.help().items()}
    for field in [field for field in settings if field not in OPTIMIZER]:
        _print_wrapped("    {} = {}: {}".format(field, *settings[field]))
    optimizer = ", ".join(f"{field} = {settings[field][0]}" for field in OPTIMIZER)
    _print_wrapped(f"    {optimizer}: see docs/optimiser.md")


def _print_wrapped(line: str) -> None:
    print(textwrap.fill(line, 80, subsequent_indent=" " * 8, break_long_words=False, break_on_hyphens=False))


def _list_datasets(pattern: str) -> None:
    summaries = read_summaries()
    if has_plug_ins("fgmix.datasets"):
        from fgmix import data

        summaries = data.summaries()
    matching = {name: summary for name, summary in summaries.items() if fnmatch(name, pattern)}
    if not matching:
        raise unknown("dataset", pattern, summaries)
    for name, summary in matching.items():
        if pattern == "*":
            print(f"{name:19} {textwrap.shorten(summary, 60, placeholder=' …')}")
        else:
            print(textwrap.fill(f"{name:19} {summary}", 80, subsequent_indent=" " * 20))
    if pattern == "*":
        print("Domains and folder of a dataset: fgmix list datasets NAME")
    print("Or a folder domain/class/image, a CSV file (path, label, domain), or .npz.")


def _list_backbones(pattern: str) -> None:
    from fgmix.networks import backbones
    from fgmix.networks.names import RECOMMENDED

    matching = backbones(pattern)
    if not matching:
        raise unknown("backbone", pattern, backbones(f"*{pattern.strip('*')[:6]}*"))
    if pattern == "*":
        print("Recommended:")
        for name, text in RECOMMENDED.items():
            print(textwrap.fill(f"  {name:34} {text}", 80, subsequent_indent=" " * 37, break_on_hyphens=False))
        print(f"\nAll of timm's, {len(matching):,} in all: give a pattern, such as `fgmix list backbones '*resnet*'`.")
        return
    print("\n".join(matching))
