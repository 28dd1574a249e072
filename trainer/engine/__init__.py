r"""The training engine: sampling, clipping, one loop, checkpoints. Needs torch, so the API process never imports it."""

from __future__ import annotations

from trainer.engine.checkpoint import Checkpoint, load_checkpoint, save_checkpoint, write_atomically, write_tensors
from trainer.engine.clipping import PerRecordLoss, Problem, clipped_sum
from trainer.engine.environment import hardware, prepare_torch, versions
from trainer.engine.loop import PrivateLoop, TrainingState
from trainer.engine.optimizers import initial_state, update
from trainer.engine.parameters import ParameterLayout
from trainer.engine.publisher import Publisher
from trainer.engine.randomness import FreshRandomness, Randomness, SeededRandomness
from trainer.engine.sampling import poisson_sample
from trainer.engine.spent import EpsilonSpent
from trainer.engine.torch_source import TorchSource

__all__ = [
    "Checkpoint",
    "EpsilonSpent",
    "FreshRandomness",
    "ParameterLayout",
    "PerRecordLoss",
    "PrivateLoop",
    "Problem",
    "Publisher",
    "Randomness",
    "SeededRandomness",
    "TorchSource",
    "TrainingState",
    "clipped_sum",
    "hardware",
    "initial_state",
    "load_checkpoint",
    "poisson_sample",
    "prepare_torch",
    "save_checkpoint",
    "update",
    "versions",
    "write_atomically",
    "write_tensors",
]
