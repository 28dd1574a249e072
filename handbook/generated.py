r"""The parts of the handbook that the code says itself: settings, vocabulary, routes and the list of proofs, as Markdown."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from zetadp.app.calculators.proofs import list_proofs
from zetadp.app.kit.settings import Settings
from zetadp.app.main import create_app
from zetadp.app.web.wording.vocabulary import VOCABULARY

UNITS = ((2**30, "GiB"), (2**20, "MiB"))


def settings_table() -> str:
    """A row for each setting: its variable in the environment, its default, and what the docstring says of it."""
    prefix = Settings.model_config.get("env_prefix", "")
    meanings = attribute_texts(Settings.__doc__ or "")
    fields = Settings.model_fields.items()
    return _table(
        ("variable", "default", "meaning"),
        [(f"`{prefix}{name.upper()}`", shown(name, field.default), meanings[name]) for name, field in fields],
    )


def attribute_texts(docstring: str) -> dict[str, str]:
    r"""What the attributes section of a class says of each, as a sentence with its code as in Markdown.

    >>> attribute_texts("It.\n\n    Attributes:\n      port: its\n        ``port``.\n      host: an address.")
    {'port': 'Its `port`.', 'host': 'An address.'}
    """
    found = re.findall(r"^ {6}(\w+): (.+(?:\n {7,}.+)*)", docstring.partition("Attributes:\n")[2], re.MULTILINE)
    # The table's first column has the variable's name.
    texts = {name: re.sub(r" \(`ZETADP_\w+`\)", "", " ".join(text.replace("``", "`").split())) for name, text in found}
    return {name: text[0].upper() + text[1:] for name, text in texts.items()}


def shown(name: str, default: Any) -> str:
    """A default as an operator reads it.

    >>> shown("upload_bytes", 2**31), shown("port", 8000), shown("host", ""), shown("admin_key", None)
    ('2 GiB', '`8000`', 'empty', 'none')
    """
    if default is None:
        return "none"
    if isinstance(default, bool):
        return f"`{str(default).lower()}`"
    if name.endswith("_bytes"):
        return next(f"{default // size} {unit}" for size, unit in UNITS if default % size == 0)
    return f"`{default:g}`" if isinstance(default, float) else f"`{default}`" if str(default) else "empty"


def vocabulary_table() -> str:
    """The words of the service's own page."""
    return _table(("word", "meaning"), list(VOCABULARY))


def proofs_list() -> str:
    """Every proof, by the layer that it lies in."""
    lines: list[str] = []
    for layer, heading in (("mechanisms", "Mechanisms and formulas"), ("accountants", "Accountants and their arithmetic")):
        lines += ["", f"## {heading}", ""]
        lines += [f"* [{one.title}](proofs/{one.name}.md)" for one in list_proofs() if one.layer == layer]
    return "\n".join(lines)


def routes_table() -> str:
    """Every described route, by tag."""
    tagged: defaultdict[str, list[tuple[str, str]]] = defaultdict(list)
    for path, operations in create_app(Settings()).openapi()["paths"].items():
        for method, operation in operations.items():
            tagged[(operation.get("tags") or ["other"])[0]].append((f"`{method.upper()} {path}`", operation.get("summary", "")))
    parts = [f"## {tag}\n\n{_table(('route', 'what it does'), rows)}" for tag, rows in tagged.items()]
    return "\n\n".join(parts)


MARKED: dict[str, Callable[[], str]] = {
    "settings": settings_table,
    "vocabulary": vocabulary_table,
    "proofs": proofs_list,
    "routes": routes_table,
}
"""What stands in a page as ``<!-- generated: NAME -->``."""


def filled(markdown: str) -> str:
    """The page with all its generated parts; KeyError for a name that isn't there.

    >>> filled("as it is")
    'as it is'
    """
    return re.sub(r"<!-- generated: (\w+) -->", lambda found: MARKED[found[1]](), markdown)


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    cells = [head, ("---",) * len(head), *(tuple(cell.replace("|", "\\|") for cell in row) for row in rows)]
    return "\n".join(f"| {' | '.join(row)} |" for row in cells)
