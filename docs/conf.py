"""The documentation site: `make docs` builds it strictly; every warning is an error."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from typer import Context
from typer.main import get_command

from fgmix import RunSpec, __version__
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
autodoc_preserve_defaults = True
napoleon_google_docstring = True
napoleon_numpy_docstring = False


def quote_flags(app: Any, what: str, name: str, obj: object, options: Any, lines: list[str]) -> None:
    """Mark flags in the help of a run's options as code: two hyphens would become a dash."""
    if obj is RunSpec:
        lines[:] = [re.sub(r"(?<![`\w])(--[\w-]+)(?![^`]*`)", r"``\1``", line) for line in lines]


def write_commands(app: Any) -> None:
    """Write a page for each command, from its help with all options."""
    folder = Path(app.srcdir, "commands")
    folder.mkdir(exist_ok=True)
    for name, command in list_commands(get_command(fgmix), "fgmix"):
        context = Context(command, info_name=name, max_content_width=88, terminal_width=88)
        context.meta[ALL] = True
        text = f"# `{name}`\n\n```text\n{command.get_help(context)}\n```\n"
        page = folder / f"{name.removeprefix('fgmix ').replace(' ', '-')}.md"
        if not page.exists() or page.read_text() != text:  # else Sphinx would read every page again
            page.write_text(text)


def list_commands(command: Any, name: str) -> Iterator[tuple[str, Any]]:
    """List the commands of a group and of the groups in it."""
    for key, each in getattr(command, "commands", {}).items():
        if hasattr(each, "commands"):
            yield from list_commands(each, f"{name} {key}")
        else:
            yield f"{name} {key}", each


def setup(app: Any) -> None:
    app.connect("builder-inited", write_commands)
    app.connect("autodoc-process-docstring", quote_flags, priority=900)
