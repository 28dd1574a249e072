r"""What all commands share: options, exit codes, reading JSON files, and errors as one line on stderr."""

from __future__ import annotations

import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer
from pydantic import BaseModel, ValidationError
from rich.console import Console

from zetadp.app.cli.exits import Exit
from zetadp.app.kit.client_errors import ClientError, RequestRefused
from zetadp.app.kit.errors import Unavailable
from zetadp.app.kit.field_errors import field_errors, summary
from zetadp.mechanisms.errors import PrivacyError

if TYPE_CHECKING:
    from zetadp.app.kit.settings import Settings

DEFAULT_ADDRESS = "http://127.0.0.1:8000"
ADDRESS_HELP = "Address of the service."
Address = Annotated[str, typer.Option("--address", envvar="ZETADP_ADDRESS", help=ADDRESS_HELP)]
OptionalAddress = Annotated[
    str | None,
    typer.Option("--address", envvar="ZETADP_ADDRESS", help=f"{ADDRESS_HELP} Without it, the calculation runs in this process."),
]
Key = Annotated[
    str | None,
    typer.Option("--key", envvar="ZETADP_KEY", help="Key for the service. Better set in the environment: others can see arguments."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")]
JsonFile = Annotated[Path, typer.Argument(help="A JSON file, or - for standard input.", allow_dash=True)]
OptionalJsonFile = Annotated[Path | None, typer.Argument(help="A JSON file, or - for standard input.", allow_dash=True)]

out = Console(highlight=False, soft_wrap=True)
error = Console(stderr=True, highlight=False, soft_wrap=True)

_Model = TypeVar("_Model", bound=BaseModel)


@contextmanager
def clear_errors() -> Generator[None]:
    """Turn every error a user can cause into one line on stderr and an exit code."""
    try:
        yield
    except RequestRefused as refusal:
        fail(str(refusal), Exit.NOT_FOUND if refusal.status == 404 else Exit.USAGE if refusal.status == 422 else Exit.FAILED)
    except ClientError as failure:
        fail(str(failure), Exit.UNREACHABLE)
    except PrivacyError as failure:
        fail(str(failure), Exit.USAGE)
    except Unavailable as failure:
        fail(str(failure), Exit.UNREACHABLE)
    except OSError as failure:
        fail(f"{failure.filename or 'file'}: {failure.strerror or failure}", Exit.USAGE)


def fail(line: str, code: Exit) -> None:
    """Print one line on stderr and exit with this code."""
    error.print(line, style="red", markup=False)
    raise typer.Exit(int(code))


def read_json(path: Path, kind: type[_Model]) -> _Model:
    """A value of this type from a JSON file; otherwise an error line that names the field and what was expected."""
    text = sys.stdin.read() if str(path) == "-" else path.read_text(encoding="utf-8")
    try:
        return kind.model_validate_json(text)
    except ValidationError as invalid:
        fail(f"{path}: {summary(field_errors(invalid.errors(), _parsed(text), 'file'))}", Exit.USAGE)
        raise AssertionError from invalid  # fail() leaves


def _parsed(text: str) -> object:
    import json

    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def print_json(value: BaseModel, indent: int | None = 2) -> None:
    """Print the value as JSON: indented, or one per line if there are many."""
    sys.stdout.write(value.model_dump_json(indent=indent) + "\n")


def read_settings() -> Settings:
    """The settings from the environment; if they are wrong, prints one line that says why."""
    from zetadp.app.kit.settings import Settings  # a twentieth of a second, and commands for readers need none

    try:
        return Settings()
    except ValidationError as invalid:
        # What was given isn't repeated: it may be a key, or hold a password.
        errors = zip(invalid.errors(), field_errors(invalid.errors(), {}), strict=True)
        fail("settings: " + "; ".join(f"{_variable(raw['loc'])}: {error.message}" for raw, error in errors), Exit.USAGE)
        raise AssertionError from invalid  # fail() leaves


def _variable(location: Sequence[str | int]) -> str:
    return f"ZETADP_{location[0]}".upper()
