"""The site that `make docs` makes of the Markdown pages: Sphinx's settings and additions."""
