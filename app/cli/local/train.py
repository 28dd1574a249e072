r"""``train``: runs a Python program that trains with ``zetadp.train`` or ``zetadp.private``, and says how its trainings went."""

from __future__ import annotations

import os
import runpy
import shlex
import sys
import traceback
from collections.abc import Callable, Generator
from contextlib import contextmanager, redirect_stdout
from importlib import import_module
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from types import TracebackType
from typing import Annotated, cast, final

import typer

from zetadp.app.cli.console import AsJson, error, fail, out, print_json
from zetadp.app.cli.exits import Exit
from zetadp.mechanisms.base import Value
from zetadp.mechanisms.errors import InvalidParameter, PrivacyError
from zetadp.trainer.errors import TrainingInterrupted
from zetadp.trainer.progress import CERTIFIED, CertifiedTraining
from zetadp.trainer.specs.findings.devices import SelfTest


@final
class Trainings(Value):
    """The trainings of one program that ended with a certificate, in their order."""

    trainings: tuple[CertifiedTraining, ...]


def register(app: typer.Typer) -> None:
    """Add these commands."""
    # As for Python itself, whatever comes after the file is the file's.
    app.command(context_settings={"allow_interspersed_args": False, "ignore_unknown_options": True})(train)
    app.command("gpu-selftest")(gpu_selftest)


def train(
    file: Annotated[Path, typer.Argument(help="A Python program. Options of this command come before it.")],
    arguments: Annotated[list[str] | None, typer.Argument(help="The program's own arguments.")] = None,
    as_json: AsJson = False,
) -> None:
    """Run FILE, a Python program that calls zetadp.train, and show its progress. After Ctrl-C the same command goes on.

    The exit code is the program's own; 130 after Ctrl-C: a training that was running has its checkpoint. With --json, what the program
    prints goes to standard error.
    """
    if not file.is_file():
        fail(f"{file}: no such file", Exit.USAGE)
    certified: list[CertifiedTraining] = []
    token = CERTIFIED.set(certified)
    try:
        with _stdout_kept_clean(as_json):
            code = _run(file, arguments or [])
    finally:
        CERTIFIED.reset(token)
    if as_json:
        print_json(Trainings(trainings=tuple(certified)))
    for training in () if as_json else certified:
        out.print(_line(training), markup=False)
    if not certified and code == Exit.OK:
        error.print(f"{file} ended without a certificate: no zetadp.train or finish() of zetadp.private returned in it", markup=False)
    raise typer.Exit(code)


def gpu_selftest(
    device: Annotated[str, typer.Option(help="cuda, cuda:1, cpu, or auto: the accelerator where there is one.")] = "auto",
    as_json: AsJson = False,
) -> None:
    """Compare what a device computes with known answers, the processor's and float64's: cipher, noise, products, sums.

    A training on an accelerator makes the same comparisons at its start, but for the one of two processes, and refuses one that fails.
    """
    found = _examined(device)
    if as_json:
        print_json(found)
    else:
        out.print(found.device, markup=False)
        for one in found.checks:
            out.print(f"{_VERDICTS[one.passed]:8} {one.name}: {one.found}", markup=False)
        for what, taken in found.seconds.items():
            out.print(f"{1e3 * taken:8.2f} ms {what}", markup=False)
    if any(one.passed is False for one in found.checks):
        raise typer.Exit(int(Exit.FAILED))


def _examined(device: str) -> SelfTest:
    examined = cast("Callable[[str, Path], SelfTest]", import_module("zetadp.trainer.engine.self_test").examined)  # loads torch
    folder = mkdtemp()
    try:
        return examined(device, Path(folder))
    except InvalidParameter as refused:
        error.print(str(refused), style="red", markup=False)
        raise typer.Exit(int(Exit.USAGE)) from refused
    finally:
        rmtree(folder)


_VERDICTS = {True: "passed", False: "FAILED", None: "noted"}


def _line(training: CertifiedTraining) -> str:
    claim = "no guarantee" if training.epsilon is None else f"epsilon {training.epsilon:g} at delta {training.delta:g}"
    return f"{training.certificate}: {claim}; {training.steps_released} of {training.steps} steps"


@contextmanager
def _stdout_kept_clean(asked: bool) -> Generator[None]:
    """Where asked for, standard output is standard error meanwhile, also for what the program starts."""
    if not asked:
        yield
        return
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)


def _run(file: Path, arguments: list[str]) -> int:
    """Runs the program as ``python`` would; its exit code."""
    sys.argv = [str(file), *arguments]
    sys.path.insert(0, str(file.resolve().parent))
    try:
        runpy.run_path(str(file), run_name="__main__")
    except SystemExit as ended:
        if isinstance(ended.code, str):
            error.print(ended.code, markup=False)
        return ended.code if isinstance(ended.code, int) else Exit.OK if ended.code is None else Exit.FAILED
    except TrainingInterrupted as stopped:
        where = f"Ctrl-C after step {stopped.step}, which is in the checkpoint in {stopped.folder}. To go on: "
        error.print(where + shlex.join(["zetadp", "train", *sys.argv]), markup=False)
        return Exit.INTERRUPTED
    except KeyboardInterrupt:
        error.print("Ctrl-C, outside the steps of a training", markup=False)
        return Exit.INTERRUPTED
    except PrivacyError as refused:
        places = [frame for frame in traceback.extract_tb(refused.__traceback__) if frame.filename == str(file)]
        where = f"{file}:{places[-1].lineno}: " if places else ""
        error.print(f"{where}{refused}", style="red", markup=False)
        return Exit.USAGE
    except Exception as failure:
        traceback.print_exception(type(failure), failure, _own(failure.__traceback__, str(file)))
        return Exit.FAILED
    return Exit.OK


def _own(trace: TracebackType | None, file: str) -> TracebackType | None:
    """Without the frames that led to the program."""
    while trace is not None and trace.tb_frame.f_code.co_filename != file:
        trace = trace.tb_next
    return trace
