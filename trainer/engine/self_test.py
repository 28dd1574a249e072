r"""What a device must compute before a private training may rely on it: known answers, compared with the processor's and with float64.

A run on an accelerator tests it at its start and refuses one that fails, and its report says so; ``zetadp gpu-selftest`` runs the same on
any device, with what takes longer. It shows what was compared, not that nothing else can be wrong.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Final, final

import numpy as np
import torch
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from torch import Tensor, nn

from zetadp.mechanisms import Adjacency, ComplexGaussian, Gaussian, Sensitivity
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.mechanisms.sampling.key_stream import BLOCK, KeyStream
from zetadp.mechanisms.sampling.source import RandomStream
from zetadp.trainer.engine.environment import hardware
from zetadp.trainer.engine.gradients.clipping import ClippedGradients
from zetadp.trainer.engine.gradients.problem import Problem
from zetadp.trainer.engine.noise.torch_source import TorchSource
from zetadp.trainer.engine.products import WholeProducts
from zetadp.trainer.engine.team.distributed import launch
from zetadp.trainer.engine.team.interface import Team
from zetadp.trainer.layers import ComplexLinear, PlanarConv2d
from zetadp.trainer.layers.flat_parameters import as_real
from zetadp.trainer.layers.heads import magnitude
from zetadp.trainer.specs.execution_plan import FlatClipping
from zetadp.trainer.specs.findings.devices import Check, SelfTest

UNITS: Final = 24
BOUND: Final = 0.5
LARGEST_ERROR: Final = 1e-5
"""Of a clipped sum in float32, relative to float64's: ten times what rounding costs, and a hundredth of what TF32 does."""
LARGEST_PRODUCT_ERROR: Final = 2.0**-19
"""Of a product over 256 numbers, relative to its factors' lengths; TF32 errs by about 2^-12."""
NUMBERS: Final = 200_000
"""Numbers of noise."""
_L2 = Sensitivity(l2=1.0, adjacency=Adjacency.ADD_REMOVE, unit="record")


def examined(name: str, folder: Path) -> SelfTest:
    r"""All checks, and figures, of the device with this name; ``auto``: the accelerator where there is one.

    Args:
      folder: writable by this user alone.
    Raises:
      InvalidParameter: there is no such device.
    """
    try:
        device = torch.device(("cuda" if torch.cuda.is_available() else "cpu") if name == "auto" else name)
        described = hardware(device)
    except (RuntimeError, AssertionError) as refused:
        raise InvalidParameter("device", "one of this machine's", name) from refused
    clock = time.process_time if device.type == "cpu" else time.monotonic
    return SelfTest(device=described, checks=(*checks(device), two_processes(device, folder)), seconds=figures(device, clock))


def checks(device: torch.device) -> Iterator[Check]:
    """Those that take a few seconds at most."""
    yield _cipher()
    for check in (_noise, _products, _sums, _moves, _bits):
        yield check(device)


@lru_cache(maxsize=8)
def checked(device: torch.device) -> str:
    r"""The result for a report, in words, computed once in a process.

    Raises:
      InvalidParameter: the device fails.
    """
    found = list(checks(device))
    if failed := [f"{one.name} ({one.found})" for one in found if one.passed is False]:
        raise InvalidParameter("runtime.device", "one that passes zetadp gpu-selftest", f"{device}, where these fail: {'; '.join(failed)}")
    return f"self-test passed ({', '.join(one.name for one in found if one.passed)})"


def described(device: torch.device) -> str:
    """The hardware, and of an accelerator that its self-test passed. Raises InvalidParameter if it doesn't."""
    return f"{hardware(device)}, {checked(device)}" if device.type == "cuda" else hardware(device)


def two_processes(device: torch.device, folder: Path) -> Check:
    """Whether both get the same bits of a sum; ``folder`` is writable by this user alone."""
    name = "two processes"
    if device.type == "cuda" and torch.cuda.device_count() < 2:
        return Check(name=name, passed=None, found="this machine has one accelerator, and each process needs its own")
    right = launch(2, device, folder, _summed, device.type)
    return Check(
        name=name, passed=right, found="a sum has the same bits in both, and is exact" if right else "a sum is another in one of them"
    )


def _summed(team: Team, device: str) -> bool:
    own = torch.arange(1000, dtype=torch.float64, device=device) * (team.rank + 1)
    total = team.sum(own)
    expected = torch.arange(1000, dtype=torch.float64, device=device) * (team.size * (team.size + 1) // 2)
    wrong = team.sum(torch.tensor([float(not torch.equal(total, expected))], dtype=torch.float64, device=device))
    return wrong.item() == 0.0


def _cipher() -> Check:
    """AES-256 of NIST SP 800-38A, F.1.5, and its key stream as that of its counters."""
    key = bytes.fromhex("603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4")
    encryptor = Cipher(algorithms.AES(key), modes.ECB()).encryptor()  # noqa: S305 (single blocks, of a published vector)
    known = encryptor.update(bytes.fromhex("6bc1bee22e409f96e93d7e117393172a")).hex() == "f3eed1bdb5d2a03c064b5a7e3db181f8"
    counters = b"".join(number.to_bytes(BLOCK, "big") for number in range(1000))
    same = KeyStream(key).next(len(counters)) == encryptor.update(counters)
    found = f"AES-256 {'as' if known else 'not as'} published, 1000 blocks {'as' if same else 'not as'} counted"
    return Check(name="cipher", passed=known and same, found=found)


def _noise(device: torch.device) -> Check:
    """The noise that a device gets, and its releases with it, are the processor's."""
    expected = RandomStream.from_seed(2, "self-test").grid_normal(NUMBERS)
    drawn = TorchSource(RandomStream.from_seed(2, "self-test"), device).standard_normal((NUMBERS,))
    value = torch.randn(NUMBERS, generator=torch.Generator().manual_seed(1))
    differing = [] if np.array_equal(drawn.cpu().numpy().view(np.int64), expected.view(np.int64)) else ["numbers"]
    complex_value = value.view(torch.complex64)
    for mechanism, of in ((Gaussian(std=2.0, sensitivity=_L2), value), (ComplexGaussian(std=2.0, sensitivity=_L2), complex_value)):
        released = [
            mechanism.release(of.to(where), TorchSource(RandomStream.from_seed(1, "self-test"), where)).cpu()
            for where in (torch.device("cpu"), device)
        ]
        if not torch.equal(*released):
            differing.append(mechanism.kind)
    found = f"other bits than the processor's: {differing}" if differing else f"{NUMBERS} numbers, bit for bit"
    return Check(name="noise", passed=not differing, found=found)


def _products(device: torch.device) -> Check:
    generator = torch.Generator().manual_seed(2)
    one, other = (torch.randn(64, 256, generator=generator) for _ in range(2))
    images, filters = torch.randn(8, 16, 9, 9, generator=generator), torch.randn(16, 16, 4, 4, generator=generator)
    with WholeProducts():
        product = (one.to(device) @ other.to(device).T).cpu()
        convolved = nn.functional.conv2d(images.to(device), filters.to(device)).cpu()
    lengths = one.double().norm(dim=1)[:, None] * other.double().norm(dim=1)
    errors = [((product - one.double() @ other.double().T).abs() / lengths).max().item()]
    exact = nn.functional.conv2d(images.double(), filters.double())
    largest = nn.functional.conv2d(images.double().abs(), filters.double().abs())
    errors.append(((convolved - exact).abs() / largest).max().item())
    # NumPy's maximum, unlike Python's, is NaN where one is.
    found = f"float32 errs by 2^{np.log2(np.max([*errors, 1e-300])):.1f} at most"
    return Check(name="products", passed=_all_within(errors, LARGEST_PRODUCT_ERROR), found=found)


def _all_within(errors: Sequence[float], limit: float) -> bool:
    """Whether each error is at most the limit, which NaN isn't."""
    return all(error <= limit for error in errors)


@final
class _Magnitude(nn.Module):
    def forward(self, z: Tensor) -> Tensor:
        return magnitude(z)


def _problems() -> Iterator[tuple[str, Problem]]:
    """A network for each kind of rule, on made-up records."""
    torch_stream, made = torch.Generator().manual_seed(3), RandomStream.from_seed(1, "self-test network")
    rows, images = torch.randn(UNITS, 20, generator=torch_stream), torch.randn(UNITS, 2, 8, 8, generator=torch_stream)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(4)
        networks: Sequence[tuple[str, nn.Module, Tensor]] = (
            ("linear", nn.Sequential(nn.Linear(20, 16), nn.ReLU(), nn.Linear(16, 3)), rows),
            (
                "convolution",
                nn.Sequential(nn.Conv2d(2, 8, 3), nn.GroupNorm(2, 8), nn.ReLU(), nn.Conv2d(8, 4, 3), nn.Flatten(), nn.Linear(64, 3)),
                images,
            ),
            ("sequence", nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.Flatten(), nn.Linear(128, 3)), images.flatten(1, 2)),
            ("complex linear", nn.Sequential(ComplexLinear(10, 3, made), _Magnitude()), rows.view(torch.complex64)),
            ("planes", nn.Sequential(PlanarConv2d(1, 4, 3, made), nn.Flatten(), nn.Linear(288, 3)), images),
        )
    for name, network, features in networks:
        yield name, Problem(network, _losses, features, torch.arange(UNITS) % 3, None)


def _losses(outputs: Tensor, targets: Tensor) -> Tensor:
    return nn.functional.cross_entropy(outputs, targets, reduction="none")


def _there(problem: Problem, device: torch.device) -> tuple[ClippedGradients, dict[str, Tensor]]:
    network = problem.network.to(device)
    moved = Problem(network, problem.losses, problem.features.to(device), problem.targets.to(device), None)
    return ClippedGradients(moved, FlatClipping(bound=BOUND), UNITS), {name: value.detach() for name, value in network.named_parameters()}


def _sums(device: torch.device) -> Check:
    """Clipped sums on the device against one ordinary backward pass a record, in float64 on the processor."""
    worst: dict[str, float] = {}
    for name, problem in _problems():
        clipped, parameters = _there(problem, device)
        found = clipped.sum(parameters, torch.arange(UNITS, device=device), BOUND).total.cpu().double()
        expected = _by_loop(problem, clipped)
        worst[name] = ((found - expected).norm() / expected.norm()).item()
    kind = max(worst, key=lambda one: worst[one])
    right = _all_within(tuple(worst.values()), LARGEST_ERROR)
    return Check(name="clipped sums", passed=right, found=f"{len(worst)} networks, at most {worst[kind]:.1e} from float64 ({kind})")


def _by_loop(problem: Problem, clipped: ClippedGradients) -> Tensor:
    """Of the network that was moved to the device, which comes back: (coordinates,), float64."""
    network, features = problem.network.to("cpu"), _wide(problem.features)
    for tensor in (*network.parameters(), *network.buffers()):
        tensor.data = _wide(tensor.data)
    total = torch.zeros(clipped.layout.coordinates, dtype=torch.float64)
    for unit in range(UNITS):
        rows = slice(unit, unit + 1)
        loss = problem.losses(network(features[rows]), problem.targets[rows]).sum()
        gradients = torch.autograd.grad(loss, list(network.parameters()))
        flat = torch.cat([as_real(gradient).reshape(-1) for gradient in gradients])
        # As the margin of clipping has it.
        total += flat * min(1.0, (1.0 - 2.0**-8) * BOUND / flat.norm().item())
    return total


def _wide(tensor: Tensor) -> Tensor:
    return tensor.to(torch.complex128 if tensor.is_complex() else torch.float64)


def _moves(device: torch.device) -> Check:
    """How far one unit more or less moves a clipped sum, gradients of all sizes and ones that aren't finite among them."""
    moves = list[float]()
    for _, problem in _problems():
        scaled = problem.features * torch.logspace(-6, 6, UNITS).reshape(-1, *(1,) * (problem.features.dim() - 1))
        moved = Problem(problem.network, problem.losses, scaled, problem.targets, None)
        clipped, parameters = _there(moved, device)
        # After planning, which refuses such data.
        clipped.problem.features[0] = torch.inf
        everybody = torch.arange(UNITS, device=device)
        for unit in range(0, UNITS, 3):
            others = everybody[everybody != unit]
            sums = [clipped.sum(parameters, units, BOUND).total.double() for units in (everybody, others)]
            moves.append((sums[0] - sums[1]).norm().item() / BOUND)
    found = f"{len(moves)} units left out, at most {np.max(moves):.5f} of the bound"
    return Check(name="sensitivity", passed=_all_within(moves, 1.0), found=found)


def _bits(device: torch.device) -> Check:
    """Whether units are computed together; if not, they are one by one, which is as private and slower."""
    apart = [name for name, problem in _problems() if not _there(problem, device)[0].settle()]
    found = f"computed one by one: {', '.join(apart)}" if apart else "the same in every microbatch"
    return Check(name="bits of a unit", passed=None, found=found)


Figures = dict[str, float]


def figures(device: torch.device, seconds: Callable[[], float]) -> Figures:
    """Seconds for 10^6 numbers of noise, and for a clipped sum of each network; ``seconds`` is the clock."""

    def taken(work: Callable[[], object], repeats: int = 5) -> float:
        work()
        _wait(device)
        began = seconds()
        for _ in range(repeats):
            work()
        _wait(device)
        return (seconds() - began) / repeats

    source = TorchSource(RandomStream.from_operating_system(), device)
    found = {"10^6 numbers of noise": taken(lambda: source.standard_normal((10**6,)))}
    for name, problem in _problems():
        clipped, parameters = _there(problem, device)
        units = torch.arange(UNITS, device=device)
        found[f"clipped sum of {UNITS} units, {name}"] = taken(lambda c=clipped, p=parameters, u=units: c.sum(p, u, BOUND))
    return found


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
