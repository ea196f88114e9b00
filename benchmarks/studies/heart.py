"""Compare `fgmix fit` with scikit-learn pipelines on heart disease in four hospitals, each left out in turn.

    python benchmarks/studies/heart.py FOLDER OUT [--metric balanced_accuracy]

FOLDER has the files processed.cleveland.data, …, of the UCI repository (Janosi et al., "Heart Disease", 1988,
https://doi.org/10.24432/C52P4X; MD5 below). The label is num > 0; a cholesterol or blood pressure of 0 is missing, and
cp, restecg, slope and thal are categories. `fit` reads a table; the pipelines get categories as indicators and missing
numbers as means with indicators (boosting: as they are). Columns as in fit_against_sklearn.py.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from fit_against_sklearn import Array, estimate_search, make_pipelines, search
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.impute import SimpleImputer
from sklearn.pipeline import Pipeline

from fgmix import fit
from fgmix.deploy.predict import predict_paths

HOSPITALS = {
    "cleveland": "2d91a8ff69cfd9616aa47b59d6f843db",
    "hungarian": "22e96bee155b5973568101c93b3705f6",
    "switzerland": "9a87f7577310b3917730d06ba9349e20",
    "va": "4249d03ca7711e84f4444768c9426170",
}
COLUMNS = (
    "age",
    "sex",
    "cp",
    "trestbps",
    "chol",
    "fbs",
    "restecg",
    "thalach",
    "exang",
    "oldpeak",
    "slope",
    "ca",
    "thal",
)
CATEGORIES = ("cp", "restecg", "slope", "thal")
NEVER_ZERO = ("trestbps", "chol")
Row = dict[str, str]


def read_hospital(folder: Path, name: str) -> list[Row]:
    """Read the patients of a hospital, with empty texts for missing values."""
    content = (folder / f"processed.{name}.data").read_bytes()
    if hashlib.md5(content).hexdigest() != HOSPITALS[name]:
        raise SystemExit(f"{name} is not the file of the UCI repository")
    rows = []
    for line in content.decode().split():
        *values, num = line.split(",")
        row = {column: "" if value == "?" else f"{float(value):g}" for column, value in zip(COLUMNS, values)}
        row |= {column: "" for column in NEVER_ZERO if row[column] == "0"}
        rows.append({**row, "label": "ill" if float(num) else "healthy", "domain": name})
    return rows


def write_table(rows: list[Row], path: Path) -> Path:
    """Write a table in which the categories are declared."""
    heads = {column: f"{column}:category" if column in CATEGORIES else column for column in rows[0]}
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(heads))
        writer.writerow(heads)
        writer.writerows(rows)
    return path


def encode(rows: list[Row], known: list[Row]) -> Array:
    """Encode patients for scikit-learn: numbers, NaN where they are missing, and indicators of known categories."""
    numbers = [[float(row[c] or "nan") for c in COLUMNS if c not in CATEGORIES] for row in rows]
    levels = [(c, level) for c in CATEGORIES for level in sorted({row[c] for row in known})]
    return np.hstack([np.array(numbers), [[row[c] == level for c, level in levels] for row in rows]])


def make_all(features: int) -> dict[str, Any]:
    """Make the pipelines, with missing values imputed but for boosting."""
    return {
        title: each
        if isinstance(each, HistGradientBoostingClassifier)
        else Pipeline([("impute", SimpleImputer(add_indicator=True)), *each.steps])
        for title, each in make_pipelines(features).items()
    }


def score(model: Any, table: Path, labels: list[str], *, adapt: bool) -> float:
    """Compute the accuracy of a model on a table."""
    guesses = [row["label"] for row in predict_paths(model, [table], adapt=adapt)]
    return float(np.mean(np.array(guesses) == labels))


def compare(patients: list[Row], hospital: str, out: Path, metric: str) -> str:
    """Return a row of the table."""
    known = [row for row in patients if row["domain"] != hospital]
    new = [row for row in patients if row["domain"] == hospital]
    x, x_new = encode(known, known), encode(new, known)
    y, y_new, d = (
        np.array([row[k] for row in rows]) for rows, k in ((known, "label"), (new, "label"), (known, "domain"))
    )
    began, pipelines = time.process_time(), make_all(x.shape[1])
    chosen = search(pipelines, (x, y, d))
    accuracies = {title: pipeline.fit(x, y).score(x_new, y_new) for title, pipeline in pipelines.items()}
    theirs = time.process_time() - began
    estimate = estimate_search(pipelines, (x, y, d))
    nested = time.process_time() - began
    out.mkdir(parents=True, exist_ok=True)
    tables = [write_table(rows, out / f"{hospital}-{part}.csv") for part, rows in (("known", known), ("new", new))]
    began = time.process_time()
    model = fit(tables[0], out / f"{hospital}-{metric}", metric=metric, device="cpu", progress=False)
    ours, info = time.process_time() - began, model.info
    assert info.choice is not None
    assert info.estimate is not None
    ends = info.estimate.interval
    cells = [
        f"heart disease, {hospital}",
        f"{100 * score(model, tables[1], y_new.tolist(), adapt=False):.1f} ({info.choice.recipe})",
        f"{100 * score(model, tables[1], y_new.tolist(), adapt=True):.1f} ({info.adaptation.recipe})"
        if info.adaptation
        else "not offered",
        f"{100 * info.estimate.value:.1f} ({f'{100 * ends[0]:.0f} to {100 * ends[1]:.0f}' if ends else 'none'})",
        f"{100 * accuracies[chosen]:.1f} ({chosen})",
        f"{100 * max(accuracies.values()):.1f}",
        f"{ours:.1f}",
        f"{theirs:.1f}",
        f"{nested:.1f} (estimate {100 * estimate:.1f})",
    ]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--metric", default="accuracy", help="by which `fit` chooses")
    parser.add_argument("--only", default="", help="hospitals whose name contains this")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    patients = [row for name in HOSPITALS for row in read_hospital(options.folder, name)]
    for hospital in HOSPITALS:
        if options.only in hospital:
            print(compare(patients, hospital, options.out, options.metric), flush=True)


if __name__ == "__main__":
    main()
