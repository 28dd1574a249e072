r"""Every oracle evaluated by the project's own functions: ``python -m tests.golden.oracle_errors`` prints count and largest error by group.

An oracle is one row of the file that ``oracles.FILE`` names: a group, inputs, and one value or several by name, to 40 digits. Each group
has one function here that answers with all of a row's values; a row's value without an answer, and a group without a function, are errors.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import mpmath
import numpy as np

from tests.golden.oracles import FILE
from zetadp.accountants import Composed, Grouped, Leaf, Release, calibrate_scale, profile
from zetadp.accountants.dominating import pair_of
from zetadp.accountants.grids.hockey_stick import calls, reverse
from zetadp.accountants.routes.closed.gdp_inversion import epsilon_at, largest_mu
from zetadp.accountants.routes.rdp.rdp import epsilon_at_order, leaf_renyi
from zetadp.app.calculators.compare.finding import Finding
from zetadp.app.calculators.compare.spof import algorithm as spof
from zetadp.app.calculators.compare.spof import dp_sgd as spof_dp_sgd
from zetadp.mechanisms import ComplexGaussian, Gaussian, Sensitivity
from zetadp.mechanisms.analysis import environmental_noise
from zetadp.mechanisms.analysis.classic_gaussian import largest_classic_epsilon
from zetadp.mechanisms.analysis.spectral_noise import layers_gdp_mu, layers_l2, real_noise_variance, unnormalised_gdp_mu
from zetadp.mechanisms.conventions import per_component_from_total, total_from_per_component
from zetadp.mechanisms.noise_shape import optimal_shape
from zetadp.mechanisms.numerics.gdp import gdp_log_delta, gdp_trade_off
from zetadp.mechanisms.numerics.spectrum import LowPass
from zetadp.mechanisms.published import clt, complex_dp_federated, spectral_dp, spof_environment, zeta_dp

Inputs = Mapping[str, str]
Values = Mapping[str, float]
ALONE = "value"
"""The name of the value of a row that has only one."""

RELATIVE = 1e-12
OPTIMUM = 1e-9
OPTIMA = frozenset({"cgm_equal_mse_optimum", "cgm_general_covariance_mu", "classic_gaussian_threshold"})
"""Groups whose values are optima or roots, for which less is asked."""


@dataclass(frozen=True)
class GroupErrors:
    """What came out for one group: rows, values compared, and the largest relative error (absolute where the truth is 0)."""

    group: str
    rows: int
    values: int
    largest: float
    allowed: float


def _numbers(inputs: Inputs, *names: str) -> list[float]:
    return [float(inputs[name]) for name in names]


def _sensitivity(l2: float, l2_real: float | None = None, l2_imag: float | None = None) -> Sensitivity:
    return Sensitivity(l2=l2, l2_real=l2_real, l2_imag=l2_imag, adjacency="add_remove", unit="record")


def _gaussian(mu: float) -> Gaussian:
    return Gaussian(std=1.0, sensitivity=_sensitivity(mu))


def _parts(inputs: Inputs) -> Sensitivity:
    whole, real, imag = _numbers(inputs, "Delta", "Delta_re", "Delta_im")
    return _sensitivity(whole, min(whole, real), min(whole, imag))


def _gdp_delta(inputs: Inputs) -> Values:
    return {"ln_value": gdp_log_delta(*_numbers(inputs, "mu", "eps"))}


def _gdp_eps(inputs: Inputs) -> Values:
    mu, delta = _numbers(inputs, "mu", "delta")
    return {ALONE: epsilon_at(mu, math.log(delta)).upper}


def _gaussian_calibration(inputs: Inputs) -> Values:
    epsilon, delta, l2 = _numbers(inputs, "eps", "delta", "Delta")
    noise = l2 * calibrate_scale(Release(mechanism=Gaussian(std=l2, sensitivity=_sensitivity(l2))), epsilon=epsilon, delta=delta)
    return {"mu": largest_mu(epsilon, math.log(delta)), "sigma_component": noise, "sigma_total": total_from_per_component(noise)}


def _zeta_dp_delta(inputs: Inputs) -> Values:
    l2, sigma, epsilon = _numbers(inputs, "Delta", "sigma", "eps")
    noise = ComplexGaussian(std=per_component_from_total(sigma), sensitivity=_sensitivity(l2))
    return {
        "correct": math.exp(noise.privacy_loss().log_delta(epsilon)),
        "published_overclaims": math.exp(zeta_dp.theorem_1_log_delta(l2, sigma, epsilon)),
    }


def _rdp_complex_gaussian(inputs: Inputs) -> Values:
    order, l2, sigma = _numbers(inputs, "alpha", "Delta", "sigma")

    def renyi(std: float) -> float:
        return ComplexGaussian(std=std, sensitivity=_sensitivity(l2)).privacy_loss().renyi(order)

    return {"per_component_sigma": renyi(sigma), "N_C_total_sigma_correct": renyi(per_component_from_total(sigma))}


def _rdp_to_dp(inputs: Inputs) -> Values:
    order, renyi, delta = _numbers(inputs, "alpha", "rdp", "delta")
    return {"classic": spectral_dp.corollary_2_noise_epsilon(order, renyi, delta), "improved": epsilon_at_order(order, renyi, delta)}


def _gdp_composition(inputs: Inputs) -> Values:
    events = tuple(Release(mechanism=_gaussian(float(mu))) for mu in inputs["mus"].split(","))
    return {ALONE: profile(Composed(events=events)).gdp_mu or math.nan}


def _gdp_group(inputs: Inputs) -> Values:
    event = Grouped(size=int(inputs["k"]), unit="person", event=Release(mechanism=_gaussian(float(inputs["mu"]))))
    return {ALONE: profile(event).gdp_mu or math.nan}


def _noncircular(inputs: Inputs) -> Values:
    std, rho = _numbers(inputs, "sigma_component", "rho")
    printed = complex_dp_federated.theorem_1_mu(*_numbers(inputs, "Delta", "Delta_re", "Delta_im"), std, rho)
    noise = ComplexGaussian(std=std, correlation=rho, sensitivity=_parts(inputs))
    return {"published": printed, "tight": noise.privacy_loss().mu}


def _general_covariance(inputs: Inputs) -> Values:
    std_real, std_imag = (math.sqrt(variance) for variance in _numbers(inputs, "v_re", "v_im"))
    correlation = float(inputs["cov"]) / (std_real * std_imag)
    noise = ComplexGaussian(std_real=std_real, std_imag=std_imag, correlation=correlation, sensitivity=_parts(inputs))
    return {ALONE: noise.privacy_loss().mu}


def _equal_error(inputs: Inputs) -> Values:
    total = math.sqrt(float(inputs["V"]))
    shape = optimal_shape(_parts(inputs))
    small, big = sorted(std**2 for std in shape.stds(total))
    return {
        "mu_opt": shape.mechanism(total).privacy_loss().mu,
        "mu_circular": shape.circular_mu_times_total_std / total,
        "v_big": big,
        "v_small": small,
    }


def _spectral_1d(inputs: Inputs) -> Values:
    length, kept = int(inputs["N"]), int(inputs["K"])
    low_pass = LowPass((length,), (kept,))
    return {
        "kept_bins": low_pass.kept_dimensions,
        "hermitian_ratio": low_pass.variance_ratio,
        "published": spectral_dp.proposition_3_variance_ratio(length, kept),
        "literal_mask_hermitian": low_pass.one_sided_variance_ratio,
        "real_noise_var_n0": real_noise_variance(low_pass, (0,)),
        "real_noise_var_n1": real_noise_variance(low_pass, (1,)),
    }


def _spectral_2d(inputs: Inputs) -> Values:
    shape, kept = (int(inputs["N1"]), int(inputs["N2"])), (int(inputs["K1"]), int(inputs["K2"]))
    low_pass = LowPass(shape, kept)
    return {
        "kept_bins": low_pass.kept_dimensions,
        "hermitian_ratio": low_pass.variance_ratio,
        "published": spectral_dp.corollary_1_variance_ratio(shape, kept),
    }


def _per_layer(inputs: Inputs) -> Values:
    clips, sigma = tuple(float(clip) for clip in inputs["C_l"].split(",")), float(inputs["sigma"])
    total = layers_l2(clips)
    return {
        "C": total,
        "mu_joint": layers_gdp_mu(clips, (sigma * total,) * len(clips)),
        "mu_if_per_layer_noise": layers_gdp_mu(clips, tuple(sigma * clip for clip in clips)),
    }


def _fft_normalisation(inputs: Inputs) -> Values:
    length = int(inputs["N"])
    return {ALONE: unnormalised_gdp_mu(LowPass((length,), (length,)), float(inputs["sigma"]))}


def _found(published: tuple[Finding, ...], row: str, part: str = "") -> Finding:
    (only,) = [each for each in published if each.erratum == row and part in each.quantity]
    return only


def _spof(**changes: object) -> spof.SpofComparisonAnswer:
    return spof.compare_spof(spof.SpofComparison.model_validate(_example_of(spof.SpofComparison) | changes))


def _dp_sgd(**changes: object) -> Any:
    return spof_dp_sgd.compare_dp_sgd_laplace(
        spof_dp_sgd.DpSgdLaplaceComparison.model_validate(_example_of(spof_dp_sgd.DpSgdLaplaceComparison) | changes)
    )


def _example_of(model: Any) -> dict[str, object]:
    return dict(model.model_config["json_schema_extra"]["examples"][0])


def _spof_sensitivity(inputs: Inputs) -> Values:
    n, a, c = int(inputs["n"]), float(inputs["a"]), float(inputs["c"])
    answer = _spof(dimension=n, expansion_point=a, stabilisation=c)
    sgd = _found(_dp_sgd(dimension=n, expansion_point=a, clipping_bound=1e9).published, "S27", "unclipped")
    derivatives = _found(answer.published, "S25", "(18) of the six derivatives")
    found = {
        "published_eq58_per_feature": derivatives.printed,
        "corrected_eq58_per_feature": derivatives.proven,
        "tight_eq17_per_feature_separate_k": _found(answer.published, "S25", "largest move").proven,
        "correct_gradient_relevant": _found(answer.published, "S26").proven,
        "correct_with_constant_powers_of_z": answer.l1.with_constant_in_powers_of_z,
        "published_hat": _found(answer.published, "S11", "all printed coefficients").printed,
        "published_bar": _found(answer.published, "S5", "private coefficients").printed,
        "correct_for_published_loss_excl_const": _found(answer.published, "S11", "printed loss at z + c, without").proven,
        "correct_for_published_loss_incl_const": _found(answer.published, "S11", "printed loss at z + c, with its").proven,
        "published_sgd_unclipped": sgd.printed,
        "correct_sgd_unclipped": sgd.proven,
        "valid_triangle_sgd_unclipped": float(sgd.derivation[0].value),
    }
    return {name: math.nan if value is None else value for name, value in found.items()}


def _spof_clipped(inputs: Inputs) -> Values:
    answer = _dp_sgd(dimension=int(inputs["n"]), expansion_point=0.0, clipping_bound=float(inputs["C"]))
    printed = _found(answer.published, "S28", "l1 sensitivity").printed
    return {"tight": answer.l1, "published_branch_ge_C": math.nan if printed is None else printed}


def _spof_epsilon(inputs: Inputs) -> Values:
    published = _spof(stabilisation=0.0, releases=1, epsilon=float(inputs["eps"])).published
    found = {
        "published_coeffs": _found(published, "S7", "as printed").proven,
        "correct_coeffs": _found(published, "S7", "right loss").proven,
    }
    return {name: math.nan if value is None else value for name, value in found.items()}


def _spof_b(inputs: Inputs) -> Values:
    return {ALONE: math.exp(environmental_noise.log_multiplier(*_numbers(inputs, "D", "h")))}


def _spof_b_distribution(inputs: Inputs) -> Values:
    x, h, std = _numbers(inputs, "x", "h", "sigma_tilde")
    return {
        "y": math.exp(environmental_noise.log_odds_shift(x, h)),
        "cdf": math.exp(environmental_noise.log_cdf(x, h, std)),
        "pdf": math.exp(environmental_noise.log_pdf(x, h, std)),
        "published_y_wrong": spof_environment.inverse(x, h),
        "published_cdf_wrong": spof_environment.cdf(x, h, std),
    }


def _all_below_one(inputs: Inputs) -> Values:
    h, std = _numbers(inputs, "h", "sigma_tilde")
    count = int(inputs["D"])
    log_value = environmental_noise.log_probability_all_below_one(int(inputs["l"]), count, h, std)
    return {ALONE: math.exp(log_value), "upper_bound": 0.5**count}


def _one_step(inputs: Inputs) -> Values:
    q, std, epsilon = _numbers(inputs, "q", "s", "eps")
    pair = pair_of(Leaf(probability=q, mechanism=Gaussian(std=std, sensitivity=_sensitivity(1.0))))
    at = np.array([epsilon])
    return {"remove": float(calls(pair, at).upper[0]), "add": float(calls(reverse(pair), at).upper[0])}


def _sampled_renyi(inputs: Inputs) -> Values:
    q, std, order = _numbers(inputs, "q", "s", "alpha")
    return {ALONE: leaf_renyi(Leaf(probability=q, mechanism=Gaussian(std=std, sensitivity=_sensitivity(1.0))), order)}


def _limit(inputs: Inputs) -> Values:
    numbers = _numbers(inputs, "q", "s", "T")
    return {"mu_poisson": clt.clt_mu_poisson(*numbers), "mu_uniform": clt.clt_mu_uniform(*numbers)}


EVALUATED: Mapping[str, Callable[[Inputs], Values]] = {
    "gdp_delta": _gdp_delta,
    "gdp_eps": _gdp_eps,
    "gaussian_calibration": _gaussian_calibration,
    "zeta_dp_delta": _zeta_dp_delta,
    "rdp_complex_gaussian": _rdp_complex_gaussian,
    "rdp_to_dp": _rdp_to_dp,
    "gdp_tradeoff": lambda inputs: {ALONE: gdp_trade_off(*_numbers(inputs, "mu", "alpha"))},
    "gdp_composition": _gdp_composition,
    "gdp_group": _gdp_group,
    "cgm_noncircular_mu": _noncircular,
    "cgm_general_covariance_mu": _general_covariance,
    "cgm_equal_mse_optimum": _equal_error,
    "spectral_1d": _spectral_1d,
    "spectral_2d": _spectral_2d,
    "per_layer": _per_layer,
    "fft_normalisation": _fft_normalisation,
    "classic_gaussian_threshold": lambda inputs: {ALONE: largest_classic_epsilon(float(inputs["delta"]))},
    "spof_sensitivity": _spof_sensitivity,
    "spof_dpsgd_clipped": _spof_clipped,
    "spof_actual_eps": _spof_epsilon,
    "spof_b": _spof_b,
    "spof_b_distribution": _spof_b_distribution,
    "spof_Pr_bmax_lt_1": _all_below_one,
    "subsampled_gaussian_one_step": _one_step,
    "subsampled_gaussian_rdp_integer": _sampled_renyi,
    "gdp_clt_approximation_NOT_A_BOUND": _limit,
}


def truths(row: Mapping[str, Any]) -> Mapping[str, str]:
    """A row's values by name; where it has its logarithm, that stands for a value that may be below all floats."""
    if "ln_value" in row:
        return {"ln_value": row["ln_value"]}
    value = row["value"]
    return {name: text for name, text in value.items() if text is not None} if isinstance(value, dict) else {ALONE: value}


def error_of(computed: float, truth: str) -> float:
    """Relative error, to 40 digits; absolute where the truth is 0."""
    with mpmath.workdps(40):
        exact = mpmath.mpf(truth)
        return float(abs(mpmath.mpf(computed) - exact) / (abs(exact) or 1))


def rows() -> list[dict[str, Any]]:
    """All oracles of the file."""
    return json.loads(FILE.read_text(encoding="utf-8"))["oracles"]


def errors() -> Iterator[GroupErrors]:
    """One line a group, in the file's order. Raises KeyError for a group or value that nothing here answers."""
    by_group: dict[str, list[dict[str, Any]]] = {}
    for row in rows():
        by_group.setdefault(row["group"], []).append(row)
    for group, members in by_group.items():
        found = []
        for row in members:
            computed = EVALUATED[group](row["inputs"])
            found += [error_of(computed[name], truth) for name, truth in truths(row).items()]
        allowed = OPTIMUM if group in OPTIMA else RELATIVE
        yield GroupErrors(group, len(members), len(found), max(found), allowed)


def table() -> list[str]:
    """The report's lines."""
    found = list(errors())
    counts = f"{sum(each.rows for each in found):>6}{sum(each.values for each in found):>8}"
    total = f"{'all':<36}{counts}{max(each.largest for each in found):>15.2e}"
    lines = [f"{each.group:<36}{each.rows:>6}{each.values:>8}{each.largest:>15.2e}{each.allowed:>10.0e}" for each in found]
    return [f"{'group':<36}{'rows':>6}{'values':>8}{'largest error':>15}{'allowed':>10}", *lines, total]


if __name__ == "__main__":
    sys.stdout.write("\n".join(table()) + "\n")
