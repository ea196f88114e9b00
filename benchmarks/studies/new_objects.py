"""Compare what `fgmix fit` expects for new objects with what it gets, on images whose groups name the objects.

    python benchmarks/studies/new_objects.py MANIFEST OUT --without twitter,outline [--recipes svm,logistic]

A fifth of the groups and all images of the domains `--without` are left out of everything. `fit` trains on features of
the rest, with the groups, and predicts the domains left out: objects that it knows in other styles, and new ones.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from twins import join_features

from fgmix import fit
from fgmix.data import from_arrays

NEW = 5  # every fifth group is new


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("manifest", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--without", required=True, help="domains, separated by commas")
    parser.add_argument("--recipes", type=lambda text: text.split(","))
    options = parser.parse_args()
    x, y, d, group = join_features(options.manifest)
    if (group < 0).any():
        raise SystemExit("every domain needs groups")
    left_out = options.without.split(",")
    is_new = np.isin(group, np.random.default_rng(0).permutation(group.max() + 1)[::NEW])
    seen = ~is_new & ~np.isin(d, left_out)
    data = from_arrays(x[seen], y[seen], d[seen], group=group[seen])
    model = fit(data, options.out, recipes=options.recipes, device="cpu")
    assert model.info.estimate is not None
    found = model.info.estimate.new_objects
    assert found is not None
    print("| objects | known | new |\n| --- | ---: | ---: |")
    print(f"| expected in a new domain | {100 * found.known:.1f} | {100 * found.value:.1f} |")
    labels = np.array(model.info.classes)
    for name in left_out:
        cells = []
        for objects in (~is_new, is_new):
            rows = objects & (d == name)
            guesses = labels[model.predict(x[rows]).probabilities.argmax(1)]
            cells.append(f"{100 * np.mean(guesses == y[rows].astype(str)):.1f}")
        print(f"| {name} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
