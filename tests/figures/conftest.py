"""Finished runs that the tests of this folder share."""

from training.finished import erm, mixing

__all__ = ["erm", "mixing"]
