"""A run is a folder: spec.json, metrics.jsonl, checkpoint.pt, weights, and finally record.json, which means done."""

from __future__ import annotations

import json
import lzma
import os
import platform
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import msgspec
from msgspec.structs import replace

import fgmix
from fgmix.errors import UserError, machine_error
from fgmix.records.digests import Damaged, damage_error, open_entry, seal_line, strip_digest, strip_line
from fgmix.records.evaluations import Evaluation, Model
from fgmix.records.files import (
    append_line,
    at_once,
    check_path,
    make_folder,
    may_exist,
    new_file,
    read_bytes,
    read_json,
    remove_temporaries,
    write_bytes,
    write_json,
)
from fgmix.records.locks import Claim, hold_claim, hold_lock
from fgmix.records.schema import ResolvedSpec, RunRecord, Which, check_record, to_plain

SPEC = "spec.json"
RECORD = "record.json"
SNAPSHOTS = "snapshots"
PACKED = ".records.xz"  # ending of a packed file
_PIECE = 2**24  # bytes that are decompressed at a time
_LONGEST = 2**28  # bytes of a line, at most; that of a run has some thousands
THEN = ", then "  # between the codes of a run that was resumed with other code
SUFFIXES: dict[Model, str] = {"raw": "", "swa": "_swa", "swad": "_swad"}  # in names of files of weights
KEPT = ("none", "best", "all")  # from the fewest weights to the most


def is_other_code(before: object, now: str) -> bool:
    """Say whether a run's code differs from the present one; one that is not known does not."""
    return bool(before and now) and str(before).rpartition(THEN)[2] != now


def describe_older(count: int, algorithm: str, place: Path) -> str:
    """Write a note on finished runs of other code; `place` is where the first of them is."""
    runs = "1 finished run is" if count == 1 else f"{count} finished runs are"
    return (
        f"{runs} of older code of {algorithm}, such as {place}. Delete them to train them again. "
        "--accept-code keeps them without this note."
    )


class RunBusy(UserError):
    """Another process is working on the run."""


class Counted(Protocol):
    """Something that counts the steps of a run."""

    step: int


class _File:
    """A file of a run. Its path is built on access: `status` uses two files of each of 20,000 runs."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, run: RunFolder, kind: type) -> Path:
        return run.path / self.name


class RunFolder:
    """The files of one run; their names are defined only here.

    Args:
        path: the folder; it is created when the run is opened.

    Files:
        spec.json: the resolved spec, its identity, and the environment in which the run was started.
        metrics.jsonl: one line per evaluation. When a run resumes, lines newer than its checkpoint are removed.
        checkpoint.pt: everything a killed run needs to resume, and checkpoint_before.pt, the one before it, in case it
            is damaged; removed when the run is done.
        last.pt, best.pt, best_swa.pt, last_swa.pt: weights after the last and at the selected step.
        snapshots/: weights during training, by step.
        sessions.jsonl: when, where and how long a process worked on the run; not part of the result.
        record.json: the result; written last, so that its presence means done.
        attempts.jsonl: in a sweep, when, where and why the machine failed during the run; not part of the result.
        error.json: why a run of a sweep failed.
        .lock, .claim: held by the process that works on the run, see `fgmix.records.locks`.
        .attempt: a lock held by the process that attempts the run in a sweep.
    """

    spec = _File(SPEC)
    metrics = _File("metrics.jsonl")
    checkpoint = _File("checkpoint.pt")
    checkpoint_before = _File("checkpoint_before.pt")
    record = _File(RECORD)
    sessions = _File("sessions.jsonl")
    attempts = _File("attempts.jsonl")
    error = _File("error.json")
    lock = _File(".lock")
    claim = _File(".claim")
    attempt_lock = _File(".attempt")

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.code = ""  # of the method, since `enter`: what a record states
        self._held: Claim | None = None

    # Weights

    def weights(self, which: Which, model: Model = "raw") -> Path:
        """Return the file of the weights after the last or at the selected step."""
        return self.path / f"{which}{SUFFIXES[model]}.pt"

    def snapshot(self, step: int, model: Model = "raw") -> Path:
        """Return the file of the weights kept after a step."""
        return self.path / SNAPSHOTS / f"{step:07d}{SUFFIXES[model]}.pt"

    def is_snapshot(self, path: Path) -> bool:
        """Say whether a file is a snapshot, which contains the weights of featurizer and classifier only."""
        return path.parent == self.path / SNAPSHOTS

    @property
    def checkpoints(self) -> tuple[Path, Path]:
        """The newest checkpoint and the one before it."""
        return self.checkpoint, self.checkpoint_before

    def start_over(self) -> None:
        """Remove the checkpoints, evaluations and weights of an unfinished run."""
        for path in (*self.checkpoints, self.metrics, *self.path.glob("*.pt"), *self.path.glob(f"{SNAPSHOTS}/*.pt")):
            path.unlink(missing_ok=True)

    # State

    @property
    def is_done(self) -> bool:
        return self.record.exists()

    @property
    def has_failed(self) -> bool:
        """Whether the run ended in an error, and no later attempt has finished it."""
        return self.error.exists() and not self.is_done

    @property
    def is_settled(self) -> bool:
        """Whether nothing is left to do: it is done, or it failed."""
        return self.is_done or self.error.exists()

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Lock the folder for this process, among all machines that share it; a new one is made."""
        make_folder(self.path)
        busy = RunBusy(f"The run {self.path} is being worked on by another process. Wait for it, or stop it.")
        with hold_lock(self.lock, busy), hold_claim(self.claim, busy) as self._held:
            remove_temporaries(self.path)
            yield

    def enter(
        self, spec: ResolvedSpec, environment: dict[str, Any], code: str = "", *, accept_code: bool = False
    ) -> ResolvedSpec:
        """Write the spec.json of a new run; a folder of another spec, or of another version of fgmix, is an error.

        Call it while the folder is held. Returns the run's spec: with the `keep` that it was started with, which must
        keep at least the requested weights.

        Args:
            spec: the run's.
            environment: versions and machine, for the spec.json of a new run.
            code: of its method; a checkpoint of other code is an error.
            accept_code: resume it nevertheless.
        """
        self.code = code
        if not self.spec.exists():
            maker = {"fgmix": fgmix.__version__, "code": self.code, "environment": environment}
            write_json(self.spec, {**maker, "identity": spec.identity, "spec": to_plain(spec)})
            return spec
        try:
            stored = read_json(self.spec)
        except Damaged as error:
            raise Damaged(f"{error} Delete it and rerun the same command: the run resumes.") from error
        if stored.get("fgmix") != fgmix.__version__:
            raise UserError(
                f"The run {self.path} was made by fgmix {stored.get('fgmix')}. This is {fgmix.__version__}: results "
                "may differ. Choose another --out, or finish it with that version."
            )
        if stored.get("identity") != spec.identity:
            raise UserError(
                f"The run {self.path} was made from another spec. Its spec.json was changed, or two specs share a "
                "digest. Choose another --out."
            )
        kept = stored["spec"]["keep"]  # present in every spec with this identity
        if KEPT.index(kept) < KEPT.index(spec.keep):
            raise UserError(
                f"The run {self.path} keeps {kept} of its weights. Found --keep {spec.keep}. Choose another --out, or "
                "delete the run to train it again."
            )
        self._check_code(stored, spec.algorithm, accept_code)
        return replace(spec, keep=kept)

    def _check_code(self, stored: dict[str, Any], algorithm: str, accept: bool) -> None:
        """Raise an error for a checkpoint of other code; if that is accepted, the record states both."""
        before = stored.get("code") or self.code
        if self.is_done or not is_other_code(before, self.code):
            self.code = before
            return
        if self.has_checkpoint:
            if not accept:
                raise UserError(
                    f"The run {self.path} was started with other code of {algorithm} ({before}, now {self.code}). "
                    "Delete it to train it again, or add --accept-code."
                )
            self.code = f"{before}{THEN}{self.code}"
        write_json(self.spec, {**stored, "code": self.code})

    @property
    def has_checkpoint(self) -> bool:
        return any(path.exists() for path in self.checkpoints)

    def read_code(self) -> str:
        """Read the code of the method that a run was made with; empty if it is not known."""
        file = self.spec if self.spec.exists() else self.record
        try:
            return open_entry(read_bytes(file), str(file), "code") or ""
        except UserError:  # no file, or a damaged one, which is reported where it is used
            return ""

    def append(self, evaluation: Evaluation) -> int:
        """Add a line to metrics.jsonl; returns the file's length, which the checkpoint stores."""
        if self._held:
            self._held.check()  # otherwise two machines could write to the same file
        line = seal_line(to_plain(evaluation))
        try:
            with open(self.metrics, "ab", opener=at_once) as file:
                file.write(line)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise machine_error(error, self.metrics, len(line)) from error
        return self.metrics.stat().st_size

    def cut_metrics(self, length: int) -> None:
        """Remove the lines written after the checkpoint that the run resumes from: they will be written again."""
        if self.metrics.exists():
            with open(self.metrics, "r+b") as file:
                file.truncate(length)

    def evaluations(self, length: int | None = None) -> tuple[Evaluation, ...]:
        """Read the evaluations in the first `length` bytes of metrics.jsonl, or in all; a damaged file is an error."""
        data = read_bytes(self.metrics) if self.metrics.exists() else b""
        name = str(self.metrics)
        if length is not None and len(data) < length:
            raise damage_error(name)
        try:
            lines = [json.loads(strip_line(line, name)) for line in data[:length].splitlines()]
            return msgspec.convert(lines, tuple[Evaluation, ...])
        except (ValueError, RecursionError) as error:  # the first is that of msgspec, too
            raise damage_error(name) from error

    @contextmanager
    def session(self, state: Counted) -> Iterator[None]:
        """Record in sessions.jsonl how long this process worked on the run, and the steps that it counted."""
        first, started, clock = state.step, time.time(), time.monotonic()
        try:
            yield
        finally:
            place = {"pid": os.getpid(), "host": platform.node(), "gpus": os.environ.get("CUDA_VISIBLE_DEVICES")}
            steps = {"first_step": first, "last_step": state.step}
            line = {**steps, **place, "started": started, "seconds": time.monotonic() - clock}
            append_line(self.sessions, line)  # a full disk has already been reported


def write_record(record: RunRecord, path: Path) -> None:
    """Write a record atomically; equal records give equal bytes."""
    write_json(path, to_plain(record))


def read_record(path: str | Path) -> RunRecord:
    """Read the record in a run's folder (or at a record.json)."""
    path = check_path("path", path)
    file = path / RECORD if os.path.isdir(path) else path
    if not may_exist(file):
        raise UserError(f"Expected a finished run at {path}. Found no {RECORD}. Name a run's own folder.")
    try:
        content = strip_digest(read_bytes(file), str(file))
    except Damaged as error:
        if file.name != RECORD:
            raise UserError(f"Expected a finished run at {path}. Found another file. Name a run's folder.") from error
        raise Damaged(f"{error} Delete it and train the run again.") from error
    return parse_record(content, str(file), file.parent)


def parse_record(data: bytes, place: str, folder: Path | None = None) -> RunRecord:
    """Parse the JSON text of a record, checked against the schema.

    Args:
        data: the text, without its digest.
        place: where it was read, for errors.
        folder: the run's; None for a record without one.
    """
    try:
        record = check_record(_decode(data))
    except (ValueError, RecursionError) as error:  # the first is that of msgspec, too
        if "`$.schema`" in str(error):
            raise UserError(
                f"Expected a record of schema 2 at {place}. Found another one. Read it with the fgmix version "
                "that made it."
            ) from error
        raise UserError(
            f"Expected a run's record at {place}. Found one that is not whole ({error}). Delete it and train the run "
            "again."
        ) from error
    return replace(record, folder=folder, origin="")


_decoder = msgspec.json.Decoder(RunRecord)


def _decode(data: bytes) -> RunRecord:
    try:
        return _decoder.decode(data)
    except msgspec.ValidationError:
        raise
    except (msgspec.DecodeError, UnicodeDecodeError):
        # A metric may be NaN and a path may contain bytes that are not text, which Python's own reader accepts.
        return msgspec.convert(json.loads(data), RunRecord)


# Many records in one small file, to archive and publish: a sealed line for each, compressed


def pack(records: Sequence[RunRecord], path: Path) -> None:
    """Write records to a new file; equal records give equal bytes, whatever their order.

    Args:
        records: of any runs except those of grids, which cannot be distinguished by their records alone.
        path: a new file that ends in .records.xz.
    """
    if not path.name.endswith(PACKED):
        raise UserError(f"Expected a file name that ends in {PACKED}. Found {path.name}. Choose another name.")
    lines = sorted(seal_line(to_plain(record)) for record in records)
    write_bytes(new_file(path, "--pack"), lzma.compress(b"".join(lines), preset=9))


def unpack(path: Path) -> list[RunRecord]:
    """Read the records of a file that `pack` wrote; they have no folder."""
    try:
        numbered = enumerate(_decompress_lines(path), start=1)
        records = [parse_record(strip_line(line, str(path)), f"line {number} of {path}") for number, line in numbered]
    except lzma.LZMAError as error:
        raise UserError(
            f"Expected a folder of runs, or a file of `fgmix report --pack`, at {path}. Found another file or a "
            "damaged one. Check the path."
        ) from error
    except Damaged as error:
        raise Damaged(f"{error} Copy it again, or pack the runs again.") from error
    if not records:
        raise UserError(f"Expected records in {path}. Found none. Pack finished runs.")
    return records


def _decompress_lines(path: Path) -> Iterator[bytes]:
    """Decompress the lines of a file in pieces, so that a damaged or malicious one cannot fill memory."""
    decompressor, data, rest = lzma.LZMADecompressor(), read_bytes(path), b""
    while not decompressor.eof:
        piece = decompressor.decompress(data, max_length=_PIECE)
        if (not piece and decompressor.needs_input) or len(rest) > _LONGEST:
            raise damage_error(str(path))
        *lines, rest = (rest + piece).split(b"\n")
        data = b""
        yield from lines
    if decompressor.unused_data:  # in a `cat` of two such files, the second would be lost
        raise UserError(f"Expected one packed file at {path}. Found more after its end. Name each file by itself.")
    if rest:
        raise damage_error(str(path))
