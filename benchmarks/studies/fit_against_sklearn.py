"""Compare `fgmix fit` with plain scikit-learn pipelines on domains that neither has seen.

    python benchmarks/studies/fit_against_sklearn.py OUT [--only TEXT] [--pacs FEATURES.npz] [--images IMAGES]
        [--budget 5min] [--nested]

One domain of each set is left out of everything. `fit` trains on the others with its defaults, but for the budget. It
is wall time, so a loaded machine tries fewer recipes: give enough for the rows to be comparable. The pipelines are a
StandardScaler with logistic regression (C = 0.001, 0.03, 1), an RBF support vector machine (C = 3) or histogram
gradient boosting; the best of them is chosen by leave-one-domain-out (`cross_val_score`). Its CPU time is that of the
whole search, training of all included; that of `fit` includes card, figures and calibration. The best accuracy of a
search is no estimate for a new domain, as `fit` gives it: with --nested it is repeated without each domain, which is
then predicted (with three domains or more), and the time of all searches is reported, too. Rows are printed as
Markdown. Penguins and people need the packages palmerpenguins and seglearn, and are left out without them. Image files
are features of the frozen backbone for both, whose time does not count.
"""

from __future__ import annotations

import argparse
import csv
import time
import warnings
from importlib.util import find_spec
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
from twins import join_features

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


def read_penguins() -> Samples:
    """Read the sex of penguins (PyPI `palmerpenguins`) by their measures and species; the islands are the domains."""
    path = Path(str(find_spec("palmerpenguins").origin)).parent / "data" / "penguins.csv"  # type: ignore[union-attr]
    rows = [row for row in csv.DictReader(path.open()) if "NA" not in row.values()]
    names = ("bill_length_mm", "bill_depth_mm", "flipper_length_mm", "body_mass_g")
    species = sorted({row["species"] for row in rows})
    x = [[*(float(row[name]) for name in names), *(row["species"] == each for each in species)] for row in rows]
    return np.array(x), np.array([row["sex"] for row in rows]), np.array([row["island"] for row in rows])


def read_people(n: int = 6) -> Samples:
    """Read the exercises of the first people of seglearn's watch data, by moments of windows of 100 samples."""
    from seglearn import load_watch

    data = load_watch()
    x, y, people = [], [], []
    for series, label, person in zip(data["X"], data["y"], data["subject"]):
        for start in range(0, len(series) - 100, 100):
            window = np.asarray(series, float)[start : start + 100]
            steps = np.abs(np.diff(window, axis=0)).mean(0)
            x.append(np.concatenate([window.mean(0), window.std(0), steps, window.min(0), window.max(0)]))
            y.append(int(label))
            people.append(int(person))
    kept = np.isin(people, sorted(set(people))[:n])
    return np.array(x)[kept], np.array(y)[kept], np.array(people)[kept]


def list_sets(pacs: Path | None, images: Path | None = None) -> dict[str, tuple[Samples, Any]]:
    """List the sets, each with the domain that is left out."""
    sets: dict[str, tuple[Samples, Any]] = {
        "wine by malic acid, highest third": (split_by(*load_wine(return_X_y=True), 1), 2),
        "breast cancer by mean texture, highest third": (split_by(*load_breast_cancer(return_X_y=True), 1), 2),
        "digits, turned by 60°": (rotate_digits(), 3),
        "digits, turned by 20°": (rotate_digits(), 1),
    }
    if find_spec("palmerpenguins"):
        sets |= {f"penguins of {island}": (read_penguins(), island) for island in ("Biscoe", "Dream")}
    if find_spec("seglearn"):
        people = read_people()
        sets |= {f"exercises of person {each}": (people, each) for each in np.unique(people[2])[:2]}
    if pacs:
        with np.load(pacs) as file:
            x, y, d = file["X"].astype(np.float32), file["y"], file["domains"][file["domain"]]
        sets |= {f"PACS features, {name}": ((x, y, d), name) for name in np.unique(d)}
    if images:
        x, y, d, _ = join_features(images)
        sets |= {f"{images.stem}, {name}": ((x, y, d), name) for name in np.unique(d)}
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


def search(pipelines: dict[str, Any], samples: Samples) -> str:
    """Name the pipeline with the best accuracy by leave-one-domain-out."""
    x, y, d = samples
    scores = {
        title: cross_val_score(pipeline, x, y, groups=d, cv=LeaveOneGroupOut()).mean()
        for title, pipeline in pipelines.items()
    }
    return max(scores, key=scores.__getitem__)


def estimate_search(pipelines: dict[str, Any], samples: Samples) -> float:
    """Estimate the accuracy of `search` on a new domain: each domain is predicted by a search among the others."""
    x, y, d = samples
    found = []
    for domain in np.unique(d):
        seen, new = d != domain, d == domain
        chosen = pipelines[search(pipelines, (x[seen], y[seen], d[seen]))]
        found.append(chosen.fit(x[seen], y[seen]).score(x[new], y[new]))
    return float(np.mean(found))


def compare(name: str, samples: Samples, left_out: Any, out: Path, budget: str, nested: bool) -> str:
    """Return a row of the table."""
    x, y, d = samples
    seen, new = d != left_out, d == left_out
    known, pipelines = (x[seen], y[seen], d[seen]), make_pipelines(x.shape[1])
    began = time.process_time()
    chosen = search(pipelines, known)
    accuracies = {title: pipeline.fit(x[seen], y[seen]).score(x[new], y[new]) for title, pipeline in pipelines.items()}
    theirs, honest = time.process_time() - began, ""
    if nested and len(np.unique(d[seen])) > 2:
        estimate = estimate_search(pipelines, known)
        honest = f"{time.process_time() - began:.1f} (estimate {100 * estimate:.1f})"
    began = time.process_time()
    model = fit(from_arrays(*known), out / name.replace(" ", "_"), budget=budget, device="cpu")
    ours = time.process_time() - began
    labels = np.array(model.info.classes)

    def measure(adapt: bool) -> float:
        guesses = labels[model.predict(x[new], adapt=adapt).probabilities.argmax(1)]
        return float(np.mean(guesses == y[new].astype(str)))

    info = model.info
    assert info.choice is not None
    assert info.estimate is not None
    ends = info.estimate.interval
    cells = [
        name,
        f"{100 * measure(False):.1f} ({info.choice.recipe})",
        f"{100 * measure(True):.1f} ({info.adaptation.recipe})" if info.adaptation else "not offered",
        f"{100 * info.estimate.value:.1f} ({f'{100 * ends[0]:.0f} to {100 * ends[1]:.0f}' if ends else 'none'})",
        f"{100 * accuracies[chosen]:.1f} ({chosen})",
        f"{100 * max(accuracies.values()):.1f}",
        f"{ours:.1f}",
        f"{theirs:.1f}",
        honest or "–",
    ]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--only", default="", help="sets whose name contains this")
    parser.add_argument("--pacs", type=Path)
    parser.add_argument("--images", type=Path, help="a folder or manifest")
    parser.add_argument("--budget", default="5min")
    parser.add_argument("--nested", action="store_true", help="measure the time of nested searches")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    titles = [
        "left out",
        "`fit`",
        "adapted",
        "estimate (interval)",
        "scikit-learn",
        "its best",
        "CPU s",
        "its",
        "nested",
    ]
    print(f"| {' | '.join(titles)} |")
    print("| --- |" + " ---: |" * (len(titles) - 1))
    for name, (samples, left_out) in list_sets(options.pacs, options.images).items():
        if options.only in name:
            print(compare(name, samples, left_out, options.out, options.budget, options.nested), flush=True)


if __name__ == "__main__":
    main()
