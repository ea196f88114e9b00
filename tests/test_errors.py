"""Errors as sentences: whose fault they are, and what to do."""

from __future__ import annotations

import errno
import os

import numpy as np
import pytest

from fgmix.errors import LONGEST, MOST, MachineError, UserError, bad_value, to_user_error, unknown

ALLOCATION = RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes")


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (UserError("Expected this. Found that."), "Expected this. Found that."),
        (PermissionError(errno.EACCES, "Permission denied", "/root/x"), "Cannot use /root/x: "),
        (OSError("odd"), "Cannot use a file: odd."),
        (MemoryError(), "Expected enough memory. Found too little (MemoryError)."),
        (ALLOCATION, "Lower the batch size or the image size."),
        (RuntimeError("CUDA error: out of memory"), "Lower the batch size or the image size."),
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), "Expected to write the output. The disk is full."),
    ],
)
def test_what_a_user_can_put_right_is_a_sentence(error: Exception, said: str) -> None:
    assert said in str(to_user_error(error))


@pytest.mark.parametrize("error", [TypeError("x"), RuntimeError("shapes differ"), AssertionError("x"), KeyError("x")])
def test_a_fault_of_fgmix_is_not_hidden(error: Exception) -> None:
    assert to_user_error(error) is None


def test_a_failing_machine_is_seen_through_other_errors() -> None:
    error = UserError("Expected weights. They cannot be read.")
    error.__cause__ = OSError(errno.ESTALE, os.strerror(errno.ESTALE))
    assert type(to_user_error(error)) is UserError
    wrapped = RuntimeError("reading failed")
    wrapped.__cause__ = error
    assert isinstance(to_user_error(wrapped), MachineError)


@pytest.mark.parametrize(
    ("found", "guess"),
    [("ERM", "erm"), ("GroupDRO", "groupdro"), ("fgmix-a", "fgmix_a"), ("Fish", "fish"), ("mars", None), (None, None)],
)
def test_the_nearest_name_is_guessed_whatever_its_spelling(found: object, guess: str | None) -> None:
    said = str(unknown("algorithm", found, ["erm", "groupdro", "fgmix_a", "fish", "PACS"]))
    assert (f"Did you mean {guess!r}?" in said) == (guess is not None)
    assert ("Did you mean" in said) == (guess is not None)


def test_sentences_stay_short() -> None:
    many = str(unknown("name", "x" * 10_000, [f"n{i}" for i in range(1000)]))
    assert f"and {1000 - MOST} more." in many
    assert len(many) < LONGEST + 10 * MOST
    assert len(str(bad_value("x", "a number", np.zeros((1000, 1000))))) < 2 * LONGEST
    assert "\n" not in str(bad_value("x", "a number", np.zeros((9, 9))))
    assert "Found a Hostile" in str(bad_value("x", "a number", Hostile()))


class Hostile:
    def __repr__(self) -> str:
        raise RuntimeError("no")
