"""Figures of finished runs: the library computes arrays and draws them; every figure keeps its numbers beside it."""

import tempfile
from pathlib import Path

import numpy as np

import fgmix
from fgmix.data import from_arrays
from fgmix.figures.curves import collect_curves
from fgmix.figures.draw import draw, save_figure
from fgmix.figures.kinds import describe, load_arrays

rng = np.random.default_rng(0)
y, domain = np.arange(600) % 3, np.arange(600) // 150
X = rng.normal(size=(3, 8))[y] + rng.normal(size=(4, 8))[domain] + rng.normal(size=(600, 8))
folder = Path(tempfile.mkdtemp())
spec = fgmix.RunSpec(dataset="arrays", algorithm="fgmix", test_domains="3", steps=60, eval_every=10, averaging_start=20)
record = fgmix.train(spec, folder / "runs", dataset=from_arrays(X, y, domain), progress=False)

curves = collect_curves(record)  # accuracy, losses and the method's metrics over the steps, as arrays
figure = draw(describe(curves))  # a matplotlib figure: change it, or save it
figure.axes[0].axvline(36, color="0.7", linewidth=0.8)  # where mixing starts: at 60 % of the steps
files = save_figure(figure, folder / "curves", curves)
print(*files, sep="\n")  # `fgmix plot results RUN --kind curves` writes the same without the line

again = draw(describe(load_arrays(folder / "curves.npz")))  # a figure can be redrawn from its numbers, without the run
