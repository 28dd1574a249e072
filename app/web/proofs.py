r"""The proofs as pages, rendered from our own Markdown; the name of another proof links to it."""

from __future__ import annotations

import re
from functools import cache

from fastapi import APIRouter
from fastapi.responses import HTMLResponse
from markdown_it import MarkdownIt
from markupsafe import Markup

from zetadp.app.calculators import proofs
from zetadp.app.web.rendering import page

router = APIRouter()


def page_of(name: str) -> str:
    """The path of a proof's page, from its file name.

    >>> page_of("laplace.md")
    '/proofs/laplace'
    """
    return "/proofs/" + name.removesuffix(".md")


@router.get("/proofs", response_class=HTMLResponse)
def list_proofs() -> HTMLResponse:
    """Lists the proofs."""
    return page("proofs.html", "Proofs", current="/papers", entries=proofs.list_proofs())


@router.get("/proofs/{name}", response_class=HTMLResponse)
def read_proof(name: str) -> HTMLResponse:
    """One proof."""
    if name not in _titles():
        return page("missing.html", "Not found", current="/papers", status=404, what="proof", name=name)
    return page("proof.html", _titles()[name], current="/papers", text=_element(name), source=proofs.path_of(name))


@cache
def _titles() -> dict[str, str]:
    return {entry.name: entry.title for entry in proofs.list_proofs()}


@cache
def _element(name: str) -> Markup:
    # HTML in the text stays text, and lists of symbols in tables are the only extension that the proofs use.
    html = MarkdownIt("commonmark", {"html": False}).enable("table").render(proofs.read_proof(name).markdown)
    html = html.replace("<table>", '<div class="scroll" tabindex="0" role="region" aria-label="Table"><table>').replace(
        "</table>", "</table></div>"
    )
    html = html.replace("<pre>", '<pre tabindex="0">')
    linked = re.sub(r"<code>(?:(?:accountants|mechanisms)/)?(?:proofs/)?([a-z_]+)\.md</code>", _link, html)
    return Markup(linked)  # noqa: S704


def _link(found: re.Match[str]) -> str:
    return f'<a href="{page_of(found[1])}">{found[0]}</a>' if found[1] in _titles() else found[0]
