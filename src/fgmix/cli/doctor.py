"""fgmix doctor: what is installed, and what is missing."""

from __future__ import annotations


def doctor() -> None:
    """Print versions, devices and folders, and what is missing.

    Example: fgmix doctor
    """
    from fgmix.doctor import diagnose

    print("\n".join(diagnose()))
