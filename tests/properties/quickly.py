"""How properties are tested: on the same few examples every time, or on many random ones.

FGMIX_EXAMPLES=1500 pytest tests/properties
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

MANY = int(os.environ.get("FGMIX_EXAMPLES", "0"))

quickly = settings(
    max_examples=MANY or 60,
    derandomize=not MANY,
    deadline=None,  # another process may have the core
    database=None,
    suppress_health_check=[
        HealthCheck.function_scoped_fixture,  # folders in which each example writes its own file
        HealthCheck.too_slow,
    ],
)
