"""Digests inside the files that we write: damage is detected when they are read.

A sealed JSON text has its digest in its first line; a sealed line of a .jsonl file has it at its end; a sealed torch
or numpy file, which is a zip archive, has it in the archive's comment, so that `torch.load` still reads it. Archives
are large and use SHA-256, which processors compute at 1.4 GB/s; those of older versions have BLAKE2b, 0.7 GB/s.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import struct
from typing import Any, BinaryIO

from fgmix.errors import UserError

_JSON = re.compile(rb'\{"digest": "([0-9a-f]{32})",\n')
_LINE = re.compile(rb'(.*), "digest": "([0-9a-f]{32})"\}')
_SEAL = re.compile(rb"(..)(fgmix (?:sha256 ([0-9a-f]{64})|([0-9a-f]{32})))\Z", re.DOTALL)  # the end of an archive
LEVELS = 3  # of a JSON text with one entry per line: a record's entries, its evaluations and their entries
_LENGTH = 2  # bytes of the comment's length, the last of an archive without a comment
_LONGEST = 100  # bytes of the end of an archive that contain its seal
_CHUNK = 1 << 20


class Damaged(UserError):
    """A file whose content is not what was written."""


def digest_of(data: bytes) -> str:
    """Compute a digest of 32 hex digits.

    >>> digest_of(b"")
    'cae66941d9efbd404e4d88758ea67670'
    """
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def seal_json(content: dict[str, Any]) -> bytes:
    """Seal a JSON text with sorted keys and a fixed layout: equal contents, never empty, give equal bytes."""
    text = _lay_out(content, 0) + "\n"
    body = text.encode(errors="surrogatepass")[2:]  # without "{\n"; a path may contain bytes that are not text
    return f'{{"digest": "{digest_of(body)}",\n'.encode() + body


def _lay_out(value: Any, depth: int) -> str:
    """Write JSON with one line per entry down to `LEVELS` levels; deeper values share one, which is faster to read."""
    if depth == LEVELS or not isinstance(value, dict | list | tuple) or not value:
        return json.dumps(value, sort_keys=True, ensure_ascii=False)
    if isinstance(value, dict):
        ends = "{}"
        lines = [f"{json.dumps(key, ensure_ascii=False)}: {_lay_out(value[key], depth + 1)}" for key in sorted(value)]
    else:
        ends = "[]"
        lines = [_lay_out(each, depth + 1) for each in value]
    indent = "\n" + " " * depth
    return ends[0] + indent + " " + f",{indent} ".join(lines) + indent + ends[1]


def check_json(data: bytes, name: str) -> None:
    """Raise an error if a JSON text is not what `seal_json` made; `name` is the file's, for the error."""
    head = _JSON.match(data)
    if head is None or digest_of(data[head.end() :]) != head[1].decode():
        raise damage_error(name)


def strip_digest(data: bytes, name: str) -> bytes:
    """Return a sealed JSON text without its digest, which is checked."""
    check_json(data, name)
    return b"{" + data[data.index(b"\n") :]


def open_entry(data: bytes, name: str, key: str) -> Any:
    """Read one entry of a sealed JSON text, a string or a number, without parsing the others; None if there is none."""
    check_json(data, name)
    start = f'\n "{key}": '.encode()  # only lines of the first level begin so: JSON strings contain no line breaks
    place = data.rfind(start)
    if place < 0:
        return None
    try:
        return json.loads(data[place + len(start) :].partition(b"\n")[0].rstrip(b","))
    except ValueError as error:
        raise damage_error(name) from error


def open_json(data: bytes, name: str) -> dict[str, Any]:
    """Read the content of a sealed JSON text; `name` is the file's, for the error."""
    check_json(data, name)
    try:
        content: dict[str, Any] = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise damage_error(name) from error
    del content["digest"]
    return content


def seal_line(content: dict[str, Any]) -> bytes:
    """Seal a line of a .jsonl file.

    >>> seal_line({"step": 1})
    b'{"step": 1, "digest": "594ec74e8ea2417374ac57d221c8b896"}\\n'
    """
    body = json.dumps(content, sort_keys=True)[:-1].encode()
    return body + f', "digest": "{digest_of(body)}"}}\n'.encode()


def strip_line(line: bytes, name: str) -> bytes:
    """Return a sealed line without its digest, which is checked."""
    match = _LINE.fullmatch(line)
    if match is None or digest_of(match[1]) != match[2].decode():
        raise damage_error(name)
    return match[1] + b"}"


def seal_zip(file: BinaryIO, digest: str) -> None:
    """Seal a zip archive without a comment: its SHA-256 digest becomes the comment."""
    comment = f"fgmix sha256 {digest}".encode()
    file.seek(-_LENGTH, os.SEEK_END)
    file.write(struct.pack("<H", len(comment)) + comment)


def check_zip(file: BinaryIO, name: str) -> None:
    """Raise an error if an archive is not what was sealed; else return to its start."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - _LONGEST))
    seal = _SEAL.search(file.read())
    if seal is None or struct.unpack("<H", seal[1]) != (len(seal[2]),):
        raise damage_error(name)
    digest = hashlib.sha256() if seal[3] else hashlib.blake2b(digest_size=16)
    file.seek(0)
    left = size - len(seal[0])
    while left and (chunk := file.read(min(left, _CHUNK))):
        digest.update(chunk)
        left -= len(chunk)
    digest.update(bytes(_LENGTH))
    if digest.hexdigest().encode() not in seal.groups():
        raise damage_error(name)
    file.seek(0)


def damage_error(name: str) -> Damaged:
    """Make the error for a damaged file."""
    return Damaged(f"Expected the file that was written at {name}. Found other bytes: it is damaged.")
