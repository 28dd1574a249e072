r"""Per-unit gradients, clipped and summed, in memory that doesn't grow with the sample."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from copy import copy
from dataclasses import dataclass, replace
from typing import final

import torch
from torch import Tensor, nn

from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.engine.gradients.checks import check_problem
from zetadp.trainer.engine.gradients.inputs import parts_of
from zetadp.trainer.engine.gradients.microbatches import ONE_BY_ONE, Padding, Probe, Sizes, lengths
from zetadp.trainer.engine.gradients.per_unit import Layer, Microbatch, TapedRoute, WholeNetworkRoute, squared_features
from zetadp.trainer.engine.gradients.probe import draws_masks, made_up_features, made_up_parameters, mode, uneven
from zetadp.trainer.engine.gradients.problem import Problem
from zetadp.trainer.engine.gradients.routes import plan_route
from zetadp.trainer.engine.gradients.spectral_vector import Spectra
from zetadp.trainer.engine.products import WholeProducts
from zetadp.trainer.engine.torch_seed import same_draws
from zetadp.trainer.layers.flat_parameters import ParameterLayout
from zetadp.trainer.layers.linear import ComplexLinear
from zetadp.trainer.layers.rules import LayerGradients, WritableGradients
from zetadp.trainer.layers.rules.base import HIDDEN_BY_UNDERFLOW
from zetadp.trainer.specs.execution_plan import Clipping, L1Clipping, LayerBoundsClipping, PerLayerClipping
from zetadp.trainer.specs.projection import SpectralProjection

CLIP_MARGIN = 2.0**-8
r"""The relative distance below the bound that clipping aims for, so that float32 rounding can't lift a gradient above the bound.

Norms are sums of squares in a cascade, or products of two such sums: their relative error is below 2^-16 for up to 10^8 numbers. Factor and
product add 2^-23. Units are added in float64, or in float32 as long as that can't cost more than 59/64 of the margin
(``rules.base.added_at_once``): one more unit changes how all the others' sum is rounded, and how badly depends on the library. With 256
units of 784 positions added in float32 it was 2^-17 of the bound on one machine, above 2^-8 on another. A sum in float64 is rounded to
float32 at the end: by at most 2^-24 of it, with and without the unit, so by 2^-12 for 2048 units. In total this is below 2^-8:
mechanisms/proofs/clipped_sum.md.
"""

AIM = 1.0 - CLIP_MARGIN
"""Relative to the bound."""

LARGEST_MICROBATCH = 2048
"""The most records processed at once: as many as a sum in float32 at the end may have (clipped_sum.md)."""
LARGEST_WITH_POSITIONS = 256
"""The same on a processor, where a record may have many positions: more are slower there."""

LARGEST_ONE_BY_ONE = 16
"""The same where each record has a pass of its own, and larger ones would only take memory."""


@final
@dataclass(frozen=True)
class ClippedSum:
    r"""The result for one step's sample. Only ``total`` may leave the process, and only with noise added.

    Attributes:
      total: (coordinates,), the sum over units of clipped gradients; the network's precision from one microbatch, float64 from several.
      norms: (units that weren't zeroed,); with bounds per layer each unit's largest ratio of a norm to its layer's bound, times ``bound``.
      bound: the bound on such a norm.
      zeroed: units whose gradient wasn't finite, or whose norm overflowed. Not private: for tests and debuggers.
    """

    total: Tensor
    norms: Tensor
    bound: float
    zeroed: int

    @property
    def within(self) -> int:
        """The number of units whose norm is at most the bound (per layer: in every layer), zeroed units included."""
        return int((self.norms <= self.bound).sum()) + self.zeroed


@final
class ClippedGradients:
    r"""sum over units of g min(1, B / ||g||), where g is the sum of the unit's records' gradients, all parameters as real pairs.

    g is torch's gradient 2 dL/d(conj theta), the full gradient of the real pair. Routes are planned once, here. With a projection, the sum
    is over the clipped gradients' kept coordinates, or over the clipped kept coordinates: see ``SpectralProjection.order``.

    Args:
      clipping: in l2. With one bound per layer, B is the total of them all: they are multiplied by B / (their own total).
      projection: None for the whole gradient.
      microbatch_size: how many records are processed at once, at most as many as float32 may add (``LARGEST_MICROBATCH``): it affects speed
        and memory, never the result.
      lot: expected number of units in a sample, a public number; it decides microbatches' sizes; None: a whole microbatch.
    Raises:
      InvalidParameter: the network mixes records, network, losses and data don't fit together (``check_problem``), or network and
        clipping or projection don't.
    """

    def __init__(
        self,
        problem: Problem,
        clipping: Clipping,
        microbatch_size: int,
        projection: SpectralProjection | None = None,
        lot: int | None = None,
    ) -> None:
        check_problem(problem)
        self.problem = problem
        self.layout = ParameterLayout.of(problem.network)
        self.layers, self.route = plan_route(problem)
        self.spectra = None if projection is None else Spectra(projection, self.layout, problem.features.device)
        self._released = self.layout if self.spectra is None else self.spectra.layout
        self._bounds = _bounds_of(clipping, self.layers)
        is_here = problem.features.device.type == "cpu"
        largest = LARGEST_WITH_POSITIONS if is_here and not _has_no_positions(problem, self.layers) else LARGEST_MICROBATCH
        if isinstance(self.route, WholeNetworkRoute) and self.route.is_one_by_one:
            largest = LARGEST_ONE_BY_ONE
        self._most = max(1, min(microbatch_size, largest) // problem.records_per_unit)
        self._lot = self._most if lot is None else lot
        self._sizes = self._candidates
        self._padding = Padding.of(problem)
        self._watched = tuple(problem.network.buffers())
        self._squares = squared_features(problem.features)
        self._dtype = self.layout.flatten(dict(problem.network.named_parameters())).dtype
        self.is_random = problem.is_random or draws_masks(problem)

    def sum(self, parameters: Mapping[str, Tensor], units: Tensor, bound: float) -> ClippedSum:
        r"""Clips and sums over a sample.

        Args:
          parameters: by name, as ``layout.unflatten`` gives them.
          units: the sampled units' numbers, (sampled,), int64; may be empty, and then gives exact zeros.
          bound: B > 0; with bounds per layer it is the total, and each layer gets its share, B / sqrt(L) with L equal layers.
        Raises:
          InvalidParameter: the network changed a parameter or a buffer in the meantime.
        """
        watched = (*parameters.values(), *self._watched)
        before, sizes = [tensor._version for tensor in watched], self._sizes
        try:
            with WholeProducts():
                clipped = self._clipped_sum(parameters, units, bound)
        finally:
            # Parameters that made units go one by one, which a coordinator may send on purpose, are of this sum alone.
            self._sizes = sizes
        if [tensor._version for tensor in watched] != before:
            # Other records would read what one record writes there.
            raise InvalidParameter("network", "one that changes no parameter and no buffer", "an in-place change")
        return clipped

    def _clipped_sum(self, parameters: Mapping[str, Tensor], units: Tensor, bound: float) -> ClippedSum:
        if (count := units.shape[0]) <= self._room:
            return self._microbatch(parameters, units, bound, count)  # needs no second pass over the parameters
        total = torch.zeros(self._released.coordinates, device=self.problem.features.device, dtype=torch.float64)
        parts: list[ClippedSum] = []
        left = units
        while len(left):
            # Room may become less meanwhile: sizes that weren't probed, or without padding, would never do.
            room = self._room
            chunk, left = left[:room], left[room:]
            part = self._microbatch(parameters, chunk, bound, len(units))
            total += part.total
            parts.append(part)
        return ClippedSum(total, torch.cat([part.norms for part in parts]), parts[0].bound, sum(part.zeroed for part in parts))

    @property
    def _room(self) -> int:
        """The most units of a microbatch: one place less where draws are random, for padding."""
        return max(1, self._sizes.largest - self._spare)

    @property
    def _spare(self) -> int:
        # Whether padding is finite must not depend on whether a unit takes the last place: see ``_microbatch``.
        return int(self.is_random and self._sizes.largest > 1)

    def _microbatch(self, parameters: Mapping[str, Tensor], units: Tensor, bound: float, sample: int) -> ClippedSum:
        r"""The clipped sum over units that are processed together.

        NaN * 0 is NaN, so a unit whose gradient isn't finite has to be taken out of the products, not weighted by 0; else it would reveal
        that it was there (errata Z22). Padding takes its place in a second pass with the same draws: all others keep their variants and
        masks, and so their gradients. With new draws each of them would have to be finite twice because of that unit: clipped_sum.md.
        """
        count = units.shape[0]  # a tensor's own ``len`` takes its time in a small step
        size, again = self._sizes.of_microbatch(count + self._spare) if count else 0, same_draws(units.device)
        # Rounded once: with several microbatches, only their sum is rounded. Before the gradients, since what the last step's parameters
        # took is free again and of this length: later, what it is cut into by then would be.
        total = torch.empty(self._released.coordinates, device=units.device, dtype=torch.float64 if sample > self._room else self._dtype)
        # Whose gradients aren't finite, (units,); asked for only where there are any, since asking an accelerator is waiting for it.
        broken: Tensor | None = None
        while count and (broken is None or not bool(broken.all())):
            gradients = list(self.gradients(parameters, self._padding.gathered(self.problem, units, self._squares, size, broken)))
            with _single_precision(units.device.type):
                squares = torch.stack([layer.squared_norms() for layer in gradients])
                # Finite squares may sum to infinity in their own type; those of float32 don't in float64.
                if math.isfinite(squares.sum(dtype=torch.float64).item()) or bool(squares.isfinite().all()):
                    return self._clipped(total, gradients, squares, bound, count, broken, sample)
            infinite = ~squares.isfinite().all(dim=0)
            del gradients
            own = infinite[:count]
            if bool(infinite[count:].any()) or (broken is not None and bool((own & broken).any())):
                # Padding that isn't finite would spoil the products that it is part of; without padding, sizes wouldn't be the probed ones.
                self._sizes = ONE_BY_ONE
                return self._clipped_sum(parameters, units, bound)
            broken = own if broken is None else broken | own
            again()
        return ClippedSum(total.zero_(), total[:0], self._bounds(bound)[0], count)

    def gradients(self, parameters: Mapping[str, Tensor], batch: Microbatch) -> Sequence[LayerGradients]:
        """The gradients of each layer that are clipped."""
        found = self.route.gradients(parameters, batch)
        return found if self.spectra is None else self.spectra.released(self.layers, found)

    def made_up(self, count: int) -> Callable[[Tensor, float], ClippedSum]:
        r"""``sum`` for ``count`` made-up units, with made-up parameters: numbers of some of them, (sampled,), and a bound -> their sum.

        Not in training mode: the same unit would get different dropout masks.
        """
        problem, each = self.problem, self.problem.records_per_unit
        twin, parameters = copy(self), made_up_parameters(problem.network)
        features = uneven(made_up_features(problem.features, count * each))
        targets = torch.zeros_like(problem.targets[:1]).expand(len(features), *problem.targets.shape[1:]).contiguous()
        members = None if problem.members is None else torch.arange(len(features), device=features.device).reshape(count, each)
        twin.problem = replace(problem, features=features, targets=targets, members=members)
        twin._squares = squared_features(features)

        def clipped(units: Tensor, bound: float) -> ClippedSum:
            with mode(problem.network, training=False):
                return twin.sum(parameters, units.to(features.device), bound)

        return clipped

    def settle(self) -> bool:
        r"""Whether there are sizes of microbatches in which a unit's gradient has the same bits, whatever units are beside it: these
        are used from here on, with linear layers' rows filled up if that helps. If not, units are computed one by one.
        """
        if isinstance(self.route, TapedRoute):
            self.route.fills_rows = False
        found = self._agreeing()
        if found != self._candidates and isinstance(self.route, TapedRoute):
            self.route.fills_rows = True
            filled = self._agreeing()
            self.route.fills_rows = filled is not None and (found is None or filled.cost(self._lot) < found.cost(self._lot))
            found = filled if self.route.fills_rows else found
        self._sizes = found or ONE_BY_ONE
        return found is not None

    @property
    def _candidates(self) -> Sizes:
        return Sizes.of(self._most, self._lot, self.problem.records_per_unit)

    def _agreeing(self) -> Sizes | None:
        sizes = self._candidates
        with WholeProducts():
            return sizes.agreeing(Probe(self.gradients, self.problem, self._padding, sizes.largest), self._lot)

    def _clipped(
        self,
        total: Tensor,
        gradients: list[LayerGradients],
        squares: Tensor,
        bound: float,
        units: int,
        broken: Tensor | None,
        sample: int,
    ) -> ClippedSum:
        """``total`` is overwritten, and ``gradients`` emptied; ``squares``: (layers, units and padding), finite; ``broken``: units that
        padding stands for."""
        # The product of two nonzero norms may underflow to 0, and a gradient with norm 0 wouldn't be clipped at all.
        squares = squares + HIDDEN_BY_UNDERFLOW
        bounds = self._bounds(bound)
        if len(bounds) == 1:
            norms = lengths(squares)
            factors: Sequence[Tensor] = [_factors(norms, AIM * bounds[0])] * len(gradients)
        else:
            each = squares.sqrt()
            factors = _factors(each, _column([AIM * own for own in bounds], each)).unbind()
            norms = (each * _column([bounds[0] / own for own in bounds], each)).amax(dim=0)
        views = self._released.unflatten(total)
        # From the last layer on, each of which is then free: the first one's sum, mostly the largest, needs memory of its own.
        for layer, weight in zip(reversed(self.layers), reversed(factors), strict=True):
            of_layer = gradients.pop()
            into = {own: views[full] for own, full in layer.names.items()}
            if isinstance(of_layer, WritableGradients):
                of_layer.write_weighted_sum(weight, into, sample)
            else:
                for own, value in of_layer.weighted_sum(weight, sample).items():
                    into[own].copy_(value)
        if broken is None:
            return ClippedSum(total, norms[:units], bounds[0], 0)
        return ClippedSum(total, norms[:units][~broken], bounds[0], int(broken.sum()))


def _single_precision(device: str) -> AbstractContextManager[object]:
    """Norms and sums in float32 even under autocast; without autocast there is nothing to enter, which saves time."""
    return torch.autocast(device, enabled=False) if torch.is_autocast_enabled(device) else nullcontext()


def _bounds_of(clipping: Clipping, layers: Sequence[Layer]) -> Callable[[float], Sequence[float]]:
    """A function from the whole gradient's bound to one bound for each layer, or to the single bound."""
    if isinstance(clipping, L1Clipping):
        raise InvalidParameter("clipping", "in l2 (per-unit gradients have l2 norms here)", clipping.kind)
    if isinstance(clipping, PerLayerClipping):
        return lambda bound: [bound / math.sqrt(len(layers))] * len(layers)
    if not isinstance(clipping, LayerBoundsClipping):
        return lambda bound: [bound]
    planned, found = [of_layer.layer for of_layer in clipping.layers], [layer.name for layer in layers]
    if planned != found:
        raise InvalidParameter("clipping.layers", f"the network's trained layers {found}", planned)
    return lambda bound: [of_layer.bound * (bound / clipping.bound) for of_layer in clipping.layers]


def _column(values: Sequence[float], like: Tensor) -> Tensor:
    """(layers, 1), of the type of ``like``."""
    return torch.tensor(values, dtype=torch.float64).to(like.device, like.dtype)[:, None]


def scaled_down(lengths: Tensor, bound: float) -> Tensor:
    """What clipping to ``bound`` leaves of gradients with these norms: a margin less than the bound where they are longer."""
    return lengths * _factors(lengths, AIM * bound)


def _factors(norms: Tensor, aims: float | Tensor) -> Tensor:
    """min(1, aim / norm); a norm that overflowed is infinite and gets 0."""
    return torch.reciprocal(norms).mul_(aims).clamp_(max=1.0).float()


def _has_no_positions(problem: Problem, layers: Sequence[Layer]) -> bool:
    """Whether every weight is used once per record: linear layers in a chain, each as wide as the output of the one before it."""
    shapes = [part.shape for part in parts_of(problem.features).values()]
    if problem.members is not None or len(shapes) != 1 or len(shapes[0]) != 2:
        return False
    width = shapes[0][1]
    for layer in layers:
        weight = getattr(layer.module, "weight", None)
        if type(layer.module) not in (nn.Linear, ComplexLinear) or not isinstance(weight, Tensor) or weight.shape[1] != width:
            return False
        width = weight.shape[0]
    return True
