"""Compare `fgmix fit` with plain scikit-learn pipelines on domains that neither has seen.

    python benchmarks/studies/fit_against_sklearn.py OUT [--pacs pacs_resnet50_features.npz] [--budget 5min]

One domain of each set is left out of everything. `fit` trains on the others with its defaults. The pipelines are a
StandardScaler with logistic regression (C = 0.001, 0.03, 1), an RBF support vector machine (C = 3) or histogram
gradient boosting; the best of them is chosen by leave-one-domain-out (`cross_val_score`). Its CPU time is that of the
whole search. Rows are printed as Markdown; what is in OUT already is not trained again.
"""

from __future__ import annotations

import argparse
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.datasets import load_breast_cancer, load_digits, load_wine
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import LeaveOneGroupOut, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from fgmix import fit
from fgmix.data import from_arrays

Array = npt.NDArray[Any]
Samples = tuple[Array, Array, Array]  # X, y, domain


def split_by(x: Array, y: Array, column: int) -> Samples:
    """Make three domains of a table by the terciles of one of its columns, which is then left out."""
    return np.delete(x, column, axis=1), y, np.digitize(x[:, column], np.quantile(x[:, column], (1 / 3, 2 / 3)))


def rotate_digits() -> Samples:
    """Make four domains of the digits, turned by 0, 20, 40 and 60 degrees; each sample is in one of them."""
    from scipy.ndimage import rotate

    x, y = load_digits(return_X_y=True)
    turn = np.arange(len(x)) % 4
    turned = [rotate(each.reshape(8, 8), 20 * angle, reshape=False, order=1).ravel() for each, angle in zip(x, turn)]
    return np.array(turned), y, turn


def list_sets(pacs: Path | None) -> dict[str, tuple[Samples, Any]]:
    """List the sets, each with the domain that is left out."""
    sets: dict[str, tuple[Samples, Any]] = {
        "wine by malic acid, highest third": (split_by(*load_wine(return_X_y=True), 1), 2),
        "breast cancer by mean texture, highest third": (split_by(*load_breast_cancer(return_X_y=True), 1), 2),
        "digits, turned by 60°": (rotate_digits(), 3),
        "digits, turned by 20°": (rotate_digits(), 1),
    }
    if pacs:
        with np.load(pacs) as file:
            x, y, d = file["X"].astype(np.float32), file["y"], file["domains"][file["domain"]]
        sets |= {f"PACS, ResNet-50, {name}": ((x, y, d), name) for name in ("cartoon", "sketch")}
    return sets


def make_pipelines(features: int) -> dict[str, Any]:
    """Make the pipelines; boosting is left out for thousands of features, which take hours."""
    logistic = {
        f"logistic regression, C = {c:g}": make_pipeline(StandardScaler(), LogisticRegression(C=c, max_iter=200))
        for c in (0.001, 0.03, 1.0)
    }
    others: dict[str, Any] = {"SVM": make_pipeline(StandardScaler(), SVC(C=3))}
    if features < 1000:
        others["boosting"] = HistGradientBoostingClassifier()
    return {**logistic, **others}


def compare(name: str, samples: Samples, left_out: Any, out: Path, budget: str) -> str:
    """Return a row of the table."""
    x, y, d = samples
    seen, new = d != left_out, d == left_out
    pipelines = make_pipelines(x.shape[1])
    began = time.process_time()
    scores = {
        title: cross_val_score(pipeline, x[seen], y[seen], groups=d[seen], cv=LeaveOneGroupOut()).mean()
        for title, pipeline in pipelines.items()
    }
    chosen = max(scores, key=scores.__getitem__)
    accuracies = {title: pipeline.fit(x[seen], y[seen]).score(x[new], y[new]) for title, pipeline in pipelines.items()}
    theirs = time.process_time() - began
    began = time.process_time()
    model = fit(from_arrays(x[seen], y[seen], d[seen]), out / name.replace(" ", "_"), budget=budget, device="cpu")
    ours = time.process_time() - began
    labels = np.array(model.info.classes)

    def measure(adapt: bool) -> float:
        guesses = labels[model.predict(x[new], adapt=adapt).probabilities.argmax(1)]
        return float(np.mean(guesses == y[new].astype(str)))

    info = model.info
    assert info.choice is not None
    assert info.estimate is not None
    low, high = info.estimate.interval or (0.0, 1.0)
    cells = [
        name,
        f"{100 * measure(False):.1f} ({info.choice.recipe})",
        f"{100 * measure(True):.1f} ({info.adaptation.recipe})" if info.adaptation else "not offered",
        f"{100 * info.estimate.value:.1f} ({100 * low:.0f} to {100 * high:.0f})",
        f"{100 * accuracies[chosen]:.1f} ({chosen})",
        f"{100 * max(accuracies.values()):.1f}",
        f"{ours:.0f}",
        f"{theirs:.0f}",
    ]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--pacs", type=Path)
    parser.add_argument("--budget", default="5min")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    titles = ["left out", "`fit`", "adapted", "estimate (interval)", "scikit-learn", "its best", "CPU s", "its CPU s"]
    print(f"| {' | '.join(titles)} |")
    print("| --- |" + " ---: |" * (len(titles) - 1))
    for name, (samples, left_out) in list_sets(options.pacs).items():
        print(compare(name, samples, left_out, options.out, options.budget), flush=True)


if __name__ == "__main__":
    main()
