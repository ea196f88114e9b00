"""HTML built from elements: any text that is not `Html` is escaped."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterable
from html import escape
from typing import Any

_VOID = ("input", "meta", "img", "br")  # elements without an end tag


class Html(str):
    """Text that is HTML and is not escaped in an element."""


def element(name: str, /, *children: str | Iterable[str], **attributes: str | bool | None) -> Html:
    """An element with its children.

    Args:
        name: the element's name.
        children: texts, elements, or iterables of them.
        attributes: `class_` is class and `data_x` is data-x; None and False leave an attribute out, True writes it
            without a value.

    >>> element("td", "a < b", class_="number", title='"x"')
    '<td class="number" title="&quot;x&quot;">a &lt; b</td>'
    """
    given = "".join(_attribute(key, value) for key, value in attributes.items())
    if name in _VOID:
        return Html(f"<{name}{given}>")
    return Html(f"<{name}{given}>{join(children)}</{name}>")


def join(children: Iterable[str | Iterable[str]]) -> Html:
    """The children, concatenated.

    >>> join(["&", element("b", "x"), ["1", "2"]])
    '&amp;<b>x</b>12'
    """
    return Html("".join(_text(child) if isinstance(child, str) else join(child) for child in children))


def data_block(id: str, content: Any) -> Html:
    """JSON for the scripts of the page; no text in it can end the block.

    >>> data_block("runs", ["</script>"])
    '<script type="application/json" id="runs">["\\\\u003c/script>"]</script>'
    """
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    return Html(f'<script type="application/json" id="{escape(id)}">{text}</script>')


def packed_block(id: str, content: Any) -> Html:
    """Compressed JSON, which the script of the page unpacks: for data that grow with the number of runs.

    >>> packed_block("runs", [])
    '<script type="application/octet-stream" id="runs">eJyLjgUAARUAuQ==</script>'
    """
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    packed = base64.b64encode(zlib.compress(text.encode(errors="backslashreplace"))).decode()
    return Html(f'<script type="application/octet-stream" id="{escape(id)}">{packed}</script>')


def _attribute(key: str, value: str | bool | None) -> str:
    if value is None or value is False:
        return ""
    name = key.rstrip("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{escape(value)}"'


def _text(child: str) -> str:
    return child if isinstance(child, Html) else escape(child, quote=False)
