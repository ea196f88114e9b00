"""Names from outside (folders, records, other people's files) made safe: one function for each medium.

The HTML report escapes by its templates, and its script inserts names as text.
"""

from __future__ import annotations

import re

from fgmix.terminal import escape_line

_FORMULA = re.compile(r"\s*[=+\-@]")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?( ± [\d.]+| \[[-+\d., ]+\])?")  # also with ± or interval
_LATEX = {
    "\\": r"\textbackslash{}",
    **{character: "\\" + character for character in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "±": r"$\pm$",
    "–": "--",
    "÷": r"$\div$",
    "√": r"$\surd$",
    "≈": r"$\approx$",
    "λ": r"$\lambda$",
    "α": r"$\alpha$",
    "₀": r"$_0$",
    "χ": r"$\chi$",
    "²": r"$^2$",
    "−": "$-$",
    "≤": r"$\leq$",
    "†": r"$\dagger$",
    "‡": r"$\ddagger$",
    "--": "-{}-",  # an option of a command, which LaTeX would print as a dash
}
_LATEX_SIGN = re.compile("|".join(map(re.escape, _LATEX)))
# Only where it would be markup: names such as art_painting, and numbers such as -0.9 [-2.2, +0.5], stay as they are.
_MARKDOWN_SIGN = re.compile(
    r"[`|]|\*|~~|\](?=[(\[:])|<(?=[A-Za-z/!?])|\\(?=[!-/:-@\[-`{-~])"  # anywhere
    r"|(?<!\w)_|_(?!\w)"  # emphasis begins and ends at the ends of words
    r"|^[#>]|^[-+](?=\s)|^[-=](?=[-=]*$)|(?<=^\d)[.)](?=\s)"  # headings, quotations, lists
)


def escape_markdown(text: str) -> str:
    r"""Escape what would be markup, or would end the cell of a table; line breaks become spaces.

    >>> print(escape_markdown("# *x* | art_painting\n<img>"))
    \# \*x\* \| art_painting \<img>
    """
    return _MARKDOWN_SIGN.sub(lambda match: f"\\{match[0]}", escape_line(" ".join(text.split())))


def escape_latex(text: str) -> str:
    r"""Escape special characters and the symbols of our captions; line breaks become spaces.

    >>> print(escape_latex("+90% of l2a_ot"))
    +90\% of l2a\_ot
    """
    return _LATEX_SIGN.sub(lambda match: _LATEX[match[0]], escape_line(" ".join(text.split())))


def escape_csv(text: str) -> str:
    """Return a text as a cell on one line; a formula, which a spreadsheet would evaluate, gets an apostrophe.

    >>> escape_csv("=HYPERLINK(A1)"), escape_csv("-0.5 [-0.7, +0.1]"), escape_csv("mr")
    ("'=HYPERLINK(A1)", '-0.5 [-0.7, +0.1]', 'mr')
    """
    line = escape_line(text)
    return f"'{line}" if _FORMULA.match(text) and not _NUMBER.fullmatch(line) else line
