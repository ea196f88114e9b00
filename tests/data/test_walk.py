"""A newcomer who follows an image from its file to a batch reads few functions of the data room."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from types import FrameType

import pytest

import fgmix.data
from data.pictures import two_domains
from fgmix.data import LoadOptions
from fgmix.data.image_dataset import load_images
from fgmix.data.loading import BatchSource, deliver
from fgmix.data.sampling import UniformSampler
from fgmix.data.splits import split_dataset

ROOM = str(Path(fgmix.data.__file__).parent)
MOST = 84  # it was 109 when the cache had five classes, and 92 with a stored list of files


@pytest.mark.usefixtures("image_cache")
def test_from_a_file_to_a_batch(tmp_path: Path) -> None:
    root, seen = two_domains(tmp_path / "pets"), set()

    def note(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(ROOM) and not code.co_name.startswith("<"):
            seen.add((code.co_filename, code.co_qualname))

    before = sys.getprofile()
    threading.setprofile(note)
    sys.setprofile(note)
    try:
        data = load_images(root, LoadOptions(image_size=8, progress=False))
        pools = tuple(split.train for split in split_dataset(data, 0.25, 0).values())
        batches = next(deliver(BatchSource(data.domains, UniformSampler(0, pools, 2), 0).prepare, range(1)))
    finally:
        threading.setprofile(None)
        sys.setprofile(before)
    assert len(batches) == 2
    assert len(seen) <= MOST, sorted(seen)
