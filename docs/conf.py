"""Settings of Sphinx for the site that ``write_site.py`` makes; a page of the site loads nothing
from a network.
"""

from __future__ import annotations

from typing import Any

from docutils import nodes
from latex2mathml.converter import convert

project = "specsim"
copyright = "The specsim authors, Apache-2.0"
root_doc = "README"
extensions = ["myst_nb"]
myst_enable_extensions = ["dollarmath", "colon_fence"]
myst_heading_anchors = 4
nb_execution_mode = "off"
highlight_language = "none"
suppress_warnings = [
    "myst.header",
    "misc.highlighting_failure",
]  # reports begin their parts where they like
html_theme = "furo"
html_title = "specsim"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
html_math_renderer = "mathml"


def setup(app: Any) -> None:
    """Write formulas as MathML, which browsers draw themselves."""
    app.add_html_math_renderer(
        "mathml",
        inline_renderers=(renderer("inline"), None),
        block_renderers=(renderer("block"), None),
    )


def renderer(display: str) -> Any:
    """Return what writes a formula into a page."""

    def write(translator: Any, node: nodes.Element) -> None:
        translator.body.append(convert(node.astext(), display=display))
        raise nodes.SkipNode

    return write
