from __future__ import annotations

import math
from decimal import Decimal

import mpmath
import pytest
from scipy.optimize import minimize
from scipy.stats import norm

from tests.golden.oracles import oracle_rows
from zetadp.accountants.notions import (
    KINDS,
    Advantage,
    Approximate,
    Gdp,
    Pure,
    Rdp,
    ToAdvantage,
    ToApproximate,
    ToGdp,
    ToPure,
    ToRdp,
    ToTradeOff,
    ToZcdp,
    TradeOff,
    Zcdp,
    convert,
    matrix,
)
from zetadp.accountants.notions.digits import precise
from zetadp.accountants.notions.tangents import Constraint
from zetadp.mechanisms.errors import InvalidParameter

LEVELS = [1e-50, 1e-20, 1e-6, 1e-3, 0.1, 0.5, 1.0, 3.0, 10.0, 100.0, 1e4]
DELTAS = [1e-300, 1e-12, 1e-5, 0.01, 0.3]


def value(given, to):
    return convert(given, to).value


def close(got, truth, *, above, tolerance=1e-12):
    """Within the tolerance, and never on the unsafe side."""
    truth = mpmath.mpf(truth)
    if truth == 0 or abs(truth) < mpmath.mpf(10) ** -300:
        assert 0.0 <= got <= 1e-299
        return
    error = (mpmath.mpf(got) - truth) / truth
    assert error >= 0 if above else error <= 0, mpmath.nstr(error, 5)
    assert abs(error) <= tolerance, mpmath.nstr(error, 5)


@pytest.fixture(autouse=True)
def _digits():
    with mpmath.workdps(420):
        yield


@pytest.mark.parametrize("epsilon", LEVELS)
def test_randomised_response_gives_every_level_of_pure_privacy(epsilon):
    given, e = Pure(epsilon=epsilon), mpmath.mpf(epsilon)
    p, q = 1 / (1 + mpmath.exp(-e)), 1 / (1 + mpmath.exp(e))
    close(value(given, ToAdvantage()), mpmath.tanh(e / 2), above=True)
    close(value(given, ToZcdp()), e * mpmath.tanh(e / 2), above=True)
    for at in (0.0, epsilon / 3.0, epsilon * 0.999):
        close(value(given, ToApproximate(epsilon=at if at >= 1e-50 else 0.0)), p - mpmath.exp(at if at >= 1e-50 else 0) * q, above=True)
    for order in (1.0 + 1e-9, 1.5, 2.0, 64.0, 1e4):
        a = mpmath.mpf(order)
        moment = p**a * q ** (1 - a) + q**a * p ** (1 - a)
        close(value(given, ToRdp(order=order)), mpmath.log(moment) / (a - 1), above=True)
    for alpha in (1e-300, 1e-9, 0.01, 0.5, 1.0 - 1e-9):
        a = mpmath.mpf(alpha)
        close(value(given, ToTradeOff(alpha=alpha)), max(1 - mpmath.exp(e) * a, mpmath.exp(-e) * (1 - a)), above=False)


@pytest.mark.parametrize("epsilon", [1e-20, 1e-3, 0.5, 1.0, 1.2, 3.0, 30.0, 400.0])
def test_mu_of_pure_privacy_meets_the_corner_of_randomised_response(epsilon):
    mu, e = mpmath.mpf(value(Pure(epsilon=epsilon), ToGdp())), mpmath.mpf(epsilon)
    # Phi(-mu / 2) = 1 / (1 + e^epsilon).
    truth = 2 * mpmath.findroot(lambda x: mpmath.log(mpmath.erfc(x / mpmath.sqrt(2)) / 2) + mpmath.log1p(mpmath.exp(e)), mu / 2)
    close(mu, truth, above=True)


@pytest.mark.parametrize("delta", ["1e-400", 1e-300, 1e-5, 0.3])
@pytest.mark.parametrize("epsilon", [0.0, 1e-6, 1.0, 40.0])
def test_revealing_or_randomised_response_gives_every_level_of_approximate_privacy(epsilon, delta):
    given, e, d = Approximate(epsilon=epsilon, delta=delta), mpmath.mpf(epsilon), mpmath.mpf(delta)
    p, q = 1 / (1 + mpmath.exp(-e)), 1 / (1 + mpmath.exp(e))
    advantage = d + (1 - d) * mpmath.tanh(e / 2)
    found = convert(given, ToAdvantage())
    assert mpmath.log(advantage) <= mpmath.mpf(found.log_value) <= mpmath.log(advantage) * (1 - mpmath.mpf("1e-12"))
    for at in (epsilon / 2.0, epsilon, epsilon + 1.0):
        truth = d + (1 - d) * (max(0, p - mpmath.exp(at) * q) if at < epsilon else 0)
        found = convert(given, ToApproximate(epsilon=at))
        assert mpmath.log(truth) <= mpmath.mpf(found.log_value) <= mpmath.log(truth) * (1 - mpmath.mpf("1e-12"))
    for asked in (0.35, 0.9):
        u = (mpmath.mpf(asked) - d) / (1 - d)
        truth = mpmath.log(max(1, mpmath.exp(e) - u * (1 + mpmath.exp(e))))
        close(value(given, ToApproximate(delta=asked)), truth, above=True)
    assert value(given, ToApproximate(delta=delta)) == epsilon
    assert convert(given, ToApproximate(delta="1e-500")).status == "impossible"


@pytest.mark.parametrize(("inputs", "oracle"), oracle_rows("gdp_delta"))
def test_gaussian_deltas_meet_the_oracles(inputs, oracle):
    found = convert(Gdp(mu=float(inputs["mu"])), ToApproximate(epsilon=float(inputs["eps"])))
    truth = mpmath.mpf(oracle["ln_value"])
    assert truth <= mpmath.mpf(found.log_value) <= truth + 1e-12 * max(1, abs(truth))


@pytest.mark.parametrize(("inputs", "oracle"), oracle_rows("gdp_eps"))
def test_gaussian_epsilons_meet_the_oracles(inputs, oracle):
    close(value(Gdp(mu=float(inputs["mu"])), ToApproximate(delta=float(inputs["delta"]))), oracle["value"], above=True)


@pytest.mark.parametrize(("inputs", "oracle"), oracle_rows("gdp_tradeoff"))
def test_gaussian_curves_meet_the_oracles(inputs, oracle):
    close(value(Gdp(mu=float(inputs["mu"])), ToTradeOff(alpha=float(inputs["alpha"]))), oracle["value"], above=False)


@pytest.mark.parametrize(("inputs", "oracle"), oracle_rows("rdp_to_dp"))
def test_one_order_gives_less_epsilon_than_both_published_conversions(inputs, oracle):
    found = convert(Rdp(order=float(inputs["alpha"]), value=float(inputs["rdp"])), ToApproximate(delta=float(inputs["delta"])))
    assert found.status == "exact"
    assert found.value < float(oracle["value"]["improved"]) < float(oracle["value"]["classic"])


def test_gaussian_divergences_are_exact_and_rounded_up_only_where_needed():
    assert value(Gdp(mu=1.0), ToZcdp()) == 0.5
    assert value(Gdp(mu=1.0), ToRdp(order=8.0)) == 4.0
    close(value(Gdp(mu=0.1), ToZcdp()), mpmath.mpf(0.1) ** 2 / 2, above=True, tolerance=3e-16)
    close(value(Zcdp(rho=0.1), ToRdp(order=1.1)), mpmath.mpf(0.1) * mpmath.mpf(1.1), above=True, tolerance=3e-16)


@pytest.mark.parametrize("rho", [1e-50, 1e-9, 0.01, 0.5, 3.0, 1e4, 1e50])
def test_zcdp_bounds_the_advantage_by_that_of_randomised_response(rho):
    t = mpmath.mpf(value(Zcdp(rho=rho), ToAdvantage()))
    if t < 1:
        # With v the advantage, 2 v artanh(v) = rho.
        close(2 * t * mpmath.atanh(t), rho, above=True, tolerance=1e-12 if rho < 10 else 1.0)
    assert t <= min(1.0, math.sqrt(rho / 2.0) * (1.0 + 1e-12))


@pytest.mark.parametrize("lower", [1.0 + 1e-6, 1.5, 3.0, 7.99])
def test_a_lower_order_follows_from_a_higher_one_by_randomised_response(lower):
    found = convert(Rdp(order=8.0, value=0.7), ToRdp(order=lower))

    def level(e, a):
        return mpmath.log(mpmath.cosh((2 * a - 1) * e / 2) / mpmath.cosh(e / 2)) / (a - 1)

    epsilon = mpmath.findroot(lambda e: level(e, 8) - mpmath.mpf(0.7), 0.8)
    close(found.value, level(epsilon, mpmath.mpf(lower)), above=True)
    assert found.value < 0.7


def test_a_point_and_its_mirror_image_bound_the_whole_curve():
    given = TradeOff(alpha=0.1, beta=0.7)
    low, high = mpmath.mpf(0.1), mpmath.mpf(0.7)
    truths = {
        0.05: high * (1 - mpmath.mpf(0.05)) / (1 - low),
        0.2: 1 - (1 - high) * mpmath.mpf(0.2) / low,
        0.5: low * mpmath.mpf(0.5) / (1 - high),
    }
    for alpha, truth in truths.items():
        close(value(given, ToTradeOff(alpha=alpha)), truth, above=False)
    assert value(given, ToTradeOff(alpha=0.1)) == 0.7
    assert value(given, ToTradeOff(alpha=0.7)) == pytest.approx(0.1, rel=1e-15)
    assert value(given, ToTradeOff(alpha=0.9)) == 0.0
    assert [value(TradeOff(alpha=0.7, beta=0.1), ToTradeOff(alpha=a)) for a in truths] == [
        value(given, ToTradeOff(alpha=a)) for a in truths
    ]
    close(value(given, ToAdvantage()), max(1 - high / (1 - low), (1 - low / (1 - high)) / (1 + low / (1 - high))), above=True)


def test_advantage_is_delta_at_every_epsilon():
    given = Advantage(value=0.3)
    assert [value(given, ToApproximate(epsilon=e)) for e in (0.0, 1.0, 1e4)] == [0.3] * 3
    assert value(given, ToApproximate(delta=0.3)) == 0.0
    assert convert(given, ToApproximate(delta=0.2999)).status == "impossible"
    close(value(given, ToTradeOff(alpha=0.2)), 1 - mpmath.mpf(0.3) - mpmath.mpf(0.2), above=False)


NOTHING = [Approximate(epsilon=2.0, delta=1.0), Advantage(value=1.0), TradeOff(alpha=0.3, beta=0.0), TradeOff(alpha=1.0, beta=0.0)]
PERFECT = [
    Pure(epsilon=0.0),
    Approximate(epsilon=0.0, delta=0.0),
    Zcdp(rho=0.0),
    Rdp(order=2.0, value=0.0),
    Gdp(mu=0.0),
    TradeOff(alpha=0.1, beta=0.9),
    Advantage(value=0.0),
]
TARGETS = [
    ToPure(),
    ToApproximate(epsilon=0.5),
    ToApproximate(delta=1e-5),
    ToZcdp(),
    ToRdp(order=3.0),
    ToGdp(),
    ToTradeOff(alpha=0.25),
    ToAdvantage(),
]


@pytest.mark.parametrize("to", TARGETS, ids=lambda to: to.kind)
@pytest.mark.parametrize("given", PERFECT, ids=lambda given: given.kind)
def test_perfect_privacy_is_perfect_in_every_notion(given, to):
    found = convert(given, to)
    assert (found.status, found.value) == ("exact", 0.75 if to.kind == "trade_off" else 0.0)


@pytest.mark.parametrize("given", NOTHING, ids=str)
def test_a_level_that_every_mechanism_has_says_nothing(given):
    expected = [math.inf, 1.0, math.inf, math.inf, math.inf, math.inf, 0.0, 1.0]
    assert [value(given, to) for to in TARGETS] == expected


def test_a_point_at_the_edge_says_only_that_little_is_revealed():
    given = TradeOff(alpha=0.0, beta=0.8)
    assert value(given, ToTradeOff(alpha=0.0)) == 0.8
    assert value(given, ToTradeOff(alpha=1e-9)) == 0.0
    assert value(given, ToAdvantage()) == value(given, ToApproximate(epsilon=5.0)) == 1.0
    assert convert(given, ToApproximate(delta=0.9)).status == "impossible"
    assert value(TradeOff(alpha=0.0, beta=1.0), ToAdvantage()) == 1.0


def test_floats_that_nearly_guess_blindly_are_taken_at_their_word():
    """0.3 + 0.7 is below 1 by less than a float can say of a sum: some disclosure stays."""
    assert 0.0 < value(TradeOff(alpha=0.3, beta=0.7), ToAdvantage()) < 2e-16
    assert value(TradeOff(alpha=0.1, beta=0.9), ToAdvantage()) == 0.0


EXTREMES = [
    Pure(epsilon=1e50),
    Pure(epsilon=1e-50),
    Pure(epsilon=1e4),
    Approximate(epsilon=1e50, delta="1e-999999"),
    Approximate(epsilon=1e-50, delta=1.0 - 2.0**-53),
    Zcdp(rho=1e50),
    Zcdp(rho=1e-50),
    Rdp(order=1e50, value=1e50),
    Rdp(order=1.0 + 2.0**-52, value=1e-50),
    Rdp(order=1e50, value=1e-50),
    Gdp(mu=1e50),
    Gdp(mu=1e-50),
    Gdp(mu=1e16),
    TradeOff(alpha=5e-324, beta=5e-324),
    TradeOff(alpha=0.5, beta=0.5 - 2.0**-54),
    Advantage(value=5e-324),
    Advantage(value=1.0 - 2.0**-53),
]
FAR = [
    ToPure(),
    *(ToApproximate(epsilon=e) for e in (0.0, 1e-50, 1e-6, 1.0, 1e4, 1e50)),
    *(ToApproximate(delta=d) for d in (0.0, "1e-999999", 5e-324, 1e-300, 0.5, 1.0 - 2.0**-53, 1.0)),
    ToZcdp(),
    *(ToRdp(order=a) for a in (1.0 + 2.0**-52, 2.0, 1e50)),
    ToGdp(),
    *(ToTradeOff(alpha=a) for a in (0.0, 5e-324, 1e-300, 0.5, 1.0 - 2.0**-53, 1.0)),
    ToAdvantage(),
]


@pytest.mark.parametrize("given", EXTREMES, ids=str)
def test_absurd_levels_have_exact_limits_and_never_a_nan(given):
    for to in FAR:
        found = convert(given, to)
        assert found.value >= 0.0
        assert (found.status == "impossible") == (found.counterexample is not None)
        assert (found.status == "exact") == (found.attained_by is not None)
        if found.quantity in {"delta", "beta"} or to.kind == "advantage":
            assert found.value <= 1.0
        if found.log_value is not None:
            assert found.log_value <= 0.0
            assert found.value >= math.exp(found.log_value) * (1 - 1e-12)


def test_the_matrix_says_of_every_pair_what_conversions_then_answer():
    givens = [
        Pure(epsilon=1.0), Approximate(epsilon=1.0, delta=1e-5), Zcdp(rho=0.5), Rdp(order=4.0, value=0.5), Gdp(mu=1.0),
        TradeOff(alpha=0.1, beta=0.7), Advantage(value=0.3),
    ]  # fmt: skip
    entries = {(entry.given, entry.to): entry for entry in matrix()}
    assert set(entries) == {(a, b) for a in KINDS for b in KINDS}
    for given in givens:
        for to in (ToPure(), ToApproximate(epsilon=0.5), ToZcdp(), ToRdp(order=3.0), ToGdp(), ToTradeOff(alpha=0.25), ToAdvantage()):
            found, entry = convert(given, to), entries[given.kind, to.kind]
            assert (found.status, found.formula, found.source, found.why) == (entry.status, entry.formula, entry.source, entry.why)


def test_every_section_that_is_cited_is_in_the_proof():
    from importlib.resources import files

    text = files("zetadp.accountants").joinpath("proofs", "notions.md").read_text(encoding="utf-8")
    for number in range(1, 11):
        assert f"\n## {number}. " in text


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: Zcdp(rho=1e-60), "0 or in [1e-50, 1e+50], got 1e-60"),
        (lambda: TradeOff(alpha=0.5, beta=0.6), "alpha + beta <= 1"),
        (lambda: TradeOff(alpha=1.0, beta=5e-324), "alpha + beta <= 1"),
        (lambda: TradeOff(alpha=1e-20, beta=1.0), "alpha + beta <= 1"),
        (lambda: Approximate(epsilon=1.0, delta="2"), "a number in [0, 1], like 1e-400, got '2'"),
        (ToApproximate, "requested at either an epsilon or a delta, got 'neither'"),
        (lambda: ToApproximate(epsilon=1.0, delta=0.1), "requested at either an epsilon or a delta, got 'both'"),
    ],
)
def test_what_is_out_of_range_is_refused_by_name(build, words):
    with pytest.raises((InvalidParameter, ValueError), match=None) as caught:
        build()
    assert words in str(caught.value)


def test_a_gaussian_curve_stays_below_that_of_pure_privacy():
    mu = value(Pure(epsilon=1.0), ToGdp())
    for alpha in (1e-6, 0.05, 0.268, 0.27, 0.5, 0.95):
        assert norm.cdf(norm.isf(alpha) - mu) <= value(Pure(epsilon=1.0), ToTradeOff(alpha=alpha)) * (1 + 1e-12)


@pytest.mark.parametrize("given", [Zcdp(rho=1e-50), Zcdp(rho=1e-20), Rdp(order=1.5, value=1e-40)], ids=str)
def test_delta_of_tiny_levels_is_never_above_the_advantage(given):
    advantage = value(given, ToAdvantage())
    for epsilon in (0.0, 1e-50, 1e-45, 1e-30, 1e-25, 1e-12, 1.0):
        assert value(given, ToApproximate(epsilon=epsilon)) <= advantage


@pytest.mark.parametrize("notion", [lambda level: Zcdp(rho=level), lambda level: Rdp(order=1.5, value=level)], ids=["zcdp", "rdp"])
@pytest.mark.parametrize("share", [0.7, 1.3, 6.0])
def test_narrow_levels_scale_as_their_root(notion, share):
    """Divergences of narrow pairs are quadratic forms: delta / sqrt(level) at epsilon = share sqrt(level) hardly depends on level."""
    limits = []
    for level in (1e-16, 1e-20, 1e-26, 1e-35, 1e-47):
        root = math.sqrt(level)
        found = convert(notion(level), ToApproximate(epsilon=share * root))
        assert found.status == "exact"
        back = convert(notion(level), ToApproximate(delta=mpmath.nstr(mpmath.exp(mpmath.mpf(found.log_value)), 30)))
        assert back.value == pytest.approx(share * root, rel=1e-6)
        limits.append(found.log_value - math.log(root))
    assert limits == pytest.approx([limits[-1]] * len(limits), abs=2e-6)


@pytest.mark.parametrize(
    ("rho", "epsilon", "order"),
    [(0.02876840498395757, 0.11295177053396116, 2.85005), (0.11419225868880026, 0.1813718420703904, 1.4506), (2e-8, 6.4e-5, 1800.0)],
)
def test_the_best_order_is_found_to_the_last_digits_of_delta(rho, epsilon, order):
    """A search over order and place that knows nothing of the first: any tangent is a bound, and none is lower."""
    found = convert(Zcdp(rho=rho), ToApproximate(epsilon=epsilon))
    with precise(80):

        def bound(logs):
            k = Decimal(math.exp(logs[0]))
            return float(Constraint(k, (1 + k) * Decimal(rho)).delta(Decimal(epsilon), Decimal(math.exp(logs[1])))[0].ln())

        start = [math.log(order - 1.0), math.log(math.sqrt(rho))]
        best = minimize(bound, start, method="Nelder-Mead", options={"xatol": 1e-8, "fatol": 1e-15, "maxiter": 400})
    assert found.status == "exact"
    assert best.fun - 1e-13 <= found.log_value <= best.fun + 1e-9
