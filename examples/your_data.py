"""`fgmix fit` from Python: arrays from four scanners in, a model with an estimate of its accuracy on a fifth out."""

import tempfile
from pathlib import Path

import numpy as np

from fgmix import fit, load_model
from fgmix.data import from_arrays

rng = np.random.default_rng(0)
y = np.arange(400) % 3  # three findings
scanner = np.arange(400) // 100
shift = rng.normal(size=(4, 8))[scanner]  # every scanner has its own offset
X = rng.normal(size=(400, 8)) + 3 * np.eye(8)[y] + shift
names = np.array(["none", "benign", "malignant"])
data = from_arrays(X, names[y], np.array(["A", "B", "C", "D"])[scanner], name="scans")

folder = Path(tempfile.mkdtemp()) / "model"
fit(data, folder, algorithm="erm", steps=60, progress=False)

model = load_model(folder)  # in another process or on another machine, only the folder is needed
expected = model.info.estimate
print(f"accuracy on an unseen scanner: {expected.accuracy:.0%}, in-domain: {model.info.in_domain_accuracy:.0%}")

predictions = model.predict(rng.normal(size=(5, 8)) + 3 * np.eye(8)[[0, 1, 2, 0, 1]])
for label, confidence, trusted in zip(predictions.labels, predictions.confidence, predictions.trusted):
    print(f"{label:10} {confidence:.2f} {'trusted' if trusted else 'not trusted'}")
