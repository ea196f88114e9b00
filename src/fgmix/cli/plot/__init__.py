"""fgmix plot: figures of runs and sweeps, each as PNG, PDF, SVG and the arrays behind it."""

from __future__ import annotations

import typer

from fgmix.cli.plot.models import flatness, scores, shift, surface, tsne
from fgmix.cli.plot.results import ablation, cd, cost, curves, sensitivity, weights
from fgmix.cli.plot.saving import redraw

app = typer.Typer(help="Draw figures of finished runs and sweeps.", no_args_is_help=True)
for command in (weights, curves, cd, sensitivity, ablation, cost, tsne, flatness, surface, scores, shift, redraw):
    app.command()(command)
