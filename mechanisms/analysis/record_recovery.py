r"""Recovers a record from one update of a network with one hidden layer, whatever the noise on its outputs' derivatives (S14, S15, S31).

With code h = sigmoid(W^T x), outputs z and noisy derivatives g = dL~/dz, the gradients are G_d = h g^T for the decoder and
G_e = x v^T with v_r = h_r (1 - h_r) sum_i w_ri g_i for the encoder: both of rank one, and the noise is in g alone. G_d has the direction
u of h = k u, and u^T G_d = k g. So v_r = A_r (1 - k u_r) with A_r = u_r sum_i w_ri (u^T G_d)_i known, and any row f v of G_e gives f and
f k by linear equations: then k, h, v and x = G_e v / ||v||^2, exactly.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def recovered(encoder_gradient: Floats, decoder_gradient: Floats, decoder: Floats) -> tuple[Floats, Floats]:
    r"""The record and its code, from the two gradients and the decoder's public weights.

    Args:
      encoder_gradient: x v^T, shape (n, l).
      decoder_gradient: h g^T, shape (l, n).
      decoder: the weights that the decoder multiplied h with, shape (l, n).
    """
    # A code is positive, whatever the sign of the column's g.
    direction = np.abs(dominant_column(decoder_gradient))
    known = direction * (decoder @ (direction @ decoder_gradient))
    row = encoder_gradient[np.argmax(np.abs(encoder_gradient).sum(axis=1))]
    factor, product = _two_unknowns(known, -known * direction, row)
    code = direction * (product / factor)
    back = known * (1.0 - code)
    return encoder_gradient @ back / (back @ back), code


def dominant_column(gradient: Floats) -> Floats:
    """The direction of a gradient's largest column, with l2 norm 1: the record's or the code's, up to sign, if it has rank one."""
    column = gradient[:, np.argmax(np.abs(gradient).sum(axis=0))]
    return column / np.linalg.norm(column)


def distance_from_rank_one(gradient: Floats) -> float:
    """Frobenius norm of a gradient without its largest row's direction, relative to the gradient's norm: 0 if it has rank one."""
    row = gradient[np.argmax(np.abs(gradient).sum(axis=1))]
    nearest = np.outer(gradient @ row / (row @ row), row)
    return float(np.linalg.norm(gradient - nearest) / np.linalg.norm(gradient))


def _two_unknowns(first: Floats, second: Floats, seen: Floats) -> tuple[float, float]:
    """(p, q) with p first + q second nearest to seen, by Gram and Schmidt."""
    share = float(first @ second / (first @ first))
    rest = second - share * first
    q = float(rest @ seen / (rest @ rest))
    return float(first @ seen / (first @ first)) - share * q, q
