"""The documentation site: `make docs` builds it strictly; every warning is an error."""

import inspect
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Any, get_args, get_type_hints

import msgspec
from docutils import nodes
from typer import Context
from typer.main import get_command

from fgmix import BaseConfig, __version__
from fgmix.cli import app as fgmix
from fgmix.cli.help import ALL

project = "fgmix"
author = "The fgmix authors"
version = release = __version__
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.mathjax",
    "sphinx-mathjax-offline",  # MathJax within the site: it needs no other address
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = f"fgmix {version}"
html_favicon = "_static/favicon.svg"
html_copy_source = False
html_show_copyright = False
html_use_index = False  # the reference has its own contents
html_static_path = ["_static"]
html_css_files = ["site.css"]
toc_object_entries_show_parents = "hide"
default_role = "code"  # docstrings write `name`, as the pages do

mathjax3_config = {"chtml": {"scale": 0.88}}  # of the text's size: most equations then fit the column

myst_enable_extensions = ["colon_fence"]
myst_fence_as_directive = ["math"]  # ```math, which GitHub also sets
myst_heading_anchors = 4  # links to sections are GitHub's, so that the pages read alike there
suppress_warnings = ["myst.header"]  # the changelog's headings begin at the second level where they are included

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_type_aliases = {"npt.ArrayLike": "ArrayLike"}  # else its 120 characters
napoleon_google_docstring = True
napoleon_numpy_docstring = False


INDEX = re.compile(  # A_ω, x̂_e, Σ_{c≠y}: after a single letter, with an accent or not, or in braces
    r"(?:(?<=(?<![\w.])[^\W\d_])|(?<=[\u0300-\u036f]))_([^\W_]{1,4})(?!\w)|(?<=[\w\u0300-\u036f])_\{([^{}]+)\}"
)
SENTENCES = (nodes.paragraph, nodes.strong, nodes.emphasis, nodes.title)


def describe_fields(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Replace the arguments of a class of fields by a table with their types, defaults and meanings."""
    if not (what == "class" and (is_dataclass(obj) or issubclass(obj, msgspec.Struct))):
        return
    args = read_arguments(lines)
    about = read_comments(obj) | args
    if issubclass(obj, BaseConfig):
        about |= {name: text for name, (_, text) in obj.help().items()}
    types = {
        name: kind for base in reversed(obj.__mro__) for name, kind in vars(base).get("__annotations__", {}).items()
    }
    with suppress(NameError):  # a type that is imported for checkers only
        types |= get_type_hints(obj)
    struct = issubclass(obj, msgspec.Struct)
    rows = [
        (f"``{each.name}: {print_type(types[each.name])}{print_default(each)}``", mark_code(about.get(each.name, "")))
        for each in (msgspec.structs.fields(obj) if struct else fields(obj))
        if not each.name.startswith("_")
    ]
    lines += ["", ".. list-table::", "   :header-rows: 1", "   :widths: 45 55", ""]
    for row in (("field", "meaning"), *rows):
        lines += [f"   * - {row[0]}", f"     - {row[1]}"]
    lines += [""]


def shorten_signature(app: Any, what: str, name: str, obj: Any, options: Any, args: str, result: str) -> Any:
    """Leave the arguments of a class of fields to their table, and name aliases of types plainly."""
    if what == "class" and (is_dataclass(obj) or issubclass(obj, msgspec.Struct)):
        return "(...)", result
    return args and re.sub(r"TypeAliasForwardRef\('(\w+)'\)", r"\1", args), result


def read_arguments(lines: list[str]) -> dict[str, str]:
    """Take the section of arguments, and the list of other fields, out of a docstring."""
    found: dict[str, str] = {}
    kept: list[str] = []
    inside, last = False, ""
    for line in lines:
        if item := re.match(r"- `(\w+)`: (.*)", line):
            found[item[1]] = item[2]
        elif inside and (item := re.match(r"    (\w+): (.*)", line)):
            last = item[1]
            found[last] = item[2]
        elif inside and line.startswith("        ") and last:
            found[last] += f" {line.strip()}"
        else:
            inside = line == "Args:" or (inside and not line)
            kept += [] if line in ("Args:", "The other fields:") else [line]
    lines[:] = kept
    return found


def read_comments(obj: type) -> dict[str, str]:
    """Read the comments beside the fields of a class and of its bases, or above them."""
    found: dict[str, str] = {}
    for base in reversed([each for each in obj.__mro__ if each.__module__.startswith("fgmix")]):
        above = ""
        for line in inspect.getsource(base).splitlines():
            if comment := re.match(r"    # (.*)", line):
                above = f"{above} {comment[1]}".strip()
            elif field := re.match(r"    (\w+): [^#]*?(?:  # (.*))?$", line):
                found[field[1]], above = field[2] or above, ""
    return found


def print_type(kind: Any) -> str:
    """Print a type, and arrays without the parameters of numpy."""
    text = kind.__name__ if isinstance(kind, type) and not get_args(kind) else str(kind)
    text = re.sub(r"numpy\.ndarray\[.*?numpy\.dtype\[(?:numpy\.)?([\w.]+)\]\]", r"array of \1", text)
    text = re.sub(r"(?:[a-z_]+[.])+(?=[A-Za-z])", "", text)
    text = re.sub(r"^Union\[([^][]*)\]$", lambda union: union[1].replace(", ", " | "), text)
    return re.sub(r"^Optional\[(.*)\]$", r"\1 | None", text)


def print_default(field: Any) -> str:
    """Print the default of a field; nothing where a value is required."""
    if field.default not in (msgspec.NODEFAULT, MISSING):
        return f" = {field.default!r}"
    factory = field.default_factory
    return "" if factory in (msgspec.NODEFAULT, MISSING) else f" = {factory()!r}"


def mark_code(text: str) -> str:
    """Mark flags as code, of which Sphinx would make dashes."""
    return re.sub(r"(?<![`\w])(--[\w-]+)(?![^`]*`)", r"``\1``", text)


def write_commands(app: Any) -> None:
    """Write a page for each command, from its help with all options, and the rows of their table."""
    folder = Path(app.srcdir, "commands")
    folder.mkdir(exist_ok=True)
    rows = ["| command | what it does |", "| --- | --- |"]
    for name, command in list_commands(get_command(fgmix), "fgmix"):
        context = Context(command, info_name=name, max_content_width=88, terminal_width=88)
        context.meta[ALL] = True
        text = f"# `{name}`\n\n```text\n{command.get_help(context)}\n```\n"
        stem = name.removeprefix("fgmix ").replace(" ", "-")
        rows.append(f"| [`{name}`](commands/{stem}.md) | {command.get_short_help_str(limit=200)} |")
        write_changed(folder / f"{stem}.md", text)
    write_changed(folder / "table.txt", "\n".join([*rows, ""]))


def write_changed(page: Path, text: str) -> None:
    """Write a page if its text changed: Sphinx reads again what is newer than its own files."""
    if not page.exists() or page.read_text() != text:
        page.write_text(text)


def add_dark_pictures(app: Any, doctree: nodes.document) -> None:
    """Show NAME-dark beside each picture NAME that has one, each in its colour scheme."""
    folder = Path(app.env.doc2path(app.env.docname)).parent
    for light in list(doctree.findall(nodes.image)):
        dark = Path(light["uri"]).with_stem(f"{Path(light['uri']).stem}-dark")
        if (folder / dark).exists():
            light["classes"].append("only-light")
            both = light.attributes | {"uri": str(dark), "classes": ["only-dark"]}
            light.parent.insert(light.parent.index(light) + 1, nodes.image(**both))


def set_minus(app: Any, doctree: nodes.document) -> None:
    """Set the sign of negative numbers in text as a minus, which tables of records write as a hyphen."""
    for text in list(doctree.findall(nodes.Text)):
        if isinstance(text.parent, SENTENCES) and (changed := re.sub(r"(?<![\w.)-])-(?=\d)", "−", text)) != text:
            text.parent.replace(text, nodes.Text(changed))


def set_indices(app: Any, doctree: nodes.document) -> None:
    """Set indices of single letters, such as A_ω and L_flat, as subscripts in running text."""
    for text in list(doctree.findall(nodes.Text)):
        parts = INDEX.split(text)  # text, index, index in braces, text, …
        if len(parts) > 1 and isinstance(text.parent, SENTENCES):
            for i, part in enumerate(parts):
                if part:
                    node = nodes.subscript(part, part) if i % 3 else nodes.Text(part)
                    text.parent.insert(text.parent.index(text), node)
            text.parent.remove(text)


def list_commands(command: Any, name: str) -> Iterator[tuple[str, Any]]:
    """List the commands of a group and of the groups in it."""
    for key, each in getattr(command, "commands", {}).items():
        if hasattr(each, "commands"):
            yield from list_commands(each, f"{name} {key}")
        else:
            yield f"{name} {key}", each


def setup(app: Any) -> None:
    app.connect("builder-inited", write_commands)
    app.connect("doctree-read", add_dark_pictures, priority=100)  # before Sphinx collects the pictures
    app.connect("doctree-read", set_minus)
    app.connect("doctree-read", set_indices)
    app.connect("autodoc-process-signature", shorten_signature)
    app.connect("autodoc-process-docstring", describe_fields, priority=400)  # before napoleon
