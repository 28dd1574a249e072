r"""Metrics against their definitions: by hand, by slow loops, and by scikit-learn where every class is present."""

from __future__ import annotations

import math

import numpy as np
import pytest
from sklearn.metrics import f1_score, recall_score, roc_auc_score

from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.engine.metrics import HIGHEST_PSNR, classification_metrics, reconstruction_metrics, roc_auc, row_metrics, ssim

ROUNDING = 1e-12
"""float64 sums of some thousand terms in another order."""


def test_four_records_by_hand() -> None:
    # Predicted 0, 1, 1, 0 for 0, 0, 1, 1. Class 1 against 0: scores .2, .6 | .9, .4, three of four pairs in order.
    scores = np.array([[0.8, 0.2], [0.4, 0.6], [0.1, 0.9], [0.6, 0.4]])
    found = classification_metrics(scores, np.array([0, 0, 1, 1]))
    assert found == {"accuracy": 0.5, "f1": 0.5, "recall": 0.5, "roc_auc": 0.75}


def test_macro_means_agree_with_scikit_learn() -> None:
    generator = np.random.default_rng(1)
    labels = generator.permutation(np.repeat(np.arange(5), 40))
    scores = generator.normal(size=(200, 5)) + 1.5 * np.eye(5)[labels]
    found = classification_metrics(scores, labels)
    probabilities = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    predicted = scores.argmax(axis=1)
    assert found["f1"] == pytest.approx(f1_score(labels, predicted, average="macro"), rel=ROUNDING)
    assert found["recall"] == pytest.approx(recall_score(labels, predicted, average="macro"), rel=ROUNDING)
    assert found["roc_auc"] == pytest.approx(roc_auc_score(labels, probabilities, multi_class="ovr", average="macro"), rel=ROUNDING)


@pytest.mark.parametrize("distinct", [2, 7, 10**6])
def test_area_under_the_roc_curve_agrees_with_scikit_learn_where_scores_tie(distinct: int) -> None:
    generator = np.random.default_rng(distinct)
    is_positive = generator.random(1000) < 0.3
    scores = generator.integers(0, distinct, 1000) / distinct + 0.2 * is_positive
    assert roc_auc(scores, is_positive) == pytest.approx(roc_auc_score(is_positive, scores), rel=ROUNDING)


def test_area_under_the_roc_curve_is_exact_at_its_ends() -> None:
    scores, is_positive = np.array([0.1, 0.2, 0.3]), np.array([False, True, True])
    assert (roc_auc(scores, is_positive), roc_auc(-scores, is_positive), roc_auc(np.zeros(3), is_positive)) == (1.0, 0.0, 0.5)


def test_adding_a_constant_to_one_record_s_scores_changes_nothing() -> None:
    # It isn't seen by the loss either; raw scores would rank the record above all others.
    scores = np.array([[0.8, 0.2], [0.4, 0.6], [0.1, 0.9], [0.6, 0.4]])
    shifted = scores + np.array([[0.0], [50.0], [0.0], [-50.0]])
    labels = np.array([0, 0, 1, 1])
    assert classification_metrics(shifted, labels) == classification_metrics(scores, labels)


def test_classes_absent_from_the_labels_are_left_out_of_the_means() -> None:
    # Class 2 has no record; one record of class 0 is taken for it. Recalls 1/2 and 1, F1 2/3 and 1.
    scores = np.array([[0.9, 0.0, 0.1], [0.1, 0.0, 0.9], [0.0, 0.8, 0.2]])
    found = classification_metrics(scores, np.array([0, 0, 1]))
    assert found["recall"] == pytest.approx(0.75, rel=ROUNDING)
    assert found["f1"] == pytest.approx(5 / 6, rel=ROUNDING)


def test_a_class_never_predicted_has_f1_zero() -> None:
    scores = np.array([[1.0, 0.0], [1.0, 0.0]])
    assert classification_metrics(scores, np.array([0, 1]))["f1"] == pytest.approx((2 / 3 + 0.0) / 2, rel=ROUNDING)


def test_one_class_alone_has_no_roc_curve() -> None:
    assert set(classification_metrics(np.array([[1.0, 0.0]]), np.array([0]))) == {"accuracy", "f1", "recall"}


@pytest.mark.parametrize(
    ("scores", "labels", "text"),
    [
        (np.zeros((2, 3)), np.array([0, 3]), r"labels must be in 0 \.\. 2"),
        (np.zeros((2, 3)), np.array([0, -1]), r"labels must be in 0 \.\. 2"),
        (np.zeros((2, 3)), np.array([0]), "scores and labels must be"),
        (np.zeros((0, 3)), np.zeros(0, dtype=np.int64), "not empty"),
        (np.array([[0.0, np.nan]]), np.array([0]), "scores must be finite"),
    ],
)
def test_scores_that_measure_nothing_are_refused(scores: np.ndarray, labels: np.ndarray, text: str) -> None:
    with pytest.raises(InvalidParameter, match=text):
        classification_metrics(scores, labels)


def slow_ssim(x: np.ndarray, y: np.ndarray, data_range: float) -> float:
    values = []
    for top in range(x.shape[0] - 6):
        for left in range(x.shape[1] - 6):
            a, b = x[top : top + 7, left : left + 7].ravel(), y[top : top + 7, left : left + 7].ravel()
            (var_a, cov), (_, var_b) = np.cov(a, b)
            c1, c2 = (0.01 * data_range) ** 2, (0.03 * data_range) ** 2
            luminance = (2 * a.mean() * b.mean() + c1) / (a.mean() ** 2 + b.mean() ** 2 + c1)
            values.append(luminance * (2 * cov + c2) / (var_a + var_b + c2))
    return float(np.mean(values))


def test_ssim_is_the_mean_over_windows_of_a_slow_loop() -> None:
    generator = np.random.default_rng(2)
    x = generator.uniform(size=(13, 10))
    y = x + 0.2 * generator.normal(size=x.shape)
    assert ssim(x, y, 1.3) == pytest.approx(slow_ssim(x, y, 1.3), rel=1e-10)  # E x^2 - (E x)^2 loses some digits


def test_ssim_of_two_flat_images_is_the_luminance_term() -> None:
    # (2 * .5 * .25 + 1e-4) / (.25 + .0625 + 1e-4): nothing varies, so the other factor is 1.
    assert ssim(np.full((9, 9), 0.5), np.full((9, 9), 0.25), 1.0) == pytest.approx(0.2501 / 0.3126, rel=1e-10)


def test_nmse_and_psnr_by_hand_on_magnitudes() -> None:
    # |truth| is 2 in one pixel and 1 in the other 48; the image misses .5 in one of these.
    truth = np.ones((1, 1, 7, 7), dtype=np.complex64)
    truth[0, 0, 0, 0] = 2j
    image = truth.copy()
    image[0, 0, 3, 3] = -0.5
    found = reconstruction_metrics(image, truth)
    assert found["nmse"] == pytest.approx(0.25 / 52, rel=1e-6)  # complex64
    assert found["psnr"] == pytest.approx(10 * math.log10(4 / (0.25 / 49)), rel=1e-6)


def test_each_record_counts_alike_whatever_its_scale() -> None:
    generator = np.random.default_rng(3)
    truth = generator.normal(size=(2, 1, 8, 9)) + 3.0
    image = truth + 0.3 * generator.normal(size=truth.shape)
    scale = np.array([1.0, 1000.0]).reshape(2, 1, 1, 1)
    plain, scaled = reconstruction_metrics(image, truth), reconstruction_metrics(scale * image, scale * truth)
    assert scaled == pytest.approx(plain, rel=1e-9)  # squares of 1000 lose some digits in E x^2 - (E x)^2


def test_an_exact_reconstruction_has_finite_figures() -> None:
    truth = np.random.default_rng(4).normal(size=(1, 2, 7, 7)).astype(np.complex64)
    assert reconstruction_metrics(truth, truth) == {"nmse": 0.0, "psnr": HIGHEST_PSNR, "ssim": pytest.approx(1.0, rel=ROUNDING)}


@pytest.mark.parametrize(
    ("images", "references", "text"),
    [
        (np.ones((1, 1, 7, 7)), np.ones((1, 1, 7, 8)), "images and references must be both"),
        (np.ones((1, 1, 6, 7)), np.ones((1, 1, 6, 7)), ">= 7"),
        (np.full((1, 1, 7, 7), np.inf), np.ones((1, 1, 7, 7)), "finite"),
        (np.ones((1, 1, 7, 7)), np.zeros((1, 1, 7, 7)), "aren't zero everywhere"),
    ],
)
def test_images_that_measure_nothing_are_refused(images: np.ndarray, references: np.ndarray, text: str) -> None:
    with pytest.raises(InvalidParameter, match=text):
        reconstruction_metrics(images, references)


def test_rows_made_again_stand_beside_what_needs_no_network() -> None:
    rows, outputs = np.array([[0.0, 1.0], [1.0, 1.0]]), np.array([[0.0, 0.0], [1.0, 1.0]])
    # Errors: one 1 among four; of zeros three; of the column means 1/2 and 1 two quarters.
    assert row_metrics(outputs, rows) == {"score": 0.75, "score_all_zero": 0.25, "score_column_means": 0.875}


@pytest.mark.parametrize(
    ("outputs", "message"),
    [(np.zeros((3, 2)), r"both \(records, features\)"), (np.zeros(4), r"both \(records, features\)"), (np.full((2, 2), np.nan), "finite")],
)
def test_rows_that_cant_be_compared_are_refused(outputs: np.ndarray, message: str) -> None:
    with pytest.raises(InvalidParameter, match=message):
        row_metrics(outputs, np.zeros((2, 2)))
