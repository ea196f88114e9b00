"""The documentation site: `make docs` builds it strictly; every warning is an error."""

from fgmix import __version__

project = "fgmix"
author = "The fgmix authors"
version = release = __version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.mathjax", "sphinx.ext.viewcode"]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = f"fgmix {version}"
html_copy_source = False

myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 4  # links to sections are GitHub's, so that the pages read alike there
suppress_warnings = ["myst.header"]  # the changelog's headings begin at the second level where they are included

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
napoleon_google_docstring = True
napoleon_numpy_docstring = False
