r"""What MkDocs asks while it builds: proofs come from where they lie, generated parts from the code, and no script stays inline."""

from __future__ import annotations

import hashlib
import posixpath
import re
from pathlib import Path
from typing import Any

from markdown_it import MarkdownIt
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from handbook.generated import filled

ROOT = Path(__file__).parents[1]
ELSEWHERE = {
    **{
        f"{layer}/proofs/{proof.name}": f"proofs/{proof.name}"
        for layer in ("mechanisms", "accountants")
        for proof in sorted((ROOT / layer / "proofs").glob("*.md"))
    },
    "app/jobs/durability.md": "durability.md",
}
"""Pages that lie beside the code that they are about: their path in the repository, and in the handbook."""
PROOFS = frozenset(path for path in ELSEWHERE.values() if path.startswith("proofs/"))
COPIED = {"app/web/static/icon.svg": "icon.svg"}
EMPTY = ("404.html", "sitemap.xml")
"""Templates of the theme that would have to know the address at which the handbook is served."""

_LINK = re.compile(r"\]\(([^)#:\s/][^)#:\s]*\.md)(#[^)]*)?\)")
_INLINE_SCRIPT = re.compile(r"<script>(.*?)</script>", re.DOTALL)
_NAMED_PROOF = re.compile(r"<code>(?:(?:accountants|mechanisms)/)?(?:proofs/)?([a-z_]+\.md)</code>")


def on_files(files: Files, config: Any) -> Files:
    """Takes in what lies outside of ``docs/``."""
    for source, target in (*ELSEWHERE.items(), *COPIED.items()):
        files.append(File.generated(config, target, abs_src_path=str(ROOT / source)))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Generated parts, and links that are right in the repository made right in the handbook."""
    if page.file.src_uri in PROOFS:
        page.meta["hide"] = ["toc"]
    sources = {target: source for source, target in ELSEWHERE.items()}
    here = posixpath.dirname(sources.get(page.file.src_uri, f"docs/{page.file.src_uri}"))
    start = posixpath.dirname(page.file.src_uri)

    def moved(found: re.Match[str]) -> str:
        source = posixpath.normpath(posixpath.join(here, found[1]))
        target = ELSEWHERE.get(source, source.removeprefix("docs/") if source.startswith("docs/") else None)
        return f"]({posixpath.relpath(target, start or '.')}{found[2] or ''})" if target else found[0]

    return _LINK.sub(moved, filled(markdown))


def on_page_content(html: str, page: Page, **_: Any) -> str:
    """Proofs look as on the service's own pages: they are CommonMark, in which a symbol's asterisk or a list means something else."""
    if page.file.src_uri not in PROOFS:
        return html
    source = Path(page.file.abs_src_path or "").read_text(encoding="utf-8")
    made = MarkdownIt("commonmark", {"html": False}).enable("table").render(source)
    return _NAMED_PROOF.sub(_linked, made)


def on_post_page(output: str, page: Page, config: Any) -> str:
    """Inline scripts become files, for a Content-Security-Policy that allows none."""
    folder = Path(config.site_dir, "assets", "inline")
    folder.mkdir(parents=True, exist_ok=True)
    to_root = posixpath.relpath(".", posixpath.dirname(page.file.dest_uri) or ".")

    def kept(found: re.Match[str]) -> str:
        name = hashlib.sha256(found[1].encode()).hexdigest()[:16] + ".js"
        (folder / name).write_text(found[1], encoding="utf-8")
        return f'<script src="{posixpath.join(to_root, "assets/inline", name)}"></script>'

    # The theme's search is a dialog without a name.
    named = output.replace('data-md-component="search" role="dialog">', 'data-md-component="search" role="dialog" aria-label="Search">')
    return _INLINE_SCRIPT.sub(kept, named)


def on_post_template(output_content: str, template_name: str, **_: Any) -> str:
    """Without those that would lead elsewhere."""
    return "" if template_name in EMPTY else output_content


def _linked(found: re.Match[str]) -> str:
    return f'<a href="{found[1].removesuffix(".md")}.html">{found[0]}</a>' if f"proofs/{found[1]}" in PROOFS else found[0]
