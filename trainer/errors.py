r"""Errors that end a training run before its last step. Doesn't import torch."""

from __future__ import annotations

from zetadp.mechanisms.errors import PrivacyError


class TrainingStopped(Exception):
    """Someone asked the run to stop; the state after ``step`` is in the checkpoint."""

    def __init__(self, step: int) -> None:
        self.step = step
        super().__init__(f"stopped after step {step}")


class TrainingInterrupted(KeyboardInterrupt):
    """Ctrl-C ended a training in the caller's program between two steps; the state after ``step`` is in the checkpoint in ``folder``."""

    def __init__(self, step: int, folder: str) -> None:
        self.step = step
        self.folder = folder
        super().__init__(f"interrupted after step {step}, which is in the checkpoint in {folder}; the same call goes on from there")


class TrainingDiverged(PrivacyError):
    """The parameters after ``step`` are no longer finite, and are in the checkpoint: an output of ``step`` steps, to be charged as such."""

    def __init__(self, step: int) -> None:
        self.step = step
        super().__init__(f"the parameters stopped being finite at step {step}: use a smaller learning_rate or clipping_bound")


class TrainingAborted(Exception):
    r"""Another error (the cause) ended the run in ``step``, which counts as executed and is in the checkpoint.

    Whatever the step released before the error is in it and isn't released again: a continued run begins with the next step.
    """

    def __init__(self, step: int) -> None:
        self.step = step
        super().__init__(f"ended by an error in step {step}")


class TeamLost(Exception):
    """The connection to another machine of the team was lost; another attempt goes on from the checkpoint."""

    def __init__(self) -> None:
        super().__init__("the connection to another machine of the team was lost")


class MemberDone(Exception):
    """This machine's part of a run that it shares with others is done; the first one writes what comes of it."""


class CheckpointRefused(PrivacyError):
    """A checkpoint that this run can't continue from."""

    def __init__(self, path: str, reason: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(f"checkpoint {path} can't be continued: {reason}")


class PartFailed(PrivacyError):
    """A comparison's training couldn't continue; ``reason`` is its own message, ``executed`` its executed steps if known."""

    def __init__(self, name: str, reason: str, executed: int | None = None) -> None:
        self.name = name
        self.reason = reason
        self.executed = executed
        super().__init__(f"part {name}: {reason}")
