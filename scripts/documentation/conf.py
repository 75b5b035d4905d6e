"""Sphinx's settings. The source directory is the repository's root, as links between pages assume.

Pages are plain Markdown, so that they can also be read where the repository is hosted. The module
`documentation.pages` adds what only the site has: the table of contents and the references.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

project = "Leadline"
author = "the authors of Leadline"
copyright = "the authors of Leadline; Apache License 2.0"  # noqa: A001 - Sphinx's name
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "documentation.pages"]

root_doc = "docs/README"
source_suffix = {".md": "markdown"}
include_patterns = ["*.md", "docs/**.md", "deploy/**.md", "examples/**.md"]
exclude_patterns = [".*", "**/.*", "**/node_modules", "build", "dist", "data"]

html_theme = "furo"
html_title = "Leadline"
html_show_sphinx = False
html_copy_source = False
html_show_search_summary = False  # Pages opened as files may not read others.
html_extra_path = ["start/index.html"]
"""A page for the root of the site, which leads to that of docs/."""

nitpicky = True
nitpick_ignore_regex = [
    # Types of the standard library and of other packages, whose pages are not part of the site.
    (r"py:.*", r"(?!leadline).*"),
    # Types of parameters that users do not make themselves.
    (r"py:.*", r"leadline_client\..*"),
]
suppress_warnings = ["config.cache"]

myst_heading_anchors = 4
myst_links_external_new_tab = False

default_role = "literal"
"""Docstrings put code between single backticks."""
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_class_signature = "mixed"
python_use_unqualified_type_names = True
add_module_names = False
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_rtype = False
