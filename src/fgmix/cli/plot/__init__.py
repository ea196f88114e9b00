"""fgmix plot: figures of runs and sweeps, each as PNG, PDF, SVG and the arrays behind it."""

from __future__ import annotations

import typer

from fgmix.cli.help import Command
from fgmix.cli.plot.models import flatness, scores, shift, surface, tsne
from fgmix.cli.plot.results import cd, curves, results, weights

app = typer.Typer(help="Draw figures of finished runs and sweeps.", no_args_is_help=True)
for command in (weights, curves, cd, results, tsne, flatness, surface, scores, shift):
    app.command(cls=Command)(command)
