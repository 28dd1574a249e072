r"""What surrounds a training in the caller's program: Ctrl-C between steps, a bar, errors by argument, and its folder for itself."""

from __future__ import annotations

import fcntl
import os
import signal
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import FrameType

from pydantic import ValidationError

from zetadp.app.kit.field_errors import field_errors
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.progress import CERTIFIED, ProgressBar
from zetadp.trainer.specs.report import Progress, TrainingEvent


@contextmanager
def named_by_argument() -> Generator[None]:
    """Pydantic's errors become ours, of the first argument that is wrong."""
    try:
        yield
    except ValidationError as invalid:
        first = invalid.errors()[0]
        cause = first.get("ctx", {}).get("error")
        if isinstance(cause, InvalidParameter):
            raise cause from None
        where = str(first["loc"][-1]) if first["loc"] else invalid.title
        raise InvalidParameter(where, field_errors([first], {})[0].message.removeprefix("must be "), first["input"]) from None


@contextmanager
def watched(callback: Callable[[Progress], None] | None, *, draws: bool) -> Generator[Callable[[TrainingEvent], None]]:
    """What the run reports to: a bar if one is asked for, here or by ``zetadp train``, and the caller's callback."""
    with ProgressBar() if draws or CERTIFIED.get() is not None else nullcontext() as bar:

        def tell(event: TrainingEvent) -> None:
            if bar is not None:
                bar.show(event)
            if callback is not None and isinstance(event, Progress):
                callback(event)

        yield tell


@contextmanager
def interruptible() -> Generator[Callable[[], bool]]:
    """Whether Ctrl-C was pressed: the run then ends between two steps, with its state in the checkpoint."""
    pressed = threading.Event()

    def press(_number: int, _frame: FrameType | None) -> None:
        if pressed.is_set():  # whatever runs takes too long for who presses twice
            raise KeyboardInterrupt
        pressed.set()

    if threading.current_thread() is not threading.main_thread():
        yield pressed.is_set
        return
    before = signal.signal(signal.SIGINT, press)
    try:
        yield pressed.is_set
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def held_alone(folder: Path) -> Generator[None]:
    r"""While it lasts no other process, and no other training in this one, works in the folder: each would release as many steps.

    Raises:
      InvalidParameter: another one does.
    """
    folder.mkdir(parents=True, exist_ok=True)
    lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise InvalidParameter("folder", "one in which no other training is running", str(folder.parent)) from None
    else:
        yield
    finally:
        os.close(lock)
