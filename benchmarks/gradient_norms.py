r"""``python -m benchmarks.gradient_norms [--repetitions 100]``: the zeta-DP paper's Figure 4, gradient norms of complex and real networks.

Both fit sin(z) + n at a thousand points, n of E|n|^2 = 1; after 100 steps of Adam at 0.01 the norm of the whole gradient is measured, from
the same seeds, and the norms compared by Student's t-test, as there. Hidden widths and the points aren't told there: 32 and 32, and real
and imaginary parts uniform in [-2, 2].

What differs between the paper's two networks is the convention: the complex one's gradient is the derivative by the conjugates, half of
the gradient by real and imaginary parts (errata Z15). So a third column has the complex network's gradient by its parts, and a fourth a
real network of twice the widths, whose weights needn't be complex numbers.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
from collections.abc import Callable
from itertools import pairwise
from typing import final

import numpy as np
import torch
from scipy.stats import ttest_ind
from torch import Tensor, nn

from zetadp.mechanisms.sampling.source import RandomStream
from zetadp.trainer.layers import COMPLEX_ACTIVATIONS, ComplexLinear
from zetadp.trainer.layers.flat_parameters import as_real

POINTS, WIDTHS, STEPS, RATE, REACH = 1000, (1, 32, 32, 1), 100, 0.01, 2.0


@final
class TwoMatrices(nn.Module):
    """W z + b with real and imaginary parts of W and b as parameters of their own: "an additional weight matrix per layer"."""

    def __init__(self, inputs: int, outputs: int, stream: RandomStream) -> None:
        super().__init__()
        drawn = ComplexLinear(inputs, outputs, stream)
        self.re, self.im = (nn.Parameter(part.detach().clone()) for part in (drawn.weight.real, drawn.weight.imag))
        self.bias_re, self.bias_im = (nn.Parameter(torch.zeros(outputs)) for _ in range(2))

    def forward(self, z: Tensor) -> Tensor:
        x, y = z.real, z.imag
        return torch.complex(x @ self.re.T - y @ self.im.T + self.bias_re, x @ self.im.T + y @ self.re.T + self.bias_im)


@final
class Unconstrained(nn.Module):
    """Any real linear map of real and imaginary parts."""

    def __init__(self, inputs: int, outputs: int, stream: RandomStream) -> None:
        super().__init__()
        std = math.sqrt(1.0 / (inputs + outputs))  # Glorot's, of twice the inputs and outputs
        drawn = std * stream.normal(4 * inputs * outputs).reshape(2 * outputs, 2 * inputs)
        self.weight = nn.Parameter(torch.from_numpy(drawn).to(torch.float32))
        self.bias = nn.Parameter(torch.zeros(2 * outputs))

    def forward(self, z: Tensor) -> Tensor:
        re, im = (torch.cat((z.real, z.imag), dim=-1) @ self.weight.T + self.bias).chunk(2, dim=-1)
        return torch.complex(re, im)


Layer = Callable[[int, int, RandomStream], nn.Module]


def network(layer: Layer, seed: int) -> nn.Sequential:
    """Layers with cardioids between, from the seed's weights."""
    stream = RandomStream.from_seed(seed, "gradient norms")
    modules: list[nn.Module] = []
    for inputs, outputs in pairwise(WIDTHS):
        modules += [layer(inputs, outputs, stream), COMPLEX_ACTIVATIONS["cardioid"](outputs)]
    return nn.Sequential(*modules[:-1])


def points(seed: int) -> tuple[Tensor, Tensor]:
    """z and sin(z) + n, complex64 (points, 1)."""
    generator = np.random.default_rng(seed)
    z = generator.uniform(-REACH, REACH, (POINTS, 2)) @ np.array([1.0, 1.0j])
    noise = generator.normal(scale=math.sqrt(0.5), size=(POINTS, 2)) @ np.array([1.0, 1.0j])
    return tuple(torch.from_numpy(values.astype(np.complex64))[:, None] for values in (z, np.sin(z) + noise))  # pyright: ignore[reportReturnType]


def gradient_norm(of: nn.Module, z: Tensor, wanted: Tensor) -> float:
    """Of half the mean squared error, by real and imaginary parts of all parameters; it is left in ``grad``."""
    of.zero_grad()
    (0.5 * torch.view_as_real(of(z) - wanted).square().sum(dim=-1).mean()).backward()
    return math.sqrt(sum(float(as_real(p.grad).square().sum()) for p in of.parameters() if p.grad is not None))


def trained_norm(layer: Layer, seed: int, steps: int = STEPS) -> float:
    """The norm after the steps."""
    of, (z, wanted) = network(layer, seed), points(seed)
    optimizer = torch.optim.Adam(of.parameters(), RATE)
    for _ in range(steps):
        gradient_norm(of, z, wanted)
        optimizer.step()
    return gradient_norm(of, z, wanted)


def main(arguments: list[str]) -> None:
    """Prints the norms' means and the tests."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gradient_norms", description="Gradient norms of complex and real networks.")
    parser.add_argument("--repetitions", type=int, default=100)
    seeds = range(parser.parse_args(arguments).repetitions)
    torch.set_num_threads(1)
    by_parts, simulated, unconstrained = (
        [trained_norm(layer, seed) for seed in seeds] for layer in (ComplexLinear, TwoMatrices, Unconstrained)
    )
    columns = {
        "complex, by conjugates (the paper's)": [norm / 2.0 for norm in by_parts],
        "complex, by real and imaginary parts": by_parts,
        "two real matrices a layer (the paper's R^2n)": simulated,
        "any real matrices": unconstrained,
    }
    sys.stdout.write("| gradient | norm | t-test against the first | against the second |\n| --- | --- | --- | --- |\n")
    first, second, *_ = columns.values()
    for name, norms in columns.items():
        tests = " | ".join(_p_value(norms, others) for others in (first, second))
        sys.stdout.write(f"| {name} | {statistics.fmean(norms):.4f} +- {statistics.stdev(norms):.4f} | {tests} |\n")


def _p_value(norms: list[float], others: list[float]) -> str:
    return "-" if norms is others else f"p = {ttest_ind(norms, others).pvalue:.2g}"


if __name__ == "__main__":
    main(sys.argv[1:])
