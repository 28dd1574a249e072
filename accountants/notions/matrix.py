r"""All 49 ordered pairs of notions: status, formula, source and reason. The words of every answer come from here."""

from __future__ import annotations

from functools import cache
from typing import final

from zetadp.accountants.notions.answer import PROOF
from zetadp.accountants.notions.values import KINDS, Kind, Status
from zetadp.mechanisms.base import Value


@final
class PairOfNotions(Value):
    """What one notion says about another, for levels that are neither zero nor empty.

    Attributes:
      status: of the conversion if ``otherwise`` doesn't apply.
      otherwise: the points or numbers for which the status differs, and why; null if there are none.
    """

    given: Kind
    to: Kind
    status: Status
    formula: str
    source: str
    why: str
    otherwise: str | None


_SAME = ("exact", "the same level", "definition", "Some mechanism has exactly this level.", None)
_RR = "Randomised response has it, and every eps-DP mechanism is a function of its output."
_KOV = "Kairouz, Oh and Viswanath 2015, Theorem 2.1; "
_REVEALS = "A mechanism may reveal the record with positive probability, and its loss there is infinite."
_BINARY = (
    "Merging outcomes to an event and its complement keeps this number and only lowers divergences, so a pair of two outputs attains it."
)
_NUMERIC = (
    "a bound where the level is so extreme that floats can't find the best order (order * eps > 1e8, or a target below 1e-9 of eps), "
    "or the value leaves their range"
)
_TAIL = "Outputs with a heavy tail have this order's moment and no higher one."
_GAUSSIAN = "The Gaussian mechanism has it, and no mu-GDP mechanism is easier to test."
_UNBOUNDED = "The Gaussian mechanism has the given level, and its privacy loss exceeds every epsilon with positive probability."

Row = tuple[Status, str, str, str, str | None]

_PURE: dict[Kind, Row] = {
    "pure": _SAME,
    "approximate": (
        "exact",
        "delta(e) = (e^eps - e^e) / (1 + e^eps) for e < eps, else 0; eps(d) = log(e^eps - d (1 + e^eps))",
        _KOV + f"{PROOF}, section 2",
        _RR,
        None,
    ),
    "zcdp": (
        "exact",
        "rho = eps tanh(eps / 2)",
        f"{PROOF}, section 2; Bun and Steinke 2016, Proposition 1.4, has eps^2 / 2",
        "The Renyi divergence of randomised response divided by the order falls in the order; this is its limit at order 1.",
        None,
    ),
    "rdp": (
        "exact",
        "log(cosh((2 a - 1) eps / 2) / cosh(eps / 2)) / (a - 1)",
        f"{PROOF}, section 2; Mironov 2017, Proposition 5",
        _RR,
        None,
    ),
    "gdp": (
        "exact",
        "mu = 2 Phi^-1(e^eps / (1 + e^eps))",
        f"{PROOF}, section 4; Dong, Roth and Su 2022",
        "The convex curve of mu meets the two lines of randomised response at their corner and at both ends, so it lies below them.",
        None,
    ),
    "trade_off": ("exact", "beta = max(1 - e^eps alpha, e^-eps (1 - alpha))", _KOV + "Wasserman and Zhou 2010, Theorem 2.4", _RR, None),
    "advantage": ("exact", "tanh(eps / 2)", _KOV + f"{PROOF}, section 2", _RR, None),
}
_APPROXIMATE: dict[Kind, Row] = {
    "approximate": (
        "exact",
        "delta' = delta + (1 - delta) (e^eps - e^e) / (1 + e^eps) for e < eps, else delta; "
        "eps' = log(e^eps - u (1 + e^eps)), u = (delta' - delta) / (1 - delta)",
        _KOV + f"{PROOF}, section 3",
        "Revealing with probability delta, else randomised response, has it and dominates.",
        "impossible: epsilon at a delta below the given one, since the record may be revealed with the given probability",
    ),
    "trade_off": (
        "exact",
        "beta = max(0, 1 - delta - e^eps alpha, e^-eps (1 - delta - alpha))",
        _KOV + "Dong, Roth and Su 2022, Proposition 2.5",
        "Revealing with probability delta, else randomised response, has this curve.",
        None,
    ),
    "advantage": (
        "exact",
        "delta + (1 - delta) tanh(eps / 2)",
        _KOV + f"{PROOF}, section 3",
        "Revealing with probability delta, else randomised response, has it and dominates.",
        None,
    ),
}
_ZCDP: dict[Kind, Row] = {
    "pure": ("impossible", "none", f"{PROOF}, section 5", _UNBOUNDED, None),
    "approximate": (
        "exact",
        "sup of p - e^eps q over pairs (p, q) of two outputs with rho-zCDP; least tangent over all orders",
        f"{PROOF}, sections 6 and 7; Asoodeh et al. 2021 for one order; Canonne, Kamath and Steinke 2020, Proposition 12, is looser",
        _BINARY,
        "impossible at delta = 0; " + _NUMERIC,
    ),
    "zcdp": _SAME,
    "rdp": ("exact", "order * rho", "Bun and Steinke 2016, Definition 1.1", "The Gaussian mechanism with mu^2 = 2 rho has it.", None),
    "gdp": (
        "bound",
        "mu >= 2 Phi^-1(e^eps / (1 + e^eps)) with eps tanh(eps / 2) = rho; the bound is the largest over cells of events",
        f"{PROOF}, section 10",
        "The value is proved, and randomised response has a smaller mu: whether any mechanism lies between the two isn't known.",
        None,
    ),
    "trade_off": (
        "exact",
        "inf of 1 - p over pairs (p, alpha) of two outputs with rho-zCDP; highest tangent over all orders",
        f"{PROOF}, sections 6 and 7",
        _BINARY,
        _NUMERIC,
    ),
    "advantage": (
        "exact",
        "tanh(eps / 2) with eps tanh(eps / 2) = rho",
        f"{PROOF}, section 6; Pinsker's sqrt(rho / 2) is looser",
        "Randomised response with this eps has rho-zCDP, and no pair of two outputs does better.",
        None,
    ),
}
_RDP: dict[Kind, Row] = {
    "pure": ("impossible", "none", f"{PROOF}, section 5", _TAIL, None),
    "approximate": (
        "exact",
        "sup of p - e^eps q over pairs (p, q) of two outputs with this divergence in both orders of neighbours",
        f"{PROOF}, sections 6 and 7; Asoodeh, Liao, Calmon, Kosut and Sankar 2021",
        _BINARY,
        "impossible at delta = 0; " + _NUMERIC,
    ),
    "zcdp": ("impossible", "none", f"{PROOF}, section 5", _TAIL, None),
    "rdp": (
        "exact",
        "the divergence, at the requested order, of the randomised response with the given divergence",
        f"{PROOF}, section 5",
        "Both orders of neighbours are bounded; among all such mechanisms randomised response has the largest divergence of a lower order.",
        "impossible: an order above the given one, whose moment a heavy tail makes infinite",
    ),
    "gdp": ("impossible", "none", f"{PROOF}, section 5", _TAIL + " mu-GDP has all orders.", None),
    "trade_off": (
        "exact",
        "inf of 1 - p over pairs (p, alpha) of two outputs with this divergence in both orders of neighbours",
        f"{PROOF}, sections 6 and 7",
        _BINARY,
        _NUMERIC,
    ),
    "advantage": (
        "exact",
        "tanh(eps / 2) with the eps of the randomised response with this divergence",
        f"{PROOF}, section 6",
        "Randomised response with this eps has the level, and no pair of two outputs does better.",
        None,
    ),
}
_GDP: dict[Kind, Row] = {
    "pure": ("impossible", "none", f"{PROOF}, section 4", _UNBOUNDED, None),
    "approximate": (
        "exact",
        "delta(e) = Phi(mu/2 - e/mu) - e^e Phi(-mu/2 - e/mu); eps(d) its inverse",
        "Balle and Wang 2018, Theorem 8; Dong, Roth and Su 2022, Corollary 2.13",
        _GAUSSIAN,
        "impossible at delta = 0; a bound for mu > 1e14, where floats can't resolve delta",
    ),
    "zcdp": ("exact", "rho = mu^2 / 2", "Bun and Steinke 2016, Proposition 1.6; Dong, Roth and Su 2022, Corollary B.6", _GAUSSIAN, None),
    "rdp": ("exact", "order mu^2 / 2", "Dong, Roth and Su 2022, Corollary B.6; Mironov 2017, Proposition 7", _GAUSSIAN, None),
    "gdp": _SAME,
    "trade_off": ("exact", "beta = Phi(Phi^-1(1 - alpha) - mu)", "Dong, Roth and Su 2022, Definition 2.6", "It is the definition.", None),
    "advantage": ("exact", "2 Phi(mu / 2) - 1", "Dong, Roth and Su 2022, Corollary 2.13, at epsilon 0", _GAUSSIAN, None),
}
_TRADE_OFF: dict[Kind, Row] = {
    "approximate": (
        "exact",
        "delta(e) = max(1 - h / (1 - l), (1 - e^e t) / (1 + t)), t = l / (1 - h), l <= h being alpha and beta in order",
        f"{PROOF}, section 8",
        "Convexity leaves these curves; the mechanism that reveals, or randomised response, has the larger of the two.",
        "impossible: epsilon at a delta below 1 - h / (1 - l), since the record may be revealed with that probability",
    ),
    "trade_off": (
        "exact",
        "h (1 - a) / (1 - l) up to l; max(1 - (1 - h) a / l, l (1 - a) / (1 - h)) up to h; max(0, 1 - (1 - l) a / h) beyond",
        f"{PROOF}, section 8",
        "A curve is convex, ends at (0, 1) or below and at (1, 0), and both orders of neighbours are meant.",
        None,
    ),
    "advantage": (
        "exact",
        "max(1 - h / (1 - l), (1 - t) / (1 + t)), t = l / (1 - h)",
        f"{PROOF}, section 8",
        "delta at epsilon 0.",
        None,
    ),
}
_ADVANTAGE: dict[Kind, Row] = {
    "approximate": (
        "exact",
        "delta(e) = advantage for every e; eps(d) = 0 for d >= advantage",
        f"{PROOF}, section 8",
        "delta falls in e, and a mechanism that reveals with probability advantage has it for every e.",
        "impossible: epsilon at a delta below the advantage, since the record may be revealed with that probability",
    ),
    "trade_off": ("exact", "beta = max(0, 1 - advantage - alpha)", f"{PROOF}, section 8", "A pair of two outputs has it.", None),
    "advantage": _SAME,
}
_ROWS: dict[Kind, dict[Kind, Row]] = {
    "pure": _PURE,
    "approximate": _APPROXIMATE,
    "zcdp": _ZCDP,
    "rdp": _RDP,
    "gdp": _GDP,
    "trade_off": _TRADE_OFF,
    "advantage": _ADVANTAGE,
}
_SECTION: dict[Kind, int] = {"approximate": 3, "trade_off": 8, "advantage": 8}
_CORNER_CASE = "exact where the given level allows no disclosure: delta = 0 is pure, alpha + beta = 1 and advantage 0 are perfect privacy"


@cache
def pair_of_kinds(given: Kind, to: Kind) -> PairOfNotions:
    """The entry of one pair; what isn't written out is impossible since the given notion lets the record be revealed."""
    row = _ROWS[given].get(to)
    if row is None:
        row = ("impossible", "none", f"{PROOF}, section {_SECTION[given]}", _REVEALS, _CORNER_CASE)
    status, formula, source, why, otherwise = row
    return PairOfNotions(given=given, to=to, status=status, formula=formula, source=source, why=why, otherwise=otherwise)


def matrix() -> tuple[PairOfNotions, ...]:
    """All ordered pairs.

    >>> len(matrix())
    49
    """
    return tuple(pair_of_kinds(given, to) for given in KINDS for to in KINDS)
