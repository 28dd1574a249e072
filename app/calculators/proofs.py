r"""The proofs of mechanisms and formulas, and of accountants and their arithmetic, as Markdown."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Literal, final

from fastapi import APIRouter

from zetadp.mechanisms.base import Value
from zetadp.mechanisms.errors import InvalidParameter

Layer = Literal["mechanisms", "accountants"]
_LAYERS: tuple[Layer, ...] = ("mechanisms", "accountants")


@final
class ProofEntry(Value):
    """One proof: ``GET`` its path for the text."""

    name: str
    title: str
    layer: Layer
    path: str


@final
class ProofText(Value):
    """One proof's text."""

    name: str
    title: str
    layer: Layer
    markdown: str


def path_of(name: str) -> str:
    """The path of a proof, from its file name.

    >>> path_of("laplace.md")
    '/v1/proofs/laplace'
    """
    return "/v1/proofs/" + name.removesuffix(".md")


def _texts() -> Iterator[ProofText]:
    for layer in _LAYERS:
        found: list[Traversable] = [file for file in files(f"zetadp.{layer}").joinpath("proofs").iterdir() if file.name.endswith(".md")]
        for file in sorted(found, key=lambda each: each.name):
            markdown = file.read_text(encoding="utf-8")
            title = markdown.partition("\n")[0].removeprefix("# ").strip()
            yield ProofText(name=file.name.removesuffix(".md"), title=title, layer=layer, markdown=markdown)


router = APIRouter(prefix="/proofs")


@router.get("", summary="List proofs")
def list_proofs() -> list[ProofEntry]:
    """Every proof that an answer may name."""
    return [ProofEntry(name=text.name, title=text.title, layer=text.layer, path=path_of(text.name)) for text in _texts()]


@router.get("/{name}", summary="Read a proof")
def read_proof(name: str) -> ProofText:
    """A proof, as Markdown; ``name`` with or without ``.md``."""
    texts = {text.name: text for text in _texts()}
    if (found := texts.get(name.removesuffix(".md"))) is None:
        raise InvalidParameter("name", "one of " + ", ".join(texts), name)
    return found
