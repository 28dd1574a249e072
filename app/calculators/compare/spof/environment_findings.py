r"""The SPOF paper's statements on environmental noise, each next to what is proven about the same quantity."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

from zetadp.app.calculators.compare.finding import Counterexample, Finding, finding
from zetadp.mechanisms import Step
from zetadp.mechanisms.analysis import environmental_noise as proven
from zetadp.mechanisms.published import spof_environment as published

_PROOF = "proofs/environmental_noise.md"
_GIVEN = "given"


@final
@dataclass(frozen=True)
class Environment:
    """The numbers of one request, in the paper's words: h, sigma, |W|_2, n, l, |D|, epsilon, and a public b."""

    h: float
    noise_std: float
    weight_norm: float
    features: int
    units: int
    samples: int
    epsilon: float
    b: float

    @property
    def std(self) -> float:
        """sigma-tilde, the deviation of D."""
        return proven.effective_std(self.noise_std, self.weight_norm)


def all_findings(environment: Environment) -> tuple[Finding, ...]:
    """Every statement, in the order of the errata."""
    return (
        _factor_of_third_coefficient(environment),
        _noiseless_factor(environment),
        _sensitivity(environment),
        _shrunken_noise(environment),
        _inverse(environment),
        _mass(environment),
        _variance(environment),
        _largest_factor(environment),
        _sum_of_factors(environment),
    )


def _under_noise(environment: Environment, printed: float) -> float | None:
    """The statements are about noisy inputs (n_j != 0): without noise they say nothing."""
    return printed if environment.noise_std > 0.0 else None


def _step(symbol: str, value: float, formula: str, source: str = _GIVEN) -> Step:
    return Step(symbol=symbol, value=float(value), formula=formula, source=source)


def _factor_of_third_coefficient(environment: Environment) -> Finding:
    b = environment.b
    return finding(
        "factor on the coefficient of (z - t/b)^2 under noise",
        "spof",
        "Theorem 1 (13), (44)",
        printed=b,
        printed_formula="alpha_3 becomes b_j alpha_3",
        proven=b * b,
        proven_formula="alpha_3 becomes b_j^2 alpha_3",
        stronger="neither",
        erratum="S19",
        note="The paper's own (42) has f~^(r) = b_j^r f^(r); (44) drops the square.",
        derivation=(_step("b", b, _GIVEN), _step("b^2", b * b, "(b (z - t/b))^2 = b^2 (z - t/b)^2", "(38), (42)")),
        counterexample=_LOSS_UNDER_NOISE,
    )


def _noiseless_factor(environment: Environment) -> Finding:
    units = environment.units
    return finding(
        "b_j without noise, the baseline of a reduction",
        "spof",
        "(36), (39), Appendix C.II",
        printed=published.NOISELESS_MULTIPLIER,
        printed_formula="less noise than noiseless inputs need if b_j < 1",
        proven=float(units),
        proven_formula="b_j = sum over l units of b_{j,r} = l where every b_{j,r} = 1",
        stronger="neither",
        erratum="S20",
        note="The same data without noise have b_j = l and t chosen so that b_j z - t = z: b_j isn't a change of scale, and b_j < 1 is "
        "no reduction of anything.",
        derivation=(_step("l", units, _GIVEN), _step("b_j", units, "sum of l ones", "(39)")),
    )


def _sensitivity(environment: Environment) -> Finding:
    n, b = environment.features, environment.b
    true = proven.coefficient_sensitivity(n, b)
    printed = published.sensitivity(n, b)
    return finding(
        "l1 sensitivity of the coefficients under noise, for a public b",
        "spof",
        "Appendix C.II, Proposition 4",
        printed=printed,
        printed_formula="b 3 n / 2",
        proven=true,
        proven_formula="n (b + b^2 / 2)",
        stronger="smaller",
        erratum="S20",
        note="Replace-one, x in [0, 1]^n. Laplace noise of scale (b 3 n / 2) / epsilon on each coefficient then gives epsilon (2 + b) / 3.",
        derivation=(
            _step("n", n, _GIVEN),
            _step("b", b, "given, or l, its value without noise"),
            _step("epsilon_true", environment.epsilon * (2.0 + b) / 3.0, "epsilon (2 + b) / 3, with the printed noise", _PROOF),
            _step("Delta", true, "n (b |d alpha_2| + b^2 |d alpha_3|), |d alpha_2| = 1, |d alpha_3| = 1/2", _PROOF),
        ),
    )


def _shrunken_noise(environment: Environment) -> Finding:
    constant = environment.std == 0.0
    largest = float(environment.units) if constant else environment.units / environment.h if environment.h > 0.0 else math.inf
    proven_epsilon = environment.epsilon * (2.0 + environment.units) / 3.0 if constant else math.inf
    return finding(
        "epsilon of the coefficients with noise of scale b_j Delta / epsilon, b_j of the record's own",
        "spof",
        "Appendix C.II (30), Proposition 4, Remark 1",
        printed=_under_noise(environment, environment.epsilon),
        printed_formula="epsilon",
        proven=proven_epsilon,
        proven_formula="epsilon (2 + l) / 3: every b_j is l here, a public number"
        if constant
        else "no epsilon: the log density ratio grows without bound",
        stronger="smaller",
        erratum="S21",
        note="b_j depends on the record through h(x), so the scale itself tells records apart; averaged over the environment too, since "
        "the largest b is 1/h(x). Only where the noise or the weights are 0 it doesn't.",
        derivation=(
            _step(
                "sup b_j",
                largest,
                "l where b = 1, else l / h: what a public scale would have to cover at this h; unbounded over records",
                _PROOF,
            ),
            _step("its sensitivity", proven.coefficient_sensitivity(environment.features, largest), "n (b + b^2 / 2) at sup b_j", _PROOF),
            _step(
                "epsilon_true",
                proven_epsilon,
                "epsilon Delta / (b 3 n / 2) at b = l" if constant else "sup over q of |q| |1/b' - 1/b| / scale, for b != b'",
                _PROOF,
            ),
        ),
        counterexample=None if constant else _SHRUNKEN,
    )


def _inverse(environment: Environment) -> Finding:
    x, h, std = 0.5, environment.h, environment.std
    shift = proven.log_odds_shift(x, h)
    return finding(
        "the e^D that makes b = 1/2",
        "spof",
        "(50), (51), (53)",
        printed=published.inverse(x, h),
        printed_formula="y = x / (1 - h x + h)",
        proven=math.exp(shift),
        proven_formula="y = x (1 - h) / (1 - h x), 0 < x < 1/h",
        stronger="neither",
        erratum="S22",
        note="Put y into x = y / (1 + h (y - 1)): only the second gives x back. Distribution and density follow the inverse; see law.at.",
        derivation=(
            _step("h", h, _GIVEN),
            _step("Pr[b <= 1/2]", math.exp(proven.log_cdf(x, h, std)), "Phi(ln y / effective_std)", _PROOF),
            _step("printed Pr[b <= 1/2]", published.cdf(x, h, std), "Phi(ln y / effective_std) with the printed y", "(50)"),
            _step("y", math.exp(shift), "x (1 - h) / (1 - h x) at x = 1/2", _PROOF),
        ),
        counterexample=_INVERSE,
    )


def _mass(environment: Environment) -> Finding:
    h, std = environment.h, environment.std
    return finding(
        "probability that the density of b gives to (0, 1/h)",
        "spof",
        "(53)",
        printed=published.mass_on_support(h, std),
        printed_formula="the printed density integrates to Phi(-2 ln h / effective_std) there",
        proven=1.0,
        proven_formula="b < 1/h always",
        stronger="neither",
        erratum="S22",
        note="The rest lies on [1/h, 1 + 1/h), where b can't be.",
        derivation=(
            _step("h", h, _GIVEN),
            _step("effective_std", std, "noise_std weight_norm", _PROOF),
            _step("y at 1/h", math.inf if h == 0.0 else h**-2.0, "x / (1 - h x + h) at x = 1/h", "(50)"),
            _step("Pr[b < 1/h]", 1.0, "b = 1 / ((1 - h) e^-D + h) < 1/h", _PROOF),
        ),
    )


def _variance(environment: Environment) -> Finding:
    sigma, norm = environment.noise_std, environment.weight_norm
    return finding(
        "Var(W . n)",
        "spof",
        "Appendix F.II",
        printed=published.variance_of_weighted_noise(sigma, norm),
        printed_formula="sigma^2 |W|_2",
        proven=environment.std**2,
        proven_formula="sigma^2 |W|_2^2",
        stronger="neither",
        erratum="S23",
        note="Variances of independent terms add: sigma^2 times the sum of the squared weights.",
        derivation=(
            _step("sigma", sigma, _GIVEN),
            _step("|W|_2", norm, "given, or the root of the summed squares"),
            _step("effective_std", environment.std, "sigma |W|_2", _PROOF),
            _step("Var(W . n)", environment.std**2, "effective_std^2", _PROOF),
        ),
    )


def _largest_factor(environment: Environment) -> Finding:
    units, samples, h, std = environment.units, environment.samples, environment.h, environment.std
    log_true = proven.log_probability_all_below_one(units, samples, h, std)
    return finding(
        "ln Pr[b_max < 1]",
        "spof",
        "Figure 5, Remark 2, Proposition 4",
        printed=_under_noise(environment, math.log(published.CLAIMED_PROBABILITY)),
        printed_formula="ln 0.5: Pr[b_max < 1] >= 0.5 for noise large enough",
        proven=log_true,
        proven_formula="|D| ln F(1/l), at most -|D| ln 2",
        stronger="larger",
        erratum="S24",
        note="b_max < 1 needs every factor below 1/l <= 1, hence every D below 0, which has probability 1/2 each, for every h and sigma.",
        derivation=(
            _step("|D|", samples, _GIVEN),
            _step("l", units, _GIVEN),
            _step(
                "ln F(1/l)", proven.log_probability_all_below_one(units, 1, h, std), "ln Phi(ln((1 - h) / (l - h)) / effective_std)", _PROOF
            ),
            _step("bound", -samples * math.log(2.0), "-|D| ln 2, for every h and noise", _PROOF),
            _step("ln Pr[b_max < 1]", log_true, "|D| ln F(1/l)", _PROOF),
        ),
        counterexample=_TWO_SAMPLES,
    )


def _sum_of_factors(environment: Environment) -> Finding:
    units = environment.units
    bounds = proven.log_probability_sum_below_one(units, environment.h, environment.std)
    return finding(
        "ln Pr[b_j < 1]",
        "spof",
        "Proposition 4",
        printed=_under_noise(environment, math.log(published.CLAIMED_PROBABILITY)),
        printed_formula="ln 0.5: Pr[b_j < 1] >= 0.5",
        proven=bounds.log_upper,
        proven_formula="at most -l ln 2 for independent units; below ln(1/2) for any weights once l >= 2; ln(1/2) exactly for l = 1",
        stronger="larger",
        erratum="S24",
        note="b_j, a sum of positive factors, is below 1 only where each of them is: where every D is below 0.",
        derivation=(
            _step("l", units, _GIVEN),
            _step("lower bound", bounds.log_lower, "l ln F(1/l)", _PROOF),
            _step("upper bound", bounds.log_upper, "-l ln 2 (equal to the lower for l = 1)", _PROOF),
        ),
    )


def _loss_under_noise() -> Counterexample:
    x, z, b, t = 1.0, 1.0, 2.0, 0.0
    moved = b * z - t
    polynomial = math.log(2.0) + (0.5 - x) * moved + (0.5 * x - 0.25) * moved**2
    return Counterexample(
        description="One feature x = 1, one unit whose output the noise doubles: z = 1 becomes 2.",
        steps=(
            _step("z^", moved, "b z - t with b = 2, t = 0", "(38)"),
            _step("L~(z^)", polynomial, "ln 2 + (1/2 - x) z^ + (x/2 - 1/4) z^^2", "(12)"),
            _step("printed", published.noisy_loss(x, z, b, t), "ln 2 + b (1/2 - x)(z - t/b) + b (x/2 - 1/4)(z - t/b)^2", "(13)"),
        ),
    )


def _shrunken() -> Counterexample:
    low, high, d, scale = 0.3, 0.7, 1.0, 1.5
    b, other = math.exp(proven.log_multiplier(d, low)), math.exp(proven.log_multiplier(d, high))
    ratios = tuple(
        _step(
            f"log ratio at q = {q:g}",
            proven.log_ratio_of_scaled_releases(q, b, other, scale),
            "|q| (1/b' - 1/b) / scale + ln(b'/b)",
            _PROOF,
        )
        for q in (10.0, 1e3, 1e6)
    )
    return Counterexample(
        description="The coefficient of a feature that two records share at x = 1/2: 0 for both. Their other features give "
        "them the hidden outputs h = 0.3 and h' = 0.7. One unit, the same noise D = 1, epsilon = 1, and 1.5 for the scale without noise.",
        steps=(
            _step("b", b, "e^D / (1 + h (e^D - 1))", "(34)"),
            _step("b'", other, "e^D / (1 + h' (e^D - 1))", "(34)"),
            *ratios,
        ),
    )


def _inverse_by_hand() -> Counterexample:
    h, x = 0.5, 0.5

    def back(y: float) -> float:
        return y / (1.0 + h * (y - 1.0))

    y = math.exp(proven.log_odds_shift(x, h))
    return Counterexample(
        description="h = 1/2, x = 1/2: put y back into x = y / (1 + h (y - 1)).",
        steps=(
            _step("printed y", published.inverse(x, h), "x / (1 - h x + h)", "(50)"),
            _step("x from it", back(published.inverse(x, h)), "y / (1 + h (y - 1))", "(49)"),
            _step("y", y, "x (1 - h) / (1 - h x)", _PROOF),
            _step("x from it", back(y), "y / (1 + h (y - 1))", "(49)"),
        ),
    )


def _two_samples() -> Counterexample:
    single = math.exp(proven.log_probability_all_below_one(1, 1, 0.5, 1.0))
    return Counterexample(
        description="One hidden unit and two samples: b_max is the larger of two factors, each with median 1.",
        steps=(
            _step("Pr[b < 1]", single, "Pr[D < 0]", _PROOF),
            _step("Pr[b_max < 1]", math.exp(proven.log_probability_all_below_one(1, 2, 0.5, 1.0)), "Pr[D < 0]^2, for every sigma", _PROOF),
        ),
    )


_LOSS_UNDER_NOISE = _loss_under_noise()
_SHRUNKEN = _shrunken()
_INVERSE = _inverse_by_hand()
_TWO_SAMPLES = _two_samples()
