r"""Canaries: made-up records that audit a run from inside. Fair coins decide which take part; the released sums indicate which did.

Each is a separate unit, sampled, clipped and added like any other, with a gradient far beyond the bound. They belong to nobody, and a
unit's guarantee doesn't depend on who else is in the data: they cost nothing. Scores are functions of what was released, of the coins
and of made-up records, so they may be published with the run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, cast, final

import torch
from torch import Tensor
from torch.func import functional_call  # pyright: ignore[reportPrivateImportUsage]

from zetadp.accountants.audit import Scores, at_quantiles
from zetadp.trainer.engine.gradients.audited_units import MEMBERS, SCORES, AuditedUnits
from zetadp.trainer.engine.gradients.clipping import ClippedGradients
from zetadp.trainer.engine.gradients.lazy_rows import LazyRows
from zetadp.trainer.engine.gradients.probe import mode
from zetadp.trainer.engine.gradients.problem import Problem
from zetadp.trainer.layers.flat_parameters import as_real

BEYOND = 4.0
"""How many times the bound a canary's gradient should be at the start, so that it would stand out if it weren't clipped."""

_SCALES = tuple(4.0**power for power in range(7))
_TRIED = 16
_RECORDS_AT_ONCE = 256
_STEP = 1e-2
"""The step to either side for a difference of losses, relative to the parameters' norm: balances curvature and rounding in float32."""


@final
@dataclass(frozen=True)
class Canaries(AuditedUnits):
    r"""The canaries of one run; what has been learned about them so far is in the training state.

    Attributes:
      problem: the problem with the canaries as its last units, each of one record.
      clipped: the clipped gradients of that problem.
      first: number of the first canary; the units before it are real.
      classes: the number of classes of a classification; None otherwise.
    """

    KIND: ClassVar[Literal["canaries", "marks"]] = "canaries"

    problem: Problem
    clipped: ClippedGradients
    first: int
    classes: int | None

    @property
    def count(self) -> int:
        """The number of canaries, whether they take part or not."""
        return self.problem.units - self.first

    def scores(self, state: Mapping[str, Tensor]) -> Scores:
        """What has been learned about the canaries, in the form that audits read."""
        return at_quantiles(state[MEMBERS].numpy(), state[SCORES].numpy())

    def prepare(self, step: int) -> None:
        """Sets new targets for this step, so that the network can't memorise them and stop moving for them."""
        generator = torch.Generator().manual_seed(step)
        self.problem.targets[-self.count :] = _targets(self.problem.targets, self.count, self.classes, generator)

    def observe(
        self, state: Mapping[str, Tensor], parameters: Mapping[str, Tensor], gradient: Mapping[str, Tensor], bound: float
    ) -> dict[str, Tensor]:
        r"""The state after a step: each score grows by <gradient, g> / max(norm of g, bound), g the canary's own gradient.

        Args:
          parameters: where the step's gradients were taken.
          gradient: as released, noise and all.
          bound: the bound that g was clipped to.
        """
        units = torch.arange(self.first, self.problem.units, device=self.problem.features.device)
        # As the losses below: masks would be drawn from torch's own generator, which no seed of the run has set here.
        with mode(self.problem.network, training=False):
            clipped = self.clipped.sum(parameters, units, bound)
        size = _norm(gradient)
        if len(clipped.norms) < self.count or not size > 0.0:
            return dict(state)
        norms = clipped.norms.double().clamp(min=clipped.bound) * (bound / clipped.bound)
        # A difference of losses costs two forward passes; inner products with whole gradients would need all of these in memory.
        reach = _STEP * max(_norm(parameters), 1.0)
        ahead, behind = (self._losses(parameters, gradient, sign * reach / size) for sign in (1.0, -1.0))
        gained = (ahead - behind) * (size / (2.0 * reach)) / norms
        return {MEMBERS: state[MEMBERS], SCORES: state[SCORES] + gained.nan_to_num(0.0, 0.0, 0.0).cpu()}

    def _losses(self, parameters: Mapping[str, Tensor], direction: Mapping[str, Tensor], step: float) -> Tensor:
        moved = {name: value + step * direction[name] for name, value in parameters.items()}
        return torch.cat(list(self._chunks(moved))).double()

    def _chunks(self, parameters: dict[str, Tensor]) -> Iterator[Tensor]:
        problem = self.problem
        features, targets = problem.features[-self.count :], problem.targets[-self.count :]
        with torch.no_grad(), mode(problem.network, training=False):
            for some, wanted in zip(features.split(_RECORDS_AT_ONCE), targets.split(_RECORDS_AT_ONCE), strict=True):
                yield problem.losses(functional_call(problem.network, parameters, (some,)), wanted)


def with_canaries(problem: Problem, count: int, bound: float, classes: int | None) -> Problem:
    """The problem with ``count`` more units at its end, of one made-up record each, whose gradients are long before training starts."""
    generator = torch.Generator().manual_seed(0)
    targets = _targets(problem.targets, count, classes, generator)
    features = _gaussian(problem.features, count, generator)
    tried = replace(problem, features=features[:_TRIED], targets=targets[:_TRIED], members=None)
    features = features * _scale(tried, bound)
    members = None
    if problem.members is not None:
        own = torch.full((count, problem.members.shape[1]), -1, dtype=torch.int64, device=problem.members.device)
        own[:, 0] = torch.arange(len(problem.features), len(problem.features) + count)
        members = torch.cat((problem.members, own))
    return replace(
        problem, features=_followed_by(problem.features, features), targets=_followed_by(problem.targets, targets), members=members
    )


def _followed_by(rows: Tensor, more: Tensor) -> Tensor:
    several: object = rows
    return cast("Tensor", several.followed_by(more)) if isinstance(several, LazyRows) else torch.cat((rows, more))


def _scale(tried: Problem, bound: float) -> float:
    """The first scale that makes the median gradient long enough, else the one that makes it longest: some gradients are bounded."""
    found: list[tuple[float, float]] = []
    for scale in _SCALES:
        norm = sorted(_gradient_norm(tried, scale, row) for row in range(len(tried.features)))[len(tried.features) // 2]
        if norm >= BEYOND * bound:
            return scale
        found.append((norm, -scale))
    return -max(found)[1]


def _gradient_norm(tried: Problem, scale: float, row: int) -> float:
    """The gradient norm of one record alone, by plain differentiation; 0 where it isn't finite."""
    parameters = [parameter for parameter in tried.network.parameters() if parameter.requires_grad]
    with torch.enable_grad(), mode(tried.network, training=False):
        loss = tried.losses(tried.network(scale * tried.features[row : row + 1]), tried.targets[row : row + 1]).sum()
        gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
    norm = _norm({str(number): value for number, value in enumerate(gradients) if value is not None})
    return norm if norm < float("inf") else 0.0


def _targets(like: Tensor, count: int, classes: int | None, generator: torch.Generator) -> Tensor:
    if classes is not None:
        return torch.randint(classes, (count,), generator=generator).to(like.device, like.dtype)
    return _gaussian(like, count, generator)


def _gaussian(like: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Standard normal numbers in the shape of ``count`` records; pairs of reals where the records are complex."""
    shape = (count, *like.shape[1:])
    if like.is_complex():
        return torch.view_as_complex(torch.randn((*shape, 2), generator=generator)).to(like.device, like.dtype)
    return torch.randn(shape, generator=generator).to(like.device, like.dtype)


def _norm(tensors: Mapping[str, Tensor]) -> float:
    """The l2 norm over all numbers, as reals."""
    return float(torch.stack([as_real(value.detach()).double().square().sum() for value in tensors.values()]).sum().sqrt())
