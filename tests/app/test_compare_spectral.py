"""POST /v1/compare/spectral, /layers, /spectral_training and /classic_gaussian, over HTTP."""

from __future__ import annotations

import math

import numpy as np
import pytest
from fastapi.testclient import TestClient

from tests.app.calculators_harness import problem
from tests.golden.oracles import oracle_rows
from zetadp.app.kit.settings import Settings
from zetadp.app.main import create_app
from zetadp.mechanisms.errata import ERRATA

BASE = {"shape": [16], "kept": [4], "clip": 2.0, "noise_multiplier": 0.5}


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    app = create_app(Settings(data_dir=tmp_path_factory.mktemp("data")))
    with TestClient(app, base_url="http://127.0.0.1", raise_server_exceptions=False) as client:
        yield client


def _post(client, route, **request):
    response = client.post(f"/v1/compare/{route}", json=request)
    assert response.status_code == 200, response.text
    return response.json()


def _spectral(client, **changes):
    request = {**BASE, **changes}
    return _post(client, "spectral", **{name: value for name, value in request.items() if value is not None})


def _about(answer, words):
    """The one finding whose quantity has these words."""
    found = [finding for finding in answer["published"] if words in finding["quantity"]]
    assert len(found) == 1, [finding["quantity"] for finding in answer["published"]]
    return found[0]


def _rows(answer):
    return {finding["erratum"] for finding in answer["published"]}


@pytest.mark.parametrize(("inputs", "expected"), oracle_rows("spectral_1d"))
def test_one_axis_agrees_with_forty_digits(client, inputs, expected):
    values, length, kept = expected["value"], int(inputs["N"]), int(inputs["K"])
    answer = _spectral(client, shape=[length], kept=[kept], positions=[[0], [1]], std=1.0, noise_multiplier=None)
    assert answer["filter"]["kept_dimensions"] == int(values["kept_bins"])
    kept_variance = _about(answer, "noise variance at each position after the filter")
    assert kept_variance["proven"] == pytest.approx(float(values["hermitian_ratio"]), rel=1e-12)
    assert kept_variance["printed"] == pytest.approx(float(values["published"]), rel=1e-12)
    assert _about(answer, "position [0]")["proven"] == pytest.approx(float(values["real_noise_var_n0"]), rel=1e-12)
    assert _about(answer, "position [1]")["proven"] == pytest.approx(float(values["real_noise_var_n1"]), rel=1e-12)
    assert answer["noise"]["real_noise"][1]["real"] == pytest.approx(float(values["real_noise_var_n1"]), rel=1e-12)
    if values["literal_mask_hermitian"] is None:
        assert 2 * kept > length
    else:
        literal = _about(answer, "literal mask index < K on Hermitian noise")
        assert literal["proven"] == pytest.approx(float(values["literal_mask_hermitian"]), rel=1e-12)


@pytest.mark.parametrize(("inputs", "expected"), oracle_rows("spectral_2d"))
def test_two_axes_agree_with_forty_digits(client, inputs, expected):
    answer = _spectral(client, shape=[int(inputs["N1"]), int(inputs["N2"])], kept=[int(inputs["K1"]), int(inputs["K2"])])
    assert answer["filter"]["kept_dimensions"] == int(expected["value"]["kept_bins"])
    found = _about(answer, "noise variance at each position after the filter")
    assert (found["printed"], found["proven"]) == pytest.approx(
        (float(expected["value"]["published"]), float(expected["value"]["hermitian_ratio"])), rel=1e-12
    )
    assert found["erratum"] == "P5"


@pytest.mark.parametrize(("inputs", "expected"), oracle_rows("fft_normalisation"))
def test_unnormalised_transforms_agree_with_forty_digits(client, inputs, expected):
    answer = _spectral(client, shape=[int(inputs["N"])], kept=[1], noise_multiplier=float(inputs["sigma"]))
    found = _about(answer, "transformed without 1 / sqrt(N)")
    assert found["proven"] == pytest.approx(float(expected["value"]), rel=1e-12)
    assert found["direction"] == "overclaims"


@pytest.mark.parametrize(("inputs", "expected"), oracle_rows("per_layer"))
def test_layers_agree_with_forty_digits(client, inputs, expected):
    clips, values = [float(clip) for clip in inputs["C_l"].split(",")], expected["value"]
    answer = _post(client, "layers", clips=clips, noise_multiplier=float(inputs["sigma"]))
    assert answer["sensitivity"] == pytest.approx(float(values["C"]), rel=1e-12)
    assert _about(answer, "noise sigma C on every coordinate")["proven"] == pytest.approx(float(values["mu_joint"]), rel=1e-12)
    per_layer = float(values["mu_if_per_layer_noise"])
    assert _about(answer, "noise sigma C_l on layer l")["proven"] == pytest.approx(per_layer, rel=1e-12)
    assert answer["gdp_mu_with_noise_per_layer"] == pytest.approx(per_layer, rel=1e-12)


@pytest.mark.parametrize(("inputs", "expected"), oracle_rows("classic_gaussian_threshold"))
def test_the_classic_threshold_agrees_with_forty_digits(client, inputs, expected):
    answer = _post(client, "classic_gaussian", epsilon=1.0, delta=float(inputs["delta"]))
    assert answer["holds_up_to"] == pytest.approx(float(expected["value"]), rel=1e-12)
    assert _about(answer, "largest epsilon")["printed"] == "Infinity"


def test_every_row_this_family_is_asked_about_is_answered(client):
    one = _spectral(client, signal=[float(i % 5) for i in range(16)], support=[3])
    two = _spectral(client, shape=[8, 8], kept=[3, 3])
    layers = _post(client, "layers", clips=[1.0, 2.0], noise_multiplier=1.0)
    training = _post(client, "spectral_training", order=2.0, epsilon=0.01, delta=1e-5, iterations=1000)
    classic = _post(client, "classic_gaussian", epsilon=8.0, delta=1e-3)
    rows = set().union(*map(_rows, (one, two, layers, training, classic)))
    assert rows == {f"P{i}" for i in (*range(1, 13), *range(15, 22))}
    assert rows <= {erratum.row for erratum in ERRATA}


def test_real_noise_on_complex_bins_has_infinite_mu_and_says_why(client):
    answer = _spectral(client, epsilons=[1.0], deltas=[1e-5])
    found = _about(answer, "real_on_complex_bins")
    assert (found["printed"], found["proven"], found["direction"]) == (2.0, "Infinity", "overclaims")
    assert "odd part" in found["note"]
    assert (found["delta"][0]["proven"], found["epsilon"][0]["proven"]) == (1.0, "Infinity")
    steps = [step["value"] for step in found["counterexample"]["steps"]]
    assert steps[1:] == pytest.approx([math.sqrt(2.0), 0.0], abs=1e-15)


@pytest.mark.parametrize(
    ("reading", "factor", "direction"),
    [
        ("complex_total_variance", math.sqrt(2.0), "overclaims"),
        ("complex_per_component", 1.0, "equal"),
        ("hermitian", 1.0, "equal"),
        ("half_spectrum_complex_randn", math.sqrt(2.0), "overclaims"),
    ],
)
def test_each_reading_of_the_noise_has_its_own_mu(client, reading, factor, direction):
    found = _about(_spectral(client), f"noise read as {reading}")
    assert found["proven"] == pytest.approx(2.0 * factor, rel=1e-15)
    assert found["direction"] == direction


def test_consequences_are_those_of_the_proved_mu(client):
    found = _about(_spectral(client, noise_multiplier=1.0, epsilons=[1.0], deltas=[1e-5]), "noise read as complex_total_variance")
    assert found["delta"][0]["printed"] == pytest.approx(0.12693673750664394, rel=1e-12)
    assert found["delta"][0]["proven"] == pytest.approx(0.286208, rel=1e-5)
    assert found["epsilon"][0]["direction"] == "overclaims"


@pytest.mark.parametrize("words", ["one query clipped to S", "one record is replaced"])
def test_a_clipped_query_and_a_replaced_record_move_twice_the_clip(client, words):
    found = _about(_spectral(client), words)
    assert (found["printed"], found["proven"], found["ratio"], found["direction"]) == (2.0, 4.0, 0.5, "overclaims")


def test_an_unclipped_tensor_has_no_sensitivity(client):
    assert _about(_spectral(client), "line 3 adds noise to")["proven"] == "Infinity"


def test_the_filter_buys_no_privacy(client):
    found = _about(_spectral(client, kept=[1]), "followed by the filter")
    assert (found["printed"], found["proven"], found["direction"]) == (2.0, 2.0, "equal")


def test_half_spectrum_norms_are_short_by_sqrt_two(client):
    assert _about(_spectral(client), "half spectrum (rfft)")["proven"] == pytest.approx(2.0 * math.sqrt(2.0), rel=1e-15)
    assert _about(_spectral(client, shape=[2], kept=[2]), "half spectrum (rfft)")["direction"] == "equal"


def test_noise_energy_counts_the_kept_dimensions(client):
    noise = _spectral(client, shape=[6, 10], kept=[2, 4])["noise"]
    assert (noise["std"], noise["energy"], noise["energy_before"], noise["variance"]) == (1.0, 21.0, 60.0, 0.35)


def test_std_and_noise_multiplier_say_the_same(client):
    assert _spectral(client, noise_multiplier=None, std=1.0) == _spectral(client)


def test_a_ratio_gives_the_kept_number_and_the_printed_one_its_sign(client):
    answer = _spectral(client, kept=None, filtering_ratio=[0.75], rounding="floor")
    assert answer["filter"]["kept"] == [4]
    found = _about(answer, "filtering ratio rho")
    assert (found["printed"], found["proven"], found["direction"]) == (-0.75, 0.75, "differs")


def test_signal_energy_and_both_orders_of_clipping_are_what_numpy_says(client):
    signal = np.random.default_rng(4).normal(size=16)
    spectrum = np.fft.fft(signal, norm="ortho")
    index = np.arange(16)
    kept = math.sqrt(float(np.sum(np.abs(spectrum[np.minimum(index, 16 - index) < 4]) ** 2)))
    whole = float(np.linalg.norm(signal))
    answer = _spectral(client, signal=signal.tolist())
    assert answer["signal"]["kept_energy_fraction"] == pytest.approx((kept / whole) ** 2, rel=1e-12)
    found = _about(answer, "left after clipping to S and filtering")
    assert (found["printed"], found["proven"]) == pytest.approx((min(1.0, 2.0 / whole) * kept, min(2.0, kept)), rel=1e-12)
    assert found["direction"] == "loose"
    power = (np.abs(np.fft.rfft(signal, norm="ortho")) ** 2).tolist()
    again = _spectral(client, power_spectrum=power)["signal"]
    assert again == pytest.approx(answer["signal"], rel=1e-12)


def test_expected_squared_error_is_that_of_real_releases(client):
    from zetadp.mechanisms import NumpySource, Sensitivity, Spectral

    signal = 0.4 * np.random.default_rng(4).normal(size=16)
    answer = _spectral(client, signal=signal.tolist())
    mechanism = Spectral(shape=(16,), kept=(4,), std=1.0, sensitivity=Sensitivity(l2=2.0, adjacency="add_remove", unit="record"))
    kept = mechanism.low_pass.project(signal)
    clipped = kept / max(1.0, float(np.linalg.norm(kept)) / 2.0)
    released = mechanism.release(np.broadcast_to(clipped, (40_000, 16)), NumpySource.from_seed(9))
    errors = np.sum((released - signal) ** 2, axis=1)
    assert answer["signal"]["expected_squared_error"] == pytest.approx(errors.mean(), abs=5.0 * errors.std() / 200.0)


def test_cropping_first_keeps_more(client):
    signal = [1.0] * 16
    found = _about(_spectral(client, signal=signal, support=[4]), "cropping the padding")
    assert (found["printed"], found["proven"], found["direction"]) == (1.0, 2.0, "loose")


def test_a_signal_of_zeros_has_no_fraction_and_no_nan(client):
    answer = _spectral(client, signal=[0.0] * 16, support=[1])
    assert answer["signal"]["kept_energy_fraction"] is None
    assert _about(answer, "left after clipping to S and filtering")["ratio"] is None


def test_gradients_need_a_conjugate_and_a_factor(client):
    found = _about(_spectral(client, shape=[9, 9], kept=[3, 3]), "equation (5)")
    assert found["proven"] == 9.0
    assert [step["value"] for step in found["counterexample"]["steps"]] == [0.0, 0.0, 1.0]


def test_circulant_rows_are_correlations(client):
    found = _about(_spectral(client), "circulant block of size 16")
    assert (found["printed"], found["proven"]) == (0.0, 2.0)
    assert [step["value"] for step in found["counterexample"]["steps"]] == pytest.approx([1.0, -1.0])
    assert _about(_spectral(client, shape=[2], kept=[1]), "circulant block of size 2")["direction"] == "equal"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kept": [17]}, "at most the axis length"),
        ({"kept": [0]}, ">= 1"),
        ({"kept": [4, 4]}, "one number for each axis"),
        ({"shape": []}, "at least 1 entry"),
        ({"kept": None}, "kept: must be given, or filtering_ratio instead, got 'neither'"),
        ({"filtering_ratio": [0.5], "rounding": "floor"}, "got 'both'"),
        ({"kept": None, "filtering_ratio": [0.5]}, "rounding: must be given with filtering_ratio"),
        ({"kept": None, "filtering_ratio": [-0.5], "rounding": "nearest"}, "the printed (K - N) / N has the wrong sign"),
        ({"kept": None, "filtering_ratio": [0.99], "rounding": "floor"}, "small enough to keep one of 16"),
        ({"kept": None, "filtering_ratio": [0.5, 0.5], "rounding": "floor"}, "one number for each axis"),
        ({"kept": None, "filtering_ratio": [0.5], "rounding": "down"}, "'floor', 'ceil' or 'nearest'"),
        ({"noise_multiplier": None}, "noise_multiplier: must be given, or std instead"),
        ({"std": 1.0}, "noise_multiplier: must be given, or std instead, got 'both'"),
        ({"noise_multiplier": 0.0}, ">= 1e-50"),
        ({"clip": -1.0}, ">= 1e-50"),
        ({"positions": [[16]]}, "inside shape [16]"),
        ({"positions": [[0, 0]]}, "inside shape [16]"),
        ({"signal": [1.0]}, "16 numbers"),
        ({"signal": [1.0] * 16, "power_spectrum": [1.0] * 9}, "absent where signal is given"),
        ({"power_spectrum": [1.0] * 16}, "9 numbers"),
        ({"power_spectrum": [-1.0] * 9}, ">= 0"),
        ({"support": [3]}, "given with signal only"),
        ({"signal": [1.0] * 16, "support": [17]}, "inside shape [16]"),
        ({"signal": [1e60] * 16}, "<= 1e+50"),
        ({"sigma": 1.0}, "no field with this name"),
    ],
)
def test_requests_that_make_no_sense_are_refused(client, changes, message):
    request = {name: value for name, value in {**BASE, **changes}.items() if value is not None}
    assert message in problem(client.post("/v1/compare/spectral", json=request))["detail"]


@pytest.mark.parametrize("shape", [[1], [2], [2**31], [1, 1], [2**31, 2**31]])
@pytest.mark.parametrize(("size", "other"), [(1e-50, 1e50), (1e50, 1e-50)])
def test_absurd_filters_and_noises_are_answered_without_nan(client, shape, size, other):
    for noise in ({"noise_multiplier": size}, {"noise_multiplier": other}, {"noise_multiplier": None, "std": other}):
        response = _spectral(client, shape=shape, kept=shape, clip=size, epsilons=[0.0, 1e50], deltas=[5e-324, 0.999], **noise)
        assert "NaN" not in str(response)


def test_line_7_gives_every_layer_norm_one(client):
    answer = _post(client, "layers", clips=[0.1, 0.5, 2.0], noise_multiplier=1.0, deltas=[1e-5])
    smallest = _about(answer, "layer with the smallest bound")
    assert (smallest["printed"], smallest["proven"], smallest["ratio"], smallest["direction"]) == (0.1, 1.0, 0.1, "overclaims")
    assert _about(answer, "all layers together")["proven"] == pytest.approx(math.sqrt(3.0))
    assert smallest["counterexample"]["steps"][1]["value"] == pytest.approx(1.0)
    assert _about(answer, "replaced by another")["epsilon"][0]["direction"] == "overclaims"


def test_noise_per_layer_for_the_same_mu_is_sqrt_l_larger(client):
    answer = _post(client, "layers", clips=[1.0, 2.0, 3.0], noise_multiplier=2.0)
    stds = answer["noise_std_per_layer"]
    assert math.sqrt(sum((clip / std) ** 2 for clip, std in zip([1.0, 2.0, 3.0], stds, strict=True))) == pytest.approx(0.5)


@pytest.mark.parametrize("changes", [{"clips": []}, {"clips": [0.0]}, {"noise_multiplier": 0.0}, {"clips": [1.0] * 1001}])
def test_layers_that_make_no_sense_are_refused(client, changes):
    problem(client.post("/v1/compare/layers", json={"clips": [1.0], "noise_multiplier": 1.0, **changes}))


def test_corollary_2_is_wrong_by_the_factors_of_its_row(client):
    answer = _post(client, "spectral_training", order=2.0, epsilon=0.01, delta=1e-5, iterations=1000)
    renyi, total = _about(answer, "Renyi divergence"), _about(answer, "all iterations")
    assert renyi["printed"] == 0.01
    assert renyi["proven"] == pytest.approx(5.657, abs=1e-3)
    assert (total["printed"], total["proven"]) == pytest.approx((21.5, 3148.0), abs=0.5)
    assert answer["equivalent_orders"] is None
    assert answer["equivalent_up_to"] == pytest.approx(0.4484, abs=1e-4)


def test_corollary_2_at_order_eight(client):
    found = _about(_post(client, "spectral_training", order=8.0, epsilon=0.01, delta=1e-5, iterations=1000), "all iterations")
    assert (found["printed"], found["proven"]) == pytest.approx((11.64, 103.6), abs=0.06)


def test_corollary_2_holds_within_its_narrow_band(client):
    delta, noise_epsilon, order = 1e-5, 0.4, 59.0
    epsilon = noise_epsilon + math.log(delta) / (order - 1.0)
    answer = _post(client, "spectral_training", order=order, epsilon=epsilon, delta=delta, iterations=1)
    assert answer["equivalent_orders"]["smallest"] < order < answer["equivalent_orders"]["largest"]
    assert _about(answer, "Renyi divergence")["direction"] == "loose"


@pytest.mark.parametrize(
    ("changes", "where"),
    [({"order": 1.0}, "order"), ({"epsilon": 0.0}, "epsilon"), ({"delta": 1.0}, "delta"), ({"iterations": 0}, "iterations")],
)
def test_corollaries_that_make_no_sense_are_refused(client, changes, where):
    request = {"order": 2.0, "epsilon": 0.01, "delta": 1e-5, "iterations": 10, **changes}
    assert where in problem(client.post("/v1/compare/spectral_training", json=request))["detail"]


@pytest.mark.parametrize(("delta", "part"), [(1e-5, 0.797), (1e-3, 1.313), (0.1, 2.36)])
def test_the_classic_noise_at_eight_breaks_its_promise_beyond_the_threshold(client, delta, part):
    answer = _post(client, "classic_gaussian", epsilon=8.0, delta=delta)
    found = _about(answer, "delta at epsilon")
    assert found["proven"] / delta == pytest.approx(part, rel=2e-3)
    assert answer["holds"] == (part < 1.0) == (answer["holds_up_to"] > 8.0)
    assert found["direction"] == ("loose" if part < 1.0 else "overclaims")
    assert answer["covered_by_the_theorem"] is False


def test_the_exact_noise_just_keeps_its_promise(client):
    answer = _post(client, "classic_gaussian", epsilon=1.0, delta=1e-5)
    assert answer["noise_multiplier"] == pytest.approx(3.730631634816, rel=1e-10)
    assert _about(answer, "noise multiplier that")["direction"] == "loose"
    event = {"kind": "gaussian", "std": answer["noise_multiplier"], "sensitivity": {"l2": 1.0, "adjacency": "add_remove", "unit": "record"}}
    profile = client.post("/v1/profiles", json={"event": {"kind": "release", "mechanism": event}, "epsilons": [1.0]}).json()
    assert profile["delta"][0]["upper"] <= 1e-5


@pytest.mark.parametrize("epsilon", [1e-50, 1e50])
@pytest.mark.parametrize("delta", [1e-300, 0.5, 1.0 - 1e-16])
def test_absurd_promises_are_answered_without_nan(client, epsilon, delta):
    assert "NaN" not in str(_post(client, "classic_gaussian", epsilon=epsilon, delta=delta))


def test_the_spectral_mechanism_is_offered_and_accounted(client):
    entry = next(entry for entry in client.get("/v1/mechanisms").json() if entry["kind"] == "spectral")
    question = {"event": {"kind": "release", "mechanism": entry["example"]}, "deltas": [1e-5], "derivation": True}
    answer = client.post("/v1/profiles", json=question).json()
    assert answer["gdp_mu"] == 1.0
    assert "kept_dimensions" in {step["symbol"] for step in answer["derivation"]}
