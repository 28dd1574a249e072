"""Nothing that issues a guarantee can reach the papers' printed formulas, however long the chain of imports."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path

import grimp
import pytest

PUBLISHED = "zetadp.mechanisms.published"
PACKAGES = ("zetadp",)
GUARANTEES = (
    "zetadp.app.certificates",
    "zetadp.app.calculators.profiles",
    "zetadp.app.calculators.calibrations",
    "zetadp.app.jobs",
    "zetadp.app.worker",
    "zetadp.trainer",
    "zetadp.accountants",
)
"""What computes or signs a guarantee, or trains under one."""

Graph = Mapping[str, Iterable[str]]


def _within(module: str, package: str) -> bool:
    return module == package or module.startswith(package + ".")


def path_to(graph: Graph, start: str, goal: str) -> tuple[str, ...] | None:
    """A shortest chain of imports from a module to any in the goal's package, or None.

    Importing a module runs its packages' __init__ as well, so those count as imported.
    """
    came_from: dict[str, str | None] = {start: None}
    queue = [start]
    for module in queue:
        if _within(module, goal):
            chain, at = [], module
            while at is not None:
                chain.append(at)
                at = came_from[at]
            return tuple(reversed(chain))
        parts = module.split(".")
        parents = [".".join(parts[:i]) for i in range(1, len(parts))]
        for reached in sorted({*graph.get(module, ()), *(parent for parent in parents if parent in graph)}):
            if reached not in came_from:
                came_from[reached] = module
                queue.append(reached)
    return None


def guarantees_that_reach_published(graph: Graph) -> dict[str, tuple[str, ...]]:
    """Every module that must not reach the printed formulas and does, with its chain."""
    guarded = [
        module
        for module in graph
        if any(_within(module, package) for package in GUARANTEES)
        or (_within(module, "zetadp.mechanisms") and not _within(module, PUBLISHED))
    ]
    return {module: chain for module in sorted(guarded) if (chain := path_to(graph, module, PUBLISHED)) is not None}


@pytest.fixture(scope="module")
def graph() -> Graph:
    built = grimp.build_graph(*PACKAGES, cache_dir=None)
    return {module: built.find_modules_directly_imported_by(module) for module in built.modules}


def test_the_graph_holds_what_it_is_asked_about(graph):
    assert any(_within(module, PUBLISHED) for module in graph)
    for package in GUARANTEES:
        assert any(_within(module, package) for module in graph), package
    # The comparisons do reach the printed formulas: the search isn't blind.
    assert path_to(graph, "zetadp.app.calculators.compare.router", PUBLISHED) is not None


def test_no_guarantee_reaches_the_printed_formulas(graph):
    assert guarantees_that_reach_published(graph) == {}


CLEAN = {
    "zetadp.mechanisms": (),
    "zetadp.mechanisms.gaussian": ("zetadp.mechanisms.base",),
    "zetadp.mechanisms.base": (),
    "zetadp.mechanisms.published": (),
    "zetadp.mechanisms.published.clt": ("zetadp.mechanisms.base",),
    "zetadp.accountants": ("zetadp.accountants.routes.closed.closed_form",),
    "zetadp.accountants.routes.closed.closed_form": ("zetadp.mechanisms.gaussian",),
    "zetadp.app": (),
    "zetadp.app.certificates": (),
    "zetadp.app.certificates.issuing.issue": ("zetadp.accountants",),
    "zetadp.app.calculators": (),
    "zetadp.app.calculators.compare": ("zetadp.mechanisms.published.clt",),
}


def test_a_clean_graph_passes():
    assert guarantees_that_reach_published(CLEAN) == {}


@pytest.mark.parametrize(
    ("importer", "imported", "caught"),
    [
        ("zetadp.app.certificates.issuing.issue", "zetadp.mechanisms.published.clt", {"zetadp.app.certificates.issuing.issue"}),
        ("zetadp.app.certificates.issuing.issue", "zetadp.app.calculators.compare", {"zetadp.app.certificates.issuing.issue"}),
        (
            "zetadp.mechanisms.base",
            "zetadp.mechanisms.published",
            {
                "zetadp.mechanisms.base",
                "zetadp.mechanisms.gaussian",
                "zetadp.accountants",
                "zetadp.accountants.routes.closed.closed_form",
                "zetadp.app.certificates.issuing.issue",
            },
        ),
        (
            "zetadp.accountants.routes.closed.closed_form",
            "zetadp.mechanisms.published.clt",
            {"zetadp.accountants", "zetadp.accountants.routes.closed.closed_form", "zetadp.app.certificates.issuing.issue"},
        ),
        # A package's own __init__ runs whenever anything in it is imported.
        (
            "zetadp.app.certificates",
            "zetadp.mechanisms.published.clt",
            {"zetadp.app.certificates", "zetadp.app.certificates.issuing.issue"},
        ),
    ],
)
def test_an_import_that_would_leak_is_caught_with_everything_that_reaches_it(importer, imported, caught):
    leaking = {**CLEAN, importer: (*CLEAN[importer], imported)}
    found = guarantees_that_reach_published(leaking)
    assert set(found) == caught
    for module, chain in found.items():
        assert chain[0] == module
        assert chain[-1] in {imported, PUBLISHED, "zetadp.mechanisms.published.clt"}


def _contracts():
    settings = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))
    return settings["tool"]["importlinter"]["contracts"]


def test_the_import_linter_guards_the_same_modules():
    contract = next(each for each in _contracts() if each.get("forbidden_modules") == [PUBLISHED])
    assert set(contract["source_modules"]) == set(GUARANTEES)
    assert contract.get("allow_indirect_imports", False) is False


def test_the_import_linter_lets_only_comparisons_in(graph):
    contract = next(each for each in _contracts() if each["type"] == "protected")
    assert contract["protected_modules"] == [PUBLISHED]
    allowed = contract["allowed_importers"]
    importers = {module for module, imported in graph.items() if any(_within(each, PUBLISHED) for each in imported)}
    outside = {module for module in importers if not _within(module, PUBLISHED)}
    assert outside
    assert all(any(_within(module, package) for package in allowed) for module in outside)
    # What may import them is itself out of reach of every guarantee.
    for package in allowed:
        reached = {module for module in graph if any(_within(module, each) for each in GUARANTEES) and path_to(graph, module, package)}
        assert not reached
