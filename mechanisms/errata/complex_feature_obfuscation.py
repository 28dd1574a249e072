r"""Rows on complex-valued obfuscation of features, x = e^(i theta) (a + b i). It has no guarantee of differential privacy at all."""

from __future__ import annotations

from functools import partial

from mechanisms.errata.row import Erratum

_row = partial(Erratum, paper="complex_feature_obfuscation")

ROWS: tuple[Erratum, ...] = (
    _row(
        row="O1",
        where="abstract, sections 3 and 4.2",
        severity="O",
        printed="k-anonymity is guaranteed: other features can't be told from the real one",
        proven="nothing is guaranteed, and it isn't k-anonymity: epsilon is infinite and delta is 1",
        why="A critic that a generator fools at some angles proves no indistinguishability, and O5 to O8 tell features apart; k-anonymity "
        "isn't differential privacy and doesn't compose.",
    ),
    _row(
        row="O2",
        where="equation (2)",
        severity="O",
        printed="x = e^(i theta) |a + b i|",
        proven="x = e^(i theta) (a + b i), as the paragraph on the GAN and equation (8) use it",
        why="With the modulus every coordinate has argument theta, which is then public, and equation (3) doesn't return a.",
    ),
    _row(
        row="O3",
        where="equation (2): theta as key",
        severity="O",
        printed="one angle for the whole feature is a secret key",
        proven="a key of about 7 bits: 126 angles 0.05 apart cover the circle",
        why="g, Phi and d are public, so each candidate is tried without the user: a lies on the circle cos(phi) Re x + sin(phi) Im x.",
    ),
    _row(
        row="O4",
        where="section 4.2, rotation by a wrong angle",
        severity="OK",
        printed="a' = Re(x e^(-i theta'))",
        proven="a cos(d) - b sin(d), with d = theta - theta'",
        why="Multiply out.",
    ),
    _row(
        row="O5",
        where="sections 3 and 4.2: the real input is hidden",
        severity="O",
        printed="an adversary can't tell whose feature it is",
        proven="a candidate input I is in the release exactly if g(I) lies in the real span of Re x and Im x; no angle is needed",
        why="Re x and Im x are two independent combinations of a and b, so their span contains a and b, and generically no other "
        "candidate: output laws of different a are mutually singular.",
    ),
    _row(
        row="O6",
        where="fresh angle and fake feature at each query",
        severity="O",
        printed="each query is protected afresh",
        proven="two encodings of the same a give a exactly, up to its sign",
        why="Their spans meet in the line through a, and coefficients of unit norm fix its length.",
    ),
    _row(
        row="O7",
        where="section 4.2: theta can't be found from x",
        severity="O",
        printed="theta is hidden",
        proven="moments find it: the mean where means are equal and not 0, the cone where features are non-negative, principal axes where "
        "variances differ, a fourth cumulant where features aren't Gaussian",
        why="Turning by theta multiplies the mean by e^(i theta) and the fourth cumulant by e^(4 i theta).",
    ),
    _row(
        row="O8",
        where="when is theta hidden?",
        severity="OK",
        printed="a generator can make a' distributed like a",
        proven="for independent coordinates only if every linear functional of a is Gaussian with mean zero; even then O5 and O6 stand",
        why="Apply the equality in law again and again: a is a sum of ever smaller independent parts, hence Gaussian, and equal means "
        "force the mean to 0.",
    ),
    _row(
        row="O9",
        where="section 4.3, Table 4",
        severity="U",
        printed="errors of the estimated angle between pi/4 and pi/2 show that the discriminator fails",
        proven="they don't: whoever finds {a, b} up to sign but not which is which has mean error pi/2, as guessing has",
        why="At theta + pi/2 both parts are genuine features too, (b, -a). Errors must be taken modulo pi/2 and both parts tested.",
    ),
    _row(
        row="O10",
        where="section 4.3, the bound by the critic's loss",
        severity="O",
        printed="the critic's gap bounds every decoder's success",
        proven="it bounds nothing beyond that critic",
        why="The bounding critic uses the secret input and need not be in the trained critic's class.",
    ),
    _row(
        row="O11",
        where="the fake feature b = g(I')",
        severity="O",
        printed="b holds nothing private",
        proven="b is another person's exact feature: each release exposes two inputs",
        why="O5 finds both.",
    ),
    _row(
        row="O12",
        where="the cloud can't recover the output",
        severity="O",
        printed="only the owner of theta can decode",
        proven="the cloud decodes at the angle it estimates, or tries all",
        why="Phi commutes with rotations and d is public.",
    ),
    _row(
        row="O13",
        where="equation (7) and appendix A",
        severity="o",
        printed="normalisation by a mean per position in one place, over batch and positions in the other",
        proven="two different layers; both commute with rotations, but batch statistics couple users: they must be frozen",
        why="Moduli don't change under rotation; a statistic over the batch lets one user's input move another's output.",
    ),
    _row(
        row="O14",
        where="appendix A, item 4",
        severity="N",
        printed="max-pooling is linear, Phi(x) = A x",
        proven="A depends on |x|; it commutes with rotations all the same",
        why="Rotations keep moduli, so A(e^(i theta) x) = A(x).",
    ),
    _row(
        row="O15",
        where="dropout",
        severity="N",
        printed="real and imaginary part are dropped",
        proven="with one mask for both",
        why="Two masks don't commute with a rotation.",
    ),
    _row(
        row="O16",
        where="equation (6), convolution without bias, skip connections",
        severity="OK",
        printed="they commute with rotations",
        proven="right",
        why="Each is complex-linear or acts on the modulus alone.",
    ),
    _row(
        row="O17",
        where="equation (8) and text; noise levels",
        severity="N",
        printed="angles over (0, pi) and over (0, 2 pi); levels 0.2, 0.5, 1 and 0.5, 1, 2",
        proven="inconsistent",
        why="Two statements of the same setting.",
    ),
    _row(
        row="O18",
        where="appendix F",
        severity="U",
        printed="an error of 42.41 % at telling related pairs is called preserved privacy",
        proven="below one half is leakage: an advantage of 15.2 % if classes are balanced",
        why="The advantage of a balanced binary test is 1 - 2 error.",
    ),
    _row(
        row="O19",
        where="section 6",
        severity="OK",
        printed="the encoder's output bounds what later features give away",
        proven="right, for adversaries who see later layers only",
        why="Later features are functions of it.",
    ),
)
