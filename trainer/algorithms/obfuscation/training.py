r"""One step of the joint training (paper, eq. 9): the critic's own steps, then encoder, processing module and decoder together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import torch
from torch import Generator, Tensor, nn

from zetadp.mechanisms.sampling.source import RandomStream
from zetadp.trainer.algorithms.obfuscation.critic import CriticNetwork, adversarial_loss, critic_loss, faked, wrong_angles
from zetadp.trainer.algorithms.obfuscation.encoding import FeatureLaw, angles, counterpart_as_sent, generator_of, hidden, others
from zetadp.trainer.algorithms.obfuscation.layers import turned, turned_back
from zetadp.trainer.algorithms.obfuscation.networks import DividedNetwork, set_statistics, statistics
from zetadp.trainer.engine import ParameterLayout, TrainingState, initial_state, update
from zetadp.trainer.engine.finite import all_finite
from zetadp.trainer.engine.loop import NO_BOUND
from zetadp.trainer.engine.torch_seed import seed_torch
from zetadp.trainer.errors import TrainingDiverged
from zetadp.trainer.specs.algorithms.obfuscation import Obfuscation
from zetadp.trainer.specs.descent import Adam
from zetadp.trainer.specs.obfuscation.methods import Critic, GradientPenalty, Turned

RAMP = 0.5
"""The share of the steps in which the training noise grows to that of sending: a network that starts with much noise learns nothing."""

NETWORK, CRITIC, STATISTICS, WEIGHTS = "network.", "critic.", "statistics", "critic.parameters"
"""Names in a checkpoint, besides the network's own parameters."""


@final
@dataclass(frozen=True)
class Batch:
    """Images (records, channels, height, width), the task's labels, and which image each record has, int64 (records,)."""

    images: Tensor
    labels: Tensor
    kinds: Tensor


@final
class FlatWeights:
    """A module's parameters as one vector: read, written and differentiated by."""

    def __init__(self, module: nn.Module) -> None:
        self._named = dict(module.named_parameters())
        self._layout = ParameterLayout.of(module)

    def vector(self) -> Tensor:
        """A new tensor, (coordinates,)."""
        return self._layout.flatten(self._named)

    def load(self, vector: Tensor) -> None:
        """Writes them into the module."""
        with torch.no_grad():
            for name, values in self._layout.unflatten(vector).items():
                self._named[name].copy_(values)

    def gradient(self, loss: Tensor) -> Tensor:
        """The gradient of a loss, (coordinates,); zero for parameters that it doesn't depend on."""
        slopes = torch.autograd.grad(loss, list(self._named.values()), allow_unused=True, materialize_grads=True)
        return self._layout.flatten(dict(zip(self._named, slopes, strict=True)))


@final
class JointTraining:
    r"""The networks in memory, and their current state.

    Args:
      network: in training mode from here on, but for what measures it.
      critic: None if no loss needs one.
      std: standard deviation of the noise on each coordinate of a feature under ``noisy_rotation``, once it has fully grown (``RAMP``).
      tick: called several times per step; raises to stop, and then the step is as if never begun once ``load`` was called.
    """

    def __init__(
        self, spec: Obfuscation, network: DividedNetwork, critic: CriticNetwork | None, std: float, tick: Callable[[], None]
    ) -> None:
        self._spec, self._network, self._critic, self._std, self._tick = spec, network, critic, std, tick
        self._weights = FlatWeights(network)
        self._critic_weights = None if critic is None else FlatWeights(critic)
        self._device = next(network.parameters()).device

    def begin(self) -> TrainingState:
        """The state before the first step."""
        parameters = self._weights.vector()
        kept = {NETWORK + name: value for name, value in initial_state(self._spec.optimizer, parameters).items()}
        kept[STATISTICS] = statistics(self._network)
        if self._critic_weights is not None:
            weights = self._critic_weights.vector()
            moments = initial_state(_critic_optimizer(self._critic_spec), weights)
            kept |= {WEIGHTS: weights} | {CRITIC + name: value for name, value in moments.items()}
        return TrainingState(0, parameters, kept, NO_BOUND)

    def load(self, state: TrainingState) -> None:
        """Puts both networks into this state."""
        self._weights.load(state.parameters)
        set_statistics(self._network, state.optimizer[STATISTICS])
        if self._critic_weights is not None:
            self._critic_weights.load(state.optimizer[WEIGHTS])

    def step(self, state: TrainingState, batch: Batch, stream: RandomStream) -> TrainingState:
        r"""The state after one more step from ``state``, in which the networks are.

        Args:
          stream: of this step alone; angles, counterparts, noise and dropout come from it.
        Raises:
          TrainingDiverged: something is no longer finite.
        """
        self._network.train()
        generator = generator_of(stream, self._device)
        # Dropout draws from torch's own generator.
        seed_torch(self._device, int.from_bytes(stream.key()[:8], "big") >> 1)
        feature = self._network.encoder(batch.images)
        std = self._std * min(1.0, (state.step + 1) / (RAMP * self._spec.steps))
        sent = hidden(self._spec.method, std, feature, generator)
        self._tick()
        step, kept = state.step + 1, dict(state.optimizer)
        if self._critic is not None:
            for number in range(self._critic_spec.steps):
                self._tick()
                counterpart = self._counterpart(feature.detach(), batch.kinds, std, generator)
                kept |= self._critic_step(kept, state.step * self._critic_spec.steps + number + 1, sent.detach(), counterpart, generator)
        self._tick()
        gradient = self._weights.gradient(self._loss(batch, feature, sent, std, generator))
        own = {name.removeprefix(NETWORK): value for name, value in kept.items() if name.startswith(NETWORK)}
        moved, own = update(self._spec.optimizer, own, state.parameters, gradient, step, self._spec.steps)
        self._weights.load(moved)
        kept |= {NETWORK + name: value for name, value in own.items()} | {STATISTICS: statistics(self._network)}
        if not all(all_finite(kept[name]) for name in (STATISTICS, WEIGHTS) if name in kept) or not all_finite(moved):
            raise TrainingDiverged(step)
        return TrainingState(step, moved, kept, NO_BOUND)

    @property
    def _critic_spec(self) -> Critic:
        assert isinstance(self._spec.method, Turned)  # no other method has a critic
        return self._spec.method.critic

    def _loss(self, batch: Batch, feature: Tensor, sent: Tensor, std: float, generator: Generator) -> Tensor:
        method, network = self._spec.method, self._network
        if not isinstance(method, Turned):
            return nn.functional.cross_entropy(network.decoder(network.processing(sent)), batch.labels)
        counterpart = self._counterpart(feature, batch.kinds, std, generator)
        theta = angles(len(sent), generator, sent.device)
        processed = network.processing(turned(sent, counterpart, theta))
        loss = nn.functional.cross_entropy(network.decoder(turned_back(processed, theta)), batch.labels)
        if self._critic is None:
            return loss
        fake = faked(sent, counterpart, wrong_angles(method.k, len(sent), generator, sent.device))
        return loss + method.adversarial_weight * adversarial_loss(self._critic, sent, fake)

    def _counterpart(self, feature: Tensor, kinds: Tensor, std: float, generator: Generator) -> Tensor:
        """b for each record of a batch: all of them are public, so another one's feature is a public record's too."""
        if getattr(self._spec.method, "counterpart", None) == "synthetic":
            chosen = FeatureLaw.of((feature,)).draw(len(feature), generator)
        else:
            chosen = feature[others(kinds, generator)]
        return counterpart_as_sent(self._spec.method, std, chosen, generator)

    def _critic_step(
        self, kept: dict[str, Tensor], number: int, sent: Tensor, counterpart: Tensor, generator: Generator
    ) -> dict[str, Tensor]:
        """The critic's part of the state after one step of its own, the ``number``-th of all."""
        critic, weights, method = self._critic, self._critic_weights, self._spec.method
        assert critic is not None
        assert weights is not None
        assert isinstance(method, Turned)
        fake = faked(sent, counterpart, wrong_angles(method.k, len(sent), generator, sent.device))
        slope = weights.gradient(critic_loss(critic, method.critic, sent, fake, generator))
        optimizer = _critic_optimizer(method.critic)
        own = {name: kept[CRITIC + name] for name in initial_state(optimizer, slope[:0])}
        moved, own = update(optimizer, own, kept[WEIGHTS], slope, number, number)
        constraint = method.critic.constraint
        if not isinstance(constraint, GradientPenalty):
            moved = moved.clamp(-constraint.bound, constraint.bound)
        weights.load(moved)
        return {WEIGHTS: moved} | {CRITIC + name: value for name, value in own.items()}


def _critic_optimizer(critic: Critic) -> Adam:
    # Gulrajani et al. 2017, section 4, have beta1 = 0 or 0.5.
    return Adam(learning_rate=critic.learning_rate, beta1=0.5, beta2=0.9)
