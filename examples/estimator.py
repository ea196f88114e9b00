"""Embeddings from five scanners: train on four, and say beforehand what to expect of the fifth."""

import numpy as np

from fgmix import DomainGeneralizer

rng = np.random.default_rng(0)
finding, scanner = rng.integers(3, size=1000), rng.integers(5, size=1000)
classes, looks = 2 * rng.normal(size=(3, 16)), 2 * rng.normal(size=(5, 16))
X = classes[finding] + looks[scanner] + 2 * rng.normal(size=(1000, 16))
y = np.array(["none", "benign", "malignant"])[finding]
known = scanner < 4

model = DomainGeneralizer("fgmix", steps=300)
expected = model.leave_one_domain_out(X[known], y[known], scanner[known])
print(expected)

model.fit(X[known], y[known], domains=scanner[known])
found = model.score(X[~known], y[~known])
print(f"scanner 4, never seen: {found:.1%}")
