"""The documentation site: `make docs` builds it strictly; every warning is an error."""

import re
from typing import Any

from fgmix import RunSpec, __version__

project = "fgmix"
author = "The fgmix authors"
version = release = __version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.mathjax", "sphinx.ext.viewcode"]
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

myst_enable_extensions = ["colon_fence"]
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


def setup(app: Any) -> None:
    app.connect("autodoc-process-docstring", quote_flags, priority=900)
