"""Share of noise that a model of features flags as novel and trusts, by the noise's size.

    python benchmarks/studies/far_features.py MODEL DATA.npz

Noise has the mean of each feature, and 1, 3, 10 or 100 times its standard deviation; 300 rows of each.
"""

from __future__ import annotations

import sys

import numpy as np

from fgmix import load_model

ROWS = 300

if __name__ == "__main__":
    model, x = load_model(sys.argv[1]), np.load(sys.argv[2])["X"].astype(np.float32)
    rng = np.random.default_rng(0)
    print("| standard deviations | flagged as novel | trusted |\n| ---: | ---: | ---: |")
    for size in (1, 3, 10, 100):
        noise = x.mean(0) + size * x.std(0) * rng.normal(size=(ROWS, x.shape[1])).astype(np.float32)
        found = model.predict(noise)
        print(f"| {size} | {100 * (found.novelty > 1).mean():.1f} % | {100 * found.trusted.mean():.1f} % |")
