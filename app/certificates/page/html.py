r"""The document as one HTML page: no scripts, no external files, styles and plot inline. The template engine escapes every text."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib.resources import files

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

from zetadp.app.certificates.page import plot
from zetadp.app.certificates.page.blocks import CurvePlot, Document, visible
from zetadp.app.certificates.page.plot import Geometry, geometry


def html_of(document: Document) -> str:
    """The page. The same document gives the same text."""
    return _environment().get_template("certificate.html").render(document=document, style=_style(), policy=content_security_policy())


def content_security_policy() -> str:
    """Allows the page's own styles, by their digest, and nothing else."""
    digest = base64.b64encode(hashlib.sha256(_style().encode()).digest()).decode()
    return f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"


@cache
def _environment() -> Environment:
    # Every template is escaped, whatever its name ends in, and what isn't there is an error instead of nothing.
    environment = Environment(
        loader=PackageLoader("zetadp.app.web"),
        autoescape=select_autoescape(default=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.finalize = _finalized
    environment.filters["kind"] = lambda block: type(block).__name__
    environment.filters["geometry"] = _geometry
    environment.globals["plot"] = plot
    return environment


def _geometry(block: CurvePlot) -> Geometry:
    return geometry(block)


def _finalized(value: object) -> object:
    """Every text as it is put out; what the template itself calls safe is our own style, and stays as its digest says."""
    return visible(value) if type(value) is str else value


@cache
def _style() -> str:
    return files("zetadp.app.web").joinpath("templates", "certificate.css").read_text(encoding="utf-8")
