r"""Renders pages: one layout, all text escaped, and a Content-Security-Policy that allows only our own files."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import final

from fastapi.responses import HTMLResponse
from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from markupsafe import Markup, escape

from zetadp.app.web.wording.terms import DELTA, EPSILON, PAPERS, TERMS
from zetadp.version import VERSION

PLOT_STYLE = "'sha256-jSYQUrW7J0b3jPqhZP9C2Xh1PyJKHKXd4s0fpGGKrww='"
"""The hash of the one style element that Observable Plot puts into every drawing."""

CONTENT_SECURITY_POLICY = (
    f"default-src 'none'; script-src 'self'; style-src 'self' {PLOT_STYLE}; img-src 'self' data:; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)

HEADERS = {
    "content-security-policy": CONTENT_SECURITY_POLICY,
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "cross-origin-opener-policy": "same-origin",
}


@final
@dataclass(frozen=True)
class Entry:
    """An entry of the navigation."""

    name: str
    path: str


NAVIGATION = (
    Entry("Calculate", "/calculators"),
    Entry("Train", "/jobs"),
    Entry("Budgets", "/ledgers"),
    Entry("Verify", "/certificates"),
    Entry("Papers", "/papers"),
)
"""Few enough for one row on a phone; the rest is in the footer."""


def page(
    template: str,
    title: str,
    *,
    current: str,
    modules: tuple[str, ...] = ("core.js",),
    status: int = 200,
    **values: object,
) -> HTMLResponse:
    r"""A page in the common layout.

    Args:
      template: its file.
      title: of the window.
      current: path of the navigation's entry that it belongs to.
      modules: scripts below ``static/js``.
      values: what the template names.
    """
    text = (
        _environment()
        .get_template(template)
        .render(title=title, current=current, modules=modules, navigation=NAVIGATION, version=VERSION, **values)
    )
    return HTMLResponse(text, status_code=status, headers=HEADERS)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("zetadp.app.web"),
        autoescape=select_autoescape(default=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["inline"] = inline
    environment.filters["cited"] = PAPERS.__getitem__
    environment.globals |= {"terms": TERMS, "epsilon_help": EPSILON, "delta_help": DELTA}
    return environment


_INLINE = (
    (r"`([^`]+)`", r"<code>\1</code>"),
    (r"\*\*([^*]+)\*\*", r"<strong>\1</strong>"),
    (r"\[([^\]]+)\]\((/[^\s)/][^\s)]*)\)", r'<a href="\2">\1</a>'),
)


def inline(text: str) -> Markup:
    """Text with Markdown's `code`, **emphasis** and [links](/to/our/pages) as elements, everything else escaped.

    >>> inline("`std` **per** <part> of [it](/start)")
    Markup('<code>std</code> <strong>per</strong> &lt;part&gt; of <a href="/start">it</a>')
    >>> inline("[out](https://elsewhere)")
    Markup('[out](https://elsewhere)')
    """
    made = str(escape(text))
    for pattern, element in _INLINE:
        made = re.sub(pattern, element, made)
    return Markup(made)  # noqa: S704
