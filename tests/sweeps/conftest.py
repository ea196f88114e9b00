"""The data of most tests of sweeps."""

from __future__ import annotations

import pytest

from sweeps.toys import make_data


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    return make_data(tmp_path_factory.mktemp("data"))
