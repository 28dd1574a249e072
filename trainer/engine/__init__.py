r"""The training engine: sampling, clipping, one loop, checkpoints. Needs torch, so the API process never imports it."""

from __future__ import annotations

from zetadp.trainer.engine.checkpoint import Checkpoint, Evaluated, load_checkpoint, save_checkpoint, write_tensors
from zetadp.trainer.engine.environment import hardware, prepare_torch, versions
from zetadp.trainer.engine.evaluation import HeldOutRecords
from zetadp.trainer.engine.gradients.clipping import ClippedGradients, ClippedSum
from zetadp.trainer.engine.gradients.problem import Losses, Problem
from zetadp.trainer.engine.gradients.sampling import poisson_sample
from zetadp.trainer.engine.loop import PrivateLoop, Site, TrainingState
from zetadp.trainer.engine.membership import members_of, units_at_nodes
from zetadp.trainer.engine.network_run import NoisyGradients
from zetadp.trainer.engine.noise.noise_watch import NoiseWatch
from zetadp.trainer.engine.noise.randomness import FreshRandomness, Randomness, SeededRandomness
from zetadp.trainer.engine.noise.torch_source import TorchSource
from zetadp.trainer.engine.optimizers import initial_state, update
from zetadp.trainer.engine.publisher import Evaluation, Publisher
from zetadp.trainer.engine.run import CHECKPOINT, MODEL
from zetadp.trainer.engine.spent import EpsilonSpent
from zetadp.trainer.engine.team.distributed import TeamFailed, launch, rows
from zetadp.trainer.engine.team.interface import Alone, Team
from zetadp.trainer.layers.flat_parameters import ParameterLayout

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
    "write_tensors",
]
