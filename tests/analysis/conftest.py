"""Finished runs that the tests of this folder share."""

from runs.finished import erm, mixing

__all__ = ["erm", "mixing"]
