r"""What a start imports: a module of seconds that isn't needed yet slows every start down. No clock is read, only ``sys.modules``."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

import pytest

from tests.selection import thinned
from zetadp.app import cli
from zetadp.app.certificates.signing.keys import PublicKeySet
from zetadp.app.cli.listed import LISTED, registered


def modules_after(statements: str) -> set[str]:
    """The modules that an interpreter of its own holds after these statements."""
    code = f"{statements}\nimport sys\nsys.stdout.write('\\n' + ' '.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    return set(done.stdout.splitlines()[-1].split())


def test_help_of_the_command_line_imports_none_of_its_commands() -> None:
    loaded = modules_after(
        "import sys\nsys.argv = ['app', '--help']\nfrom zetadp.app.cli import main\ntry: main()\nexcept SystemExit: pass"
    )
    heavy = {"numpy", "scipy", "pydantic", "fastapi", "sqlalchemy", "httpx2", "torch", "trainer", "accountants", "mechanisms"}
    assert "typer.rich_utils" in loaded
    assert sorted(loaded & heavy) == []
    assert {name for name in loaded if name.startswith("zetadp.app.cli.")} == {"zetadp.app.cli.exits", "zetadp.app.cli.listed"}


@pytest.mark.slow
def test_a_training_child_imports_no_library_that_only_a_test_or_a_data_set_needs() -> None:
    loaded = modules_after("import zetadp.trainer.child")
    heavy = {"sklearn", "scipy.stats", "scipy.optimize", "pandas", "matplotlib", "fastapi", "sqlalchemy", "dp_accounting"}
    assert "zetadp.trainer.engine.checkpoint" in loaded
    assert sorted(loaded & heavy) == []


def test_the_service_imports_no_library_that_only_an_answer_needs() -> None:
    loaded = modules_after("from zetadp.app import main\nmain.create_app()")
    assert "fastapi" in loaded
    heavy = {"torch", "sklearn", "scipy.special", "scipy.optimize", "matplotlib", "reportlab", "alembic", "dbos", "dp_accounting"}
    assert sorted(loaded & heavy) == []


@pytest.mark.slow
def test_the_client_imports_nothing_of_the_service_but_what_goes_over_the_wire() -> None:
    loaded = modules_after("import zetadp.app.client, zetadp.app.cli.certify, zetadp.app.cli.calculate")
    heavy = {"fastapi", "starlette", "sqlalchemy", "torch", "reportlab", "alembic", "dbos", "dp_accounting", "uvicorn"}
    assert "httpx2" in loaded
    assert sorted(loaded & heavy) == []


def test_verifying_imports_nothing_that_only_other_commands_need(envelope: bytes, keys: PublicKeySet, tmp_path: Path) -> None:
    (tmp_path / "certificate.json").write_bytes(envelope)
    (tmp_path / "jwks.json").write_text(keys.model_dump_json(exclude_none=True))
    loaded = modules_after(
        f"import sys\nsys.argv = ['app', 'verify', {str(tmp_path / 'certificate.json')!r}]\nfrom zetadp.app.cli import main\n"
        "try: main()\nexcept SystemExit as left: assert not left.code"
    )
    heavy = {"httpx2", "jinja2", "yaml", "limits", "pydantic_settings", "sqlalchemy", "fastapi", "torch", "reportlab", "rfc3161_client"}
    heavy |= {"joserfc", "securesystemslib", "cryptography.x509", "PIL"}
    assert "zetadp.app.certificates.verification.recomputation" in loaded
    assert sorted(loaded & heavy) == []


def test_a_kind_of_value_whose_validator_comes_late_reads_names_as_its_own_module_does() -> None:
    # The caller's own Event is another one.
    code = (
        "from threading import Event\nimport zetadp\nnoise = zetadp.Gaussian(std=1.0, sensitivity=zetadp.Sensitivity(l2=1.0, "
        "adjacency='add_remove', unit='record'))\n"
        "print(zetadp.Repeated(count=2, event=zetadp.Release(mechanism=noise)).event.kind, zetadp.Composed.__pydantic_complete__)"
    )
    late = os.environ | {"_ZETADP_DEFER_VALIDATORS": "1"}
    done = subprocess.run([sys.executable, "-c", code], env=late, capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout == "release False\n"


@pytest.mark.parametrize("module", thinned(LISTED, every=4))
def test_help_lists_every_command_with_the_first_paragraph_of_its_own_help(module: str) -> None:
    found = {name: (command.help or "").split("\n\n")[0] for name, command in registered(module).items()}
    assert found == LISTED[module]


def test_help_lists_the_commands_of_every_module_that_registers_some() -> None:
    modules = {found.name for found in iter_modules(cli.__path__)}
    assert {name for name in modules if hasattr(import_module(f"zetadp.app.cli.{name}"), "register")} == set(LISTED)
