"""Densities: a new one is all that the routes need for a new loss, and no route tells one from another."""

from __future__ import annotations

import ast
import copy
import math
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from scipy import integrate, special

from tests.selection import thinned
from zetadp import accountants
from zetadp.accountants import densities
from zetadp.accountants.arithmetic import UNIT
from zetadp.accountants.densities import DENSITIES, LocationDensity, density_of, quadrature
from zetadp.accountants.dominating import pair_of, unsupported_reason
from zetadp.accountants.dp_accounting_events import _noise
from zetadp.accountants.largest_loss import pure_epsilon
from zetadp.accountants.leaf import Leaf
from zetadp.accountants.pairs import widened
from zetadp.accountants.routes.contour.contour import ContourAccountant
from zetadp.accountants.routes.fft.fft import FftProfile, unsupported_parts
from zetadp.accountants.routes.lattice.lattice import unsupported_parts_of_lattice
from zetadp.accountants.routes.rdp.moments import PairMoments
from zetadp.accountants.routes.rdp.rdp import RdpProfile, leaf_renyi
from zetadp.accountants.routes.single.single import SingleProfile
from zetadp.mechanisms import MECHANISMS, InvalidParameter, Laplace, PrivacyLoss, Sensitivity

NEIGHBOURS = Sensitivity(l1=1.0, adjacency="add_remove", unit="record")


def log_logistic(x):
    return -np.abs(x) - 2.0 * np.log1p(np.exp(-np.abs(x)))


@dataclass(frozen=True)
class LogisticLoss(PrivacyLoss):
    """f(x) = e^-x / (1 + e^-x)^2, shifted by ``epsilon``: smooth, and bounded by it."""

    epsilon: float

    @property
    def distance(self):
        return self.epsilon

    @property
    def gdp_mu(self):
        return None

    @property
    def pure_epsilon(self):
        return self.epsilon

    def log_delta(self, epsilon):
        value = logistic_delta(self.epsilon, epsilon)
        return math.log(value) if value > 0.0 else -math.inf

    def renyi(self, order):
        x = np.linspace(-80.0, 80.0, 400_001)
        powers = order * log_logistic(x - self.epsilon) + (1.0 - order) * log_logistic(x)
        return float(special.logsumexp(powers) + math.log(x[1] - x[0])) / (order - 1.0)


@dataclass(frozen=True)
class LogisticDensity(LocationDensity):
    loss_type = LogisticLoss
    name = "logistic"
    norm = "l1"
    has_atoms = False
    underflow = 700.0
    reach = 60.0

    def loss(self, distance):
        return LogisticLoss(distance)

    def largest_loss(self, upper, lower):
        return upper.shifts[-1] - lower.shifts[0]

    def tail(self, x, log_factor):
        return np.exp(log_factor + special.log_expit(-x)), UNIT * (16.0 + 4.0 * np.abs(x))

    def relative(self, x, shift):
        return self.moment_relative(x, shift), np.full_like(x, 16.0) + 8.0 * (np.abs(x) + abs(shift))

    def moment_relative(self, x, shift):
        return log_logistic(x - shift) - log_logistic(x)

    def log_density(self, x):
        return log_logistic(x)

    def table_nodes(self, shifts):
        return np.linspace(shifts[0] - 40.0, shifts[-1] + 40.0, 4096)

    def panel_width(self, span):
        return min(1.0, 4.0 / span)

    def moment_nodes(self, upper, lower, order, start):
        found = quadrature.panels(np.array([max(lower.shifts[0] - 60.0, start), upper.shifts[-1] + 60.0]), max(2.0, order / 4.0))
        return None if found is None else (found[0], found[1] + log_logistic(found[0]))


@dataclass(frozen=True)
class LogisticNoise:
    """As much of a mechanism as an accountant sees."""

    scale: float
    kind: str = "logistic"
    sensitivity: Sensitivity = NEIGHBOURS
    CAN_BE_SAMPLED: ClassVar[bool] = True

    @property
    def neighbours(self):
        return self.sensitivity.adjacency, self.sensitivity.unit

    def privacy_loss(self):
        return LogisticLoss(1.0 / self.scale)

    def derivation(self):
        return ()


def threshold(distance, epsilon):
    """Where the log ratio is epsilon, for |epsilon| < distance."""
    root = math.exp(0.5 * (epsilon - distance))
    return -math.log((1.0 - root) / (root * math.exp(distance) - 1.0))


def logistic_delta(distance, epsilon):
    """H at e^epsilon of f(x - distance) against f(x)."""
    if epsilon >= distance:
        return 0.0
    if epsilon <= -distance:
        return -math.expm1(epsilon)
    x = threshold(distance, epsilon)
    return float(special.expit(distance - x) - math.exp(epsilon) * special.expit(-x))


def sampled_delta(probability, distance, epsilon):
    """The larger of both orders of M = (1 - q) Q + q P against Q: both are H of the whole pair, elsewhere."""
    gamma = math.exp(epsilon)
    removed = probability * logistic_delta(distance, math.log1p((gamma - 1.0) / probability))
    rest = 1.0 - gamma * (1.0 - probability)
    added = rest * logistic_delta(distance, math.log(gamma * probability / rest)) if rest > 0.0 else 0.0
    return max(removed, added)


@pytest.fixture
def logistic(monkeypatch):
    """A leaf of the new noise, whose density the accountants know."""
    monkeypatch.setitem(DENSITIES, LogisticLoss, LogisticDensity())
    return lambda scale, probability=1.0: Leaf(probability, LogisticNoise(scale))


def test_noise_without_a_density_is_refused():
    assert unsupported_reason(Leaf(1.0, LogisticNoise(0.123))) == (
        "logistic noise is neither Gaussian nor Gaussian with Laplace nor Laplace, and no dominating pair of it is known here"
    )


@pytest.mark.parametrize("epsilon", [0.0, 0.1, 0.7, 1.4])
def test_new_noise_has_the_closed_form_of_one_release(logistic, epsilon):
    found = SingleProfile(logistic(2.0 / 3.0)).delta(epsilon)
    exact = math.log(logistic_delta(1.5, epsilon))
    assert found.log_lower <= exact + 1e-13
    assert exact - 1e-13 <= found.log_upper <= found.log_lower + 1e-9


@pytest.mark.parametrize("epsilon", [0.0, 0.02, 0.1])
def test_new_noise_is_amplified_by_sampling(logistic, epsilon):
    found = SingleProfile(logistic(1.0, 0.1)).delta(epsilon)
    exact = math.log(sampled_delta(0.1, 1.0, epsilon))
    assert found.log_lower <= exact + 1e-12
    assert exact - 1e-12 <= found.log_upper <= found.log_lower + 1e-9


@pytest.mark.parametrize("epsilon", [0.1, 1.0])
def test_new_noise_composes_on_a_lattice(logistic, epsilon):
    def integrand(x):
        loss = float(log_logistic(x - 1.0) - log_logistic(x))
        return math.exp(float(log_logistic(x - 1.0))) * logistic_delta(1.0, epsilon - loss)

    exact = math.log(sum(integrate.quad(integrand, a, a + 5.0, epsabs=1e-15)[0] for a in range(-40, 45, 5)))
    parts = {logistic(1.0): 2}
    assert unsupported_parts(parts) is None
    found = FftProfile(parts).delta(epsilon)
    assert found.log_lower <= exact + 1e-9
    assert exact - 1e-9 <= found.log_upper <= found.log_lower + 1e-4


def test_new_noise_has_renyi_divergences_and_a_largest_loss(logistic):
    # Moments of the pair itself against those of its loss: a quadrature of panels against one of equal steps.
    leaf = logistic(1.0, 0.2)
    x = np.linspace(-80.0, 80.0, 400_001)
    q = np.exp(log_logistic(x))
    ratio = 0.8 + 0.2 * np.exp(log_logistic(x - 1.0) - log_logistic(x))
    exact = max(math.log(np.trapezoid(q * ratio**3.0, x)) / 2.0, math.log(np.trapezoid(q * ratio**-2.0, x)) / 2.0)
    assert leaf_renyi(leaf, 3.0) == pytest.approx(exact, rel=1e-8)
    assert pure_epsilon(pair_of(logistic(0.5))) == 2.0
    assert RdpProfile({logistic(0.5): 3}, ()).epsilon(1e-300).upper == pytest.approx(6.0, rel=1e-12)
    assert PairMoments.of(pair_of(logistic(0.5)), 4.0).log_moment(3.0) == pytest.approx(2.0 * LogisticLoss(2.0).renyi(3.0), rel=1e-8)


def test_new_noise_has_no_event_of_dp_accounting(logistic):
    with pytest.raises(InvalidParameter, match=r"one that exists here and in dp-accounting.*logistic noise"):
        _noise(logistic(1.0))


def test_routes_without_an_answer_for_new_noise_refuse_it(logistic):
    parts = {logistic(1.0): 2}
    assert unsupported_parts_of_lattice(parts) == "only whole Laplace and local releases have all their atoms on a lattice"
    assert ContourAccountant().unsupported_parts(parts) == "no moment function of logistic is known here"


def test_a_module_of_the_package_is_found_by_itself(tmp_path, monkeypatch):
    text = f"from {__name__} import LogisticDensity\n\nDENSITY = LogisticDensity()\n"
    (tmp_path / "logistic.py").write_text(text, encoding="utf-8")
    monkeypatch.setattr(densities, "__path__", [*densities.__path__, str(tmp_path)])
    found = densities._found()
    del densities.logistic, sys.modules["zetadp.accountants.densities.logistic"]
    assert found == DENSITIES | {LogisticLoss: LogisticDensity()}


@pytest.mark.parametrize("mechanism", thinned(MECHANISMS, every=3), ids=lambda mechanism: mechanism.__name__)
def test_every_mechanisms_loss_has_a_density(mechanism):
    loss = mechanism.example().privacy_loss()
    assert density_of(loss).loss(loss.distance).distance == loss.distance


@pytest.mark.parametrize("density", DENSITIES.values(), ids=repr)
def test_densities_are_values(density):
    copied = copy.deepcopy(density)
    assert copied == density
    assert hash(copied) == hash(density)
    assert [density == other for other in DENSITIES.values()].count(True) == 1


@pytest.mark.parametrize(("loss", "density"), DENSITIES.items(), ids=lambda value: getattr(value, "__name__", ""))
def test_a_density_gives_back_the_loss_that_it_stands_for(loss, density):
    found = density.loss(0.75)
    assert type(found) is loss
    assert found.distance == 0.75


def test_pairs_of_equal_densities_share_what_is_kept():
    pair = pair_of(Leaf(1.0, Laplace(scale=1.7, sensitivity=NEIGHBOURS)))
    copied = copy.deepcopy(pair)
    assert copied is not pair
    assert widened(copied) is widened(pair)


def test_no_route_tells_densities_apart():
    folder = Path(accountants.__file__).parent
    telling = {"GAUSSIAN", "LAPLACE", "RESPONSE", *(type(density).__name__ for density in DENSITIES.values())}
    for path in sorted(folder.rglob("*.py")):
        if "densities" in path.relative_to(folder).parts:
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        # The grid makes one Gaussian release of all whole ones, and has to say so.
        allowed = {"GAUSSIAN"} if path.name == "fft.py" else set()
        assert {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)} & telling <= allowed, path
        compared = [ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Compare) and _is_of_a_family(node)]
        assert compared == [], path


def _is_of_a_family(node):
    """Whether a family itself, or its name, is compared with something."""
    sides = [node.left, *node.comparators]
    return any(isinstance(side, ast.Attribute) and ast.unparse(side).endswith((".family", ".family.name")) for side in sides)
