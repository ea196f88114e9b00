"""Does the interval for one more domain hold? python examples/unseen_interval.py

Seven domains of scikit-learn's digits, each with another look. Each is truly held out once: the other six give the
estimate with its 95 % interval (`leave_one_domain_out`), and the model of all six is then tested on the seventh.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter, rotate, shift
from sklearn.datasets import load_digits

from fgmix import DomainGeneralizer

LOOKS = ("plain", "faint", "left", "right", "blurred", "noisy", "moved")


def seven_domains() -> tuple[NDArray[np.float32], NDArray[np.int64], NDArray[np.str_]]:
    """Features (1797, 64), digits and looks; every image occurs in one domain."""
    images, digits = load_digits(return_X_y=True)
    rng = np.random.default_rng(0)
    look = np.array(LOOKS)[rng.permutation(len(images)) % len(LOOKS)]
    x = (images.reshape(-1, 8, 8) / 16).astype(np.float32)
    x[look == "faint"] *= 0.8
    x[look == "left"] = rotate(x[look == "left"], 10, axes=(1, 2), reshape=False)
    x[look == "right"] = rotate(x[look == "right"], -10, axes=(1, 2), reshape=False)
    x[look == "blurred"] = gaussian_filter(x[look == "blurred"], (0, 0.5, 0.5))
    x[look == "noisy"] += 0.1 * rng.normal(size=x[look == "noisy"].shape)
    x[look == "moved"] = shift(x[look == "moved"], (0, 0, 0.3))
    return x.reshape(-1, 64), digits, look


def main(held_out: Sequence[str] = LOOKS, steps: int = 60) -> int:
    """Print the estimate beside what came out, and return how often that lay in the interval."""
    x, y, look = seven_domains()
    inside = 0
    print("| held out | estimate | interval | accuracy |\n| --- | ---: | ---: | ---: |")
    for name in held_out:
        known, new = look != name, look == name
        model = DomainGeneralizer("erm", steps=steps)
        expected = model.leave_one_domain_out(x[known], y[known], look[known])
        accuracy = model.fit(x[known], y[known], domains=look[known]).score(x[new], y[new])
        low, high = expected.interval or (0.0, 1.0)
        inside += low <= accuracy <= high
        print(f"| {name} | {expected.mean:.1%} | {low:.1%} to {high:.1%} | {accuracy:.1%} |", flush=True)
    print(f"{inside} of {len(held_out)} inside")
    return inside


if __name__ == "__main__":
    main()
