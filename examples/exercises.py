"""Signals of a smartwatch: predict the exercise of a person who was not seen in training.

Ten people wore the watch on the left and the right wrist during seven exercises of physiotherapy: 140 recordings of six
channels (acceleration and rotation) at 50 Hz, cut into windows of 4 seconds. The domains are the people, the groups the
recordings. Both are natural.

Burns et al., 2018, https://arxiv.org/abs/1802.01489. Install: `pip install seglearn`.
"""

import numpy as np
from seglearn.datasets import load_watch

import fgmix

WINDOW = 200  # points


@fgmix.data.register_dataset("exercises", depends_on_trial=False)
def load(_options):
    """Seven exercises of ten people, from acceleration and rotation of the wrist."""
    watch = load_watch()
    windows = [cut_windows(recording) for recording in watch["X"]]
    recording = np.repeat(np.arange(len(windows)), [len(each) for each in windows])
    return fgmix.data.from_arrays(
        np.concatenate(windows),  # (n, 6, WINDOW)
        np.array(watch["y_labels"])[watch["y"]][recording],
        np.array([f"person {number:02}" for number in watch["subject"]])[recording],
        name="exercises",
        group=recording,
    )


def cut_windows(recording):
    """Cut a recording (time, channels) into windows (n, channels, WINDOW), without overlap."""
    n = len(recording) // WINDOW
    return recording[: n * WINDOW].reshape(n, WINDOW, -1).swapaxes(1, 2)
