"""Figures as objects that a notebook shows, and those that records allow: `fgmix.plot`. No torch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fgmix.errors import UserError, unknown
from fgmix.figures.arrays import Findings
from fgmix.figures.curves import collect_curves
from fgmix.figures.differences import collect_ranks
from fgmix.figures.kinds import KINDS, RESULTS, collect_figures, describe, holds_others, load_arrays, state_claims
from fgmix.figures.tables import read_paper_sensitivity
from fgmix.records.schema import RunRecord
from fgmix.results.ranks import rank_rows
from fgmix.results.report import Choices
from fgmix.results.runs import Runs, as_runs
from fgmix.results.selection import Rule, select
from fgmix.results.statistics import BASELINE, check_baseline

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ALL = "all"  # every kind of `RESULTS`
FROM_RECORDS = (*RESULTS, "cd", "curves", ALL)


@dataclass(frozen=True, eq=False, repr=False)
class Plot:
    """A figure, which a notebook shows.

    Args:
        name: name of its files.
        arrays: the numbers that it shows: of one of the kinds, or a list of them, one for each test domain.
    """

    name: str
    arrays: Any

    def __repr__(self) -> str:
        return f"<Plot {self.name}>"

    @property
    def claims(self) -> list[str]:
        """The claim that the figure tests and its statistics, in sentences; none for most kinds."""
        return state_claims(self.arrays)

    def draw(self, **style: Any) -> Figure:
        """Draw it with matplotlib; `style` has the fields of `fgmix.figures.draw.Style`: width, titled, font."""
        from fgmix.figures.draw import Style, draw

        return draw(describe(self.arrays), Style(**style))

    def save(self, path: str | PathLike[str], formats: Sequence[str] = (), **style: Any) -> list[Path]:
        """Write files and return their paths.

        Args:
            path: a file that ends in .png, .pdf, .svg or .npz (the arrays), or the beginning of several.
            formats: those to write; by default that of the ending, or all four.
            style: as in `draw`.
        """
        from fgmix.figures.draw import FORMATS, Style, save_figure

        path = Path(path)
        if not formats and (ending := path.suffix[1:]) in FORMATS:
            path, formats = path.with_suffix(""), (ending,)
        for each in formats:
            if each not in FORMATS:
                raise unknown("format of a figure", each, FORMATS)
        return save_figure(self.draw(**style), path, self.arrays, formats or FORMATS, Style(**style))

    def replaces_another(self, stem: Path) -> bool:
        """Say whether STEM.npz exists and contains other arrays."""
        return holds_others(stem.with_name(f"{stem.name}.npz"), self.arrays)

    def _repr_svg_(self) -> str:
        from fgmix.figures.draw import render

        return render(self.draw(), "svg").decode()


class Plots(tuple[Plot, ...]):
    """Figures, which a notebook shows below each other."""

    __slots__ = ()

    def save(self, folder: str | PathLike[str]) -> list[Path]:
        """Write every figure to a folder, as PNG, PDF, SVG and arrays, under its name; return the paths."""
        return [path for each in self for path in each.save(Path(folder) / each.name)]

    def _repr_html_(self) -> str:
        # Without the XML declaration, which HTML does not allow inside.
        return "\n".join("<svg" + each._repr_svg_().partition("<svg")[2] for each in self)


def plot(
    kind: str,
    runs: Runs | RunRecord | Iterable[RunRecord],
    *,
    rule: Rule = "training_domain",
    baseline: str = BASELINE,
    published: bool = False,
) -> Plots:
    """Plot what records show. No torch is imported; `plot_models` plots what weights show.

    Args:
        kind: "differences", "domains", "line", "budget", "mixing" or "sensitivity" (a figure for each dataset or
            grid), "all" of these that the runs allow, "cd" (critical differences) or "curves" (of each run).
        runs: finished runs, as `read_runs` returns them, or records.
        rule: the selection rule.
        baseline: key or label of the row that the others are compared with.
        published: also draw the numbers of the FGMix paper.
    """
    if kind not in FROM_RECORDS:
        if kind in {each.name for each in KINDS.values()}:
            raise UserError(f"Expected a figure from records. Found {kind!r}, which needs weights. Use plot_models.")
        raise unknown("kind of figure", kind, FROM_RECORDS)
    plots = Plots(_collect(kind, as_runs(runs), Choices(rule, published=published, baseline=baseline)))
    if not plots:
        raise UserError(
            f"Expected runs that allow a figure{'' if kind == ALL else f' of the kind {kind}'}. Found none. Name the "
            "folder of a sweep over two or more methods or over a grid (--grid)."
        )
    return plots


def _collect(kind: str, runs: Runs, choices: Choices) -> Iterator[Plot]:
    if kind == "curves":
        for record in runs:
            yield Plot(
                f"curves-{record.folder.resolve().name if record.folder else record.spec.name}", collect_curves(record)
            )
        return
    selection = select(runs, choices.rule) if runs.records else select([])
    if choices.baseline != BASELINE:
        check_baseline(selection.labels, choices.baseline)
    if kind == "cd":
        yield Plot("cd", collect_ranks(rank_rows(selection), selection.labels))
        return
    for _, name, arrays in collect_figures(Findings(runs, selection, choices), "" if kind == ALL else kind):
        yield Plot(name, arrays)
    if choices.published and runs.grids and kind in (ALL, "sensitivity"):
        yield plot_paper_sensitivity()


def plot_paper_sensitivity() -> Plot:
    """Plot the sensitivity to α and λ₀ that the FGMix paper publishes."""
    return Plot("sensitivity-paper", read_paper_sensitivity())


def load_plot(path: str | PathLike[str]) -> Plot:
    """Load a figure from the .npz file that `Plot.save` wrote, to draw it again."""
    return Plot(Path(path).stem, load_arrays(Path(path)))
