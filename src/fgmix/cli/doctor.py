"""fgmix doctor: what is installed, and what is missing."""

from __future__ import annotations


def doctor() -> None:
    """Print versions, devices, folders and extras, and how to get what is missing.

    Example: fgmix doctor
    """
    from fgmix.doctor import diagnosis

    print("\n".join(diagnosis()))
