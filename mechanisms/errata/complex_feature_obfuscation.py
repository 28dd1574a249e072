r"""Rows on complex-valued obfuscation of features, x = e^(i theta) (a + b i). The scheme has no differential privacy guarantee at all."""

from __future__ import annotations

from functools import partial

from zetadp.mechanisms.errata.row import Erratum

_row = partial(Erratum, paper="complex_feature_obfuscation")

ROWS: tuple[Erratum, ...] = (
    _row(
        row="O1",
        where="abstract, sections 3 and 4.2",
        severity="O",
        printed="k-anonymity is guaranteed: the real feature can't be distinguished from others",
        proven="nothing is guaranteed, and it isn't k-anonymity: epsilon is infinite and delta is 1",
        why="A critic that a generator fools at some angles proves no indistinguishability, and O5 to O8 distinguish features; k-anonymity "
        "isn't differential privacy and doesn't compose.",
        here=(
            "What the obfuscation paper calls k-anonymity is a critic's loss, not k-anonymity, and no guarantee; here only the noise is "
            "counted."
        ),
    ),
    _row(
        row="O2",
        where="equation (2)",
        severity="O",
        printed="x = e^(i theta) |a + b i|",
        proven="x = e^(i theta) (a + b i), as the paragraph on the GAN and equation (8) use it",
        why="With the modulus, every coordinate has argument theta, which is then public, and equation (3) doesn't return a.",
        here="The obfuscation paper's equation (2) has a modulus that would reveal the angle to everyone; here x = e^(i theta) (a + i b).",
    ),
    _row(
        row="O3",
        where="equation (2): theta as the key",
        severity="O",
        printed="one angle for the whole feature is a secret key",
        proven="this is a key of about 7 bits: 126 angles 0.05 apart cover the circle",
        why="g, Phi and d are public, so each candidate can be tried without the user: a lies on the circle cos(phi) Re x + sin(phi) Im x.",
        here="One angle for a whole feature is a key of about 7 bits, which can be found by trying all angles; here nothing depends on it.",
    ),
    _row(
        row="O4",
        where="section 4.2, rotation by a wrong angle",
        severity="OK",
        printed="a' = Re(x e^(-i theta'))",
        proven="a cos(d) - b sin(d), with d = theta - theta'",
        why="Expand the product.",
        here="A feature rotated back by a wrong angle is a cos(d) - b sin(d), as printed.",
    ),
    _row(
        row="O5",
        where="sections 3 and 4.2: the real input is hidden",
        severity="O",
        printed="an adversary can't tell whose feature it is",
        proven="a candidate input I is in the release if and only if g(I) lies in the real span of Re x and Im x; no angle is needed",
        why="Re x and Im x are two independent combinations of a and b, so their span contains a and b and, generically, no other "
        "candidate: the output distributions of different a are mutually singular.",
        here="Without noise, a candidate input is confirmed exactly from the plane that is sent; here noise is added to the feature first.",
    ),
    _row(
        row="O6",
        where="fresh angle and fake feature for each query",
        severity="O",
        printed="each query is protected afresh",
        proven="two encodings of the same a reveal a exactly, up to its sign",
        why="Their spans intersect in the line through a, and coefficients of unit norm fix its length.",
        here="Without noise, two encodings of one input reveal its feature; here every query has fresh noise, and each query is counted.",
    ),
    _row(
        row="O7",
        where="section 4.2: theta can't be found from x",
        severity="O",
        printed="theta is hidden",
        proven="moments reveal it: the mean if the means are equal and not 0, the cone if features are non-negative, principal axes if the "
        "variances differ, a fourth cumulant if features aren't Gaussian",
        why="Rotating by theta multiplies the mean by e^(i theta) and the fourth cumulant by e^(4 i theta).",
        here="The angle can be estimated from one feature; the figures here hold for an attacker who knows it.",
    ),
    _row(
        row="O8",
        where="when is theta hidden?",
        severity="OK",
        printed="a generator can make a' distributed like a",
        proven="for independent coordinates, only if every linear functional of a is Gaussian with mean zero; even then O5 and O6 hold",
        why="Applying the equality in distribution repeatedly makes a a sum of ever smaller independent parts, hence Gaussian, and equal "
        "means force the mean to be 0.",
        here="For independent coordinates, only features whose every linear functional is Gaussian with mean zero can hide the angle; "
        "nothing here relies on that.",
    ),
    _row(
        row="O9",
        where="section 4.3, Table 4",
        severity="U",
        printed="errors of the estimated angle between pi/4 and pi/2 show that the discriminator fails",
        proven="they don't: an attacker who finds {a, b} up to sign but not which is which has mean error pi/2, the same as guessing",
        why="At theta + pi/2 both parts are genuine features too, (b, -a). Errors must be taken modulo pi/2, and both parts must be "
        "tested.",
        here=(
            "The obfuscation paper's score of angle errors can't distinguish an attacker's success from failure; the attack table scores "
            "both quadratures."
        ),
    ),
    _row(
        row="O10",
        where="section 4.3, the bound by the critic's loss",
        severity="O",
        printed="the critic's gap bounds every decoder's success",
        proven="it bounds nothing beyond that critic",
        why="The bounding critic uses the secret input and need not be in the trained critic's class.",
        here="A bound on one critic's loss bounds no attacker; here the noise does, whoever the attacker is.",
    ),
    _row(
        row="O11",
        where="the fake feature b = g(I')",
        severity="O",
        printed="b contains no private information",
        proven="b is another person's exact feature: each release exposes two inputs",
        why="The test in O5 finds both.",
        here=(
            "Using another person's feature as the counterpart exposes two inputs instead of one; here the counterpart is a public "
            "record's feature, or synthetic."
        ),
    ),
    _row(
        row="O12",
        where="the cloud can't recover the output",
        severity="O",
        printed="only the owner of theta can decode",
        proven="the cloud can decode at the angle that it estimates, or try all angles",
        why="Phi commutes with rotations, and d is public.",
        here=(
            "The cloud can read the answer just as the owner can; here the answer is computed from a noisy feature and hides no more than "
            "that feature."
        ),
    ),
    _row(
        row="O13",
        where="equation (7) and appendix A",
        severity="o",
        printed="normalisation by a mean per position in one place, over batch and positions in the other",
        proven="these are two different layers; both commute with rotations, but batch statistics couple users, so they must be frozen",
        why="Moduli don't change under rotation; a statistic over the batch lets one user's input change another's output.",
        here="Normalising by batch statistics makes one user's feature depend on another's; here the statistics are frozen after training.",
    ),
    _row(
        row="O14",
        where="appendix A, item 4",
        severity="N",
        printed="max-pooling is linear, Phi(x) = A x",
        proven="A depends on |x|; max-pooling commutes with rotations all the same",
        why="Rotations preserve moduli, so A(e^(i theta) x) = A(x).",
        here="Max-pooling by magnitude isn't linear, contrary to what is printed, but it still commutes with rotations.",
    ),
    _row(
        row="O15",
        where="dropout",
        severity="N",
        printed="the real and imaginary parts are dropped",
        proven="they must be dropped with one mask for both",
        why="Two masks don't commute with a rotation.",
        here="The real and imaginary parts must be dropped together; here one mask is used for both.",
    ),
    _row(
        row="O16",
        where="equation (6), convolution without bias, skip connections",
        severity="OK",
        printed="they commute with rotations",
        proven="right",
        why="Each is complex-linear or acts on the modulus alone.",
        here="The activation, convolutions without bias and skip connections commute with rotations, as printed.",
    ),
    _row(
        row="O17",
        where="equation (8) and text; noise levels",
        severity="N",
        printed="angles over (0, pi) and over (0, 2 pi); levels 0.2, 0.5, 1 and 0.5, 1, 2",
        proven="inconsistent",
        why="These are two statements of the same setting.",
        here="The obfuscation paper states its angles and noise levels in two ways; here angles are uniform on the whole circle.",
    ),
    _row(
        row="O18",
        where="appendix F",
        severity="U",
        printed="an error of 42.41 % in recognising related pairs preserves attribute correlations",
        proven="an error below one half is leakage: an advantage of 15.2 % if the classes are balanced",
        why="The advantage of a balanced binary test is 1 - 2 error.",
        here="An attacker who is right more often than chance has learned something; the attack table says how much, with intervals.",
    ),
    _row(
        row="O19",
        where="section 6",
        severity="OK",
        printed="the encoder's output bounds what later features reveal",
        proven="right, for adversaries who see only later layers",
        why="Later features are functions of it.",
        here="What later layers reveal follows from what the encoder sends.",
    ),
)
