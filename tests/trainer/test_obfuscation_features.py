r"""Pairs of features, and features in a plane: appendices E and F of the obfuscation paper, on made-up features whose truth is known."""

from __future__ import annotations

import numpy as np

from benchmarks.obfuscation_features import Sent, as_they_are, named_by_neighbours, pair_error, pairs_of, planes, unturned


def rotated(records: int, seed: int) -> Sent:
    """Three classes of features a, each turned with a counterpart by an angle of its own."""
    generator = np.random.default_rng(seed)
    labels = generator.integers(3, size=records)
    centres = np.random.default_rng(0).exponential(size=(3, 12))
    feature = centres[labels] * (1.0 + 0.1 * generator.normal(size=(records, 12)))
    counterpart = 0.1 * generator.normal(size=(records, 12))
    theta = 2.0 * np.pi * generator.random((records, 1))
    return Sent(((feature + 1j * counterpart) * np.exp(1j * theta)).astype(np.complex64), labels)


def test_pairs_are_of_different_records_and_half_of_them_have_one_label() -> None:
    labels = rotated(200, 1).labels
    first, second = pairs_of(labels, 400, 1)
    assert len(first) == 400
    assert (first != second).all()
    assert (labels[first] == labels[second]).tolist() == [True] * 200 + [False] * 200


def test_what_no_angle_changes_is_the_same_for_turned_features() -> None:
    one, other = rotated(50, 1).features, rotated(50, 2).features
    turned = unturned(one * np.exp(0.3j).astype(np.complex64), other * np.exp(-2.0j).astype(np.complex64))
    np.testing.assert_allclose(turned, unturned(one, other), rtol=1e-4, atol=1e-5)


def test_a_classifier_that_knows_the_method_tells_pairs_apart_that_angles_should_hide() -> None:
    public, others = rotated(300, 1), rotated(200, 2)
    known = pair_error(public, others, unturned, training=600, test=400)
    told = pair_error(public, others, as_they_are, training=600, test=400)
    assert known < 0.1
    assert told > 2.0 * known


def test_neighbours_in_a_plane_name_classes_where_they_lie_apart_and_guess_where_they_dont() -> None:
    generator = np.random.default_rng(1)
    labels = np.repeat(np.arange(4), 50)
    assert named_by_neighbours(20.0 * labels[:, None] + generator.normal(size=(200, 2)), labels) == 1.0
    assert named_by_neighbours(generator.normal(size=(200, 2)), labels) < 0.5


def test_planes_leave_out_an_imaginary_part_that_is_zero_everywhere() -> None:
    assert planes(np.ones((3, 2), dtype=np.complex64)).shape == (3, 2)
    assert planes(np.full((3, 2), 1j, dtype=np.complex64) + 1).shape == (3, 4)
