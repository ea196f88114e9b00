"""Embeddings from five scanners: train on four of them and estimate the accuracy on the fifth."""

import numpy as np

from fgmix import DomainGeneralizer

rng = np.random.default_rng(0)
finding, scanner = rng.integers(3, size=1000), rng.integers(5, size=1000)
classes, looks = 2 * rng.normal(size=(3, 16)), 2 * rng.normal(size=(5, 16))
X = classes[finding] + looks[scanner] + 2 * rng.normal(size=(1000, 16))
y = np.array(["none", "benign", "malignant"])[finding]
seen = scanner < 4

model = DomainGeneralizer("fgmix", steps=100)
expected = model.leave_one_domain_out(X[seen], y[seen], scanner[seen])
print(expected)

model.fit(X[seen], y[seen], domains=scanner[seen])
found = model.score(X[~seen], y[~seen])
print(f"accuracy on scanner 4, not seen in training: {found:.1%}")
