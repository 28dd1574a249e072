r"""The training engine: sampling, clipping, one loop, checkpoints. Needs torch, so the API process never imports it."""

from __future__ import annotations

from trainer.engine.checkpoint import Checkpoint, Evaluated, load_checkpoint, save_checkpoint, write_atomically, write_tensors
from trainer.engine.environment import hardware, prepare_torch, versions
from trainer.engine.evaluation import HeldOutRecords
from trainer.engine.gradients.clipping import ClippedGradients, ClippedSum
from trainer.engine.gradients.problem import Losses, Problem
from trainer.engine.gradients.sampling import poisson_sample
from trainer.engine.loop import PrivateLoop, Site, TrainingState
from trainer.engine.membership import members_of, units_at_nodes
from trainer.engine.network_run import NoisyGradients
from trainer.engine.noise.noise_watch import NoiseWatch
from trainer.engine.noise.randomness import FreshRandomness, Randomness, SeededRandomness
from trainer.engine.noise.torch_source import TorchSource
from trainer.engine.optimizers import initial_state, update
from trainer.engine.publisher import Evaluation, Publisher
from trainer.engine.run import CHECKPOINT, MODEL
from trainer.engine.spent import EpsilonSpent
from trainer.engine.team.distributed import TeamFailed, launch, rows
from trainer.engine.team.interface import Alone, Team
from trainer.layers.flat_parameters import ParameterLayout

__all__ = [
    "CHECKPOINT",
    "MODEL",
    "Alone",
    "Checkpoint",
    "ClippedGradients",
    "ClippedSum",
    "EpsilonSpent",
    "Evaluated",
    "Evaluation",
    "FreshRandomness",
    "HeldOutRecords",
    "Losses",
    "NoiseWatch",
    "NoisyGradients",
    "ParameterLayout",
    "PrivateLoop",
    "Problem",
    "Publisher",
    "Randomness",
    "SeededRandomness",
    "Site",
    "Team",
    "TeamFailed",
    "TorchSource",
    "TrainingState",
    "hardware",
    "initial_state",
    "launch",
    "load_checkpoint",
    "members_of",
    "poisson_sample",
    "prepare_torch",
    "rows",
    "save_checkpoint",
    "units_at_nodes",
    "update",
    "versions",
    "write_atomically",
    "write_tensors",
]
