"""Check your own method: `check_algorithm("mine")` runs the checks that every registered method passes."""

from fgmix.testing.contract import Check as Check
from fgmix.testing.contract import check_algorithm as check_algorithm
from fgmix.testing.contract import checks as checks
from fgmix.testing.toys import toy_algorithm as toy_algorithm
from fgmix.testing.toys import toy_batches as toy_batches
