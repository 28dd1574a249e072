"""Certificates of every kind of training: what each says, and that it verifies."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.app.certificate_kinds import KINDS, UNGUARANTEED
from tests.app.certificates_harness import statement_of
from tests.selection import thinned
from zetadp.app.certificates.errors import CertificateRefused
from zetadp.app.certificates.facts.guarantee import ApproximateDp, NoGuarantee
from zetadp.app.certificates.facts.statement import PrivacyCertificate
from zetadp.app.certificates.issuing import issue
from zetadp.app.certificates.issuing.issue import CertificateInput, issue_certificate
from zetadp.app.certificates.page.plain import describe
from zetadp.app.certificates.signing.keys import PublicKeySet
from zetadp.app.certificates.verification.verify import read, verify
from zetadp.app.certificates.words.reading import Reading
from zetadp.app.kit.settings import Settings
from zetadp.trainer import ALGORITHMS
from zetadp.trainer.specs.report import RunReport, Selected

pytestmark = pytest.mark.usefixtures("table_of_kinds")


@pytest.mark.parametrize("name", thinned(KINDS, every=3))
def test_a_certificate_of_every_kind_verifies(name: str, envelopes: dict[str, bytes], keys: PublicKeySet) -> None:
    report = verify(envelopes[name], keys, None)
    assert report.verdict == "valid", report.checks


@pytest.mark.parametrize("name", thinned(KINDS, every=4))
def test_a_certificate_survives_its_json(name: str, predicates: dict[str, PrivacyCertificate]) -> None:
    assert PrivacyCertificate.model_validate_json(predicates[name].model_dump_json()) == predicates[name]


def test_every_algorithm_but_the_known_ones_is_certified_here() -> None:
    tested = {document["algorithm"] for document in KINDS.values()}
    elsewhere = {"zeta_dp_sgd", "federated_zeta_dp_sgd", "dp_sgd_laplace_printed"}
    assert tested | elsewhere == {known.algorithm_name() for known in ALGORITHMS}


@pytest.mark.parametrize("name", thinned(UNGUARANTEED, every=3))
def test_without_a_guarantee_a_valid_certificate_says_so(name: str, envelopes: dict[str, bytes], keys: PublicKeySet) -> None:
    report = verify(envelopes[name], keys, None)
    assert "the certificate states NO privacy guarantee" in report.meaning
    assert (report.verdict, report.guarantee) == ("valid", "none")


# Spectral-DP


def test_layer_bounds_are_named_with_the_bound_of_the_whole(texts: dict[str, str]) -> None:
    # 0.3^2 + 0.4^2 + 1.2^2 = 1.3^2, rounded up.
    layers = "0.3 for 1_convolution, 0.4 for 3_block_circulant_linear, 1.2 for 4_linear"
    assert f"Clipping: layer by layer ({layers}), to an l2 norm of 1.3000000000000003 in all" in texts["spectral"]


def test_kept_frequencies_are_told_layer_by_layer(texts: dict[str, str]) -> None:
    # Seven of nine numbers are kept along each axis: 49 / 81 of the variance, and more than the kernel has.
    first = "Layer 1_convolution: 200 of 200 numbers (8 signals of 5 x 5, padded to 9 x 9, the first 4 x 4 frequencies)"
    assert f"{first}; noise variance in a weight: 0.6049383 of that on a released number." in texts["spectral"]
    second = "Layer 3_block_circulant_linear: 80 of 128 numbers (16 signals of 8, the first 3 frequencies)"
    assert f"{second}; noise variance in a weight: 0.625 of that on a released number." in texts["spectral"]


def test_filtering_is_said_to_earn_no_privacy(texts: dict[str, str]) -> None:
    sentence = "filtering adds no privacy: mu and epsilon are those of the same noise without any filter"
    assert sentence in texts["spectral"]
    assert sentence in texts["clipped_first"]


def test_the_order_of_clipping_and_filtering_is_told(texts: dict[str, str]) -> None:
    assert "norms are those of the kept coordinates" in texts["spectral"]
    assert "scaled down by the norms that it had before any filter" in texts["clipped_first"]


def test_a_filter_changes_nothing_of_the_guarantee(predicates: dict[str, PrivacyCertificate]) -> None:
    assert predicates["spectral"].guarantee == predicates["clipped_first"].guarantee
    assert predicates["spectral"].event == predicates["clipped_first"].event


# Records released once


def test_a_local_release_is_certified_with_its_pure_epsilon(predicates: dict[str, PrivacyCertificate], texts: dict[str, str]) -> None:
    guarantee = predicates["spof_duchi"].guarantee
    assert isinstance(guarantee, ApproximateDp)
    assert guarantee.pure_epsilon == "4"
    assert float(guarantee.epsilon) <= 4.0
    assert "one record is one row, and its one release is its whole privacy cost" in texts["spof_duchi"]
    assert "One record's release costs epsilon 4 at delta 0." in texts["spof_duchi"]


def test_a_users_rows_share_its_budget(predicates: dict[str, PrivacyCertificate], texts: dict[str, str]) -> None:
    guarantee = predicates["spof_users"].guarantee
    assert isinstance(guarantee, ApproximateDp)
    # Two coordinates in [0, 1] with scale 4, three rows.
    assert guarantee.pure_epsilon == "1.5"
    assert "One record's release costs epsilon 0.5 at delta 0." in texts["spof_users"]
    assert (
        "a user's rows share its budget equally: each was released separately with the same noise, at most 3 of one" in texts["spof_users"]
    )
    assert "the number of a user's rows isn't hidden" in texts["spof_users"]


def test_gaussian_rows_have_mu_and_no_pure_epsilon(predicates: dict[str, PrivacyCertificate], texts: dict[str, str]) -> None:
    guarantee = predicates["spof_gaussian"].guarantee
    assert isinstance(guarantee, ApproximateDp)
    # The diagonal of the box over the deviation, times the root of four rows: sqrt(2) / 2 * 2.
    assert (guarantee.pure_epsilon, guarantee.gdp_mu) == (None, "1.414214")
    assert "at delta 0" not in texts["spof_gaussian"]
    assert "Gaussian noise of standard deviation 2.0 on each real component, separately for every record" in texts["spof_gaussian"]


def test_neighbours_of_a_local_release_replace_one_unit(predicates: dict[str, PrivacyCertificate], texts: dict[str, str]) -> None:
    meaning = Reading(predicates["spof"]).neighbours
    assert meaning == "two data sets are neighbours if one is the other with one unit replaced by another"
    assert "The record's presence isn't hidden." in texts["spof"]
    assert "left out" not in texts["spof"]


@pytest.mark.parametrize("name", ["spof", "sums", "baseline"])
def test_nothing_is_said_of_samples_or_clipping_where_there_are_none(
    name: str, predicates: dict[str, PrivacyCertificate], texts: dict[str, str]
) -> None:
    assert not any("sample" in line for line in Reading(predicates[name]).assumptions)
    for word in ("Clipping:", "each sum divided by", "drawn with probability"):
        assert word not in texts[name]


def test_training_on_released_records_is_said_to_be_free(texts: dict[str, str]) -> None:
    assert "any number of steps and epochs costs nothing more" in texts["spof"]
    assert "Steps: 400 of training on the released records" in texts["spof"]


def test_whoever_held_the_rows_is_named(texts: dict[str, str]) -> None:
    assert "in this run the service held the rows and released them, and is trusted with them" in texts["spof"]


def test_signs_need_no_caveat_on_normal_numbers(texts: dict[str, str]) -> None:
    assert "signs were drawn by comparing 256 random bits" in texts["spof_duchi"]
    assert "normal noise" not in texts["spof_duchi"]
    assert "Laplace noise was drawn exactly" in texts["spof"]


# One statistic


def test_a_released_vector_is_told_with_its_length(predicates: dict[str, PrivacyCertificate], texts: dict[str, str]) -> None:
    guarantee = predicates["sums"].guarantee
    assert isinstance(guarantee, ApproximateDp)
    assert guarantee.pure_epsilon == "2"
    # 64 pixels and 4 units of the code: 4 * 64 + 4 * 5 / 2.
    assert "One vector of 266 sums over all training records was released once" in texts["sums"]


def test_gaussian_noise_has_mu_and_no_pure_epsilon(predicates: dict[str, PrivacyCertificate]) -> None:
    guarantee = predicates["sums_gaussian"].guarantee
    assert isinstance(guarantee, ApproximateDp)
    assert (guarantee.pure_epsilon, guarantee.gdp_mu) == (None, "0.6666667")


# Laplace noise on clipped gradients


def test_laplace_descent_under_replacement_moves_by_twice_the_bound(
    predicates: dict[str, PrivacyCertificate], texts: dict[str, str]
) -> None:
    (found,) = Reading(predicates["laplace"]).releases
    assert (found.mechanism.sensitivity.l1, found.mechanism.sensitivity.l1_contribution) == (40.0, 20.0)
    assert "Clipping: to an l1 norm of 20.0" in texts["laplace"]


# Nothing protected


@pytest.mark.parametrize("name", ["baseline", "seeded_baseline", "printed"])
def test_nothing_of_an_unprotected_run_sounds_like_a_promise(
    name: str, texts: dict[str, str], predicates: dict[str, PrivacyCertificate]
) -> None:
    text = texts[name]
    assert text.splitlines()[3] == "THERE IS NO PRIVACY GUARANTEE"
    assert "treat each of them as if it contained the training data" in text
    assert Reading(predicates[name]).unit_meaning.endswith("no row is protected")
    promises = (
        "guarantee:",
        "Protected:",
        "holds even against",
        "no further cost",
        "would rest on",
        "with probability at most",
        "It holds",
    )
    for promise in promises:
        assert promise not in text


def test_an_unprotected_run_states_its_own_reason(predicates: dict[str, PrivacyCertificate]) -> None:
    guarantee = predicates["baseline"].guarantee
    assert isinstance(guarantee, NoGuarantee)
    assert guarantee.reason.startswith("it was trained on the data as they are, without clipping and without noise")


def test_a_printed_algorithms_errata_tell_print_and_truth(predicates: dict[str, PrivacyCertificate], texts: dict[str, str]) -> None:
    rows = Reading(predicates["printed"]).errata
    told = {row.row: meaning for row, meaning in rows}
    assert told["S14"].startswith("Printed (")
    assert "What holds: " in told["S14"]
    # What is done otherwise in a protected run isn't done by such a run.
    assert not any(row.here is not None and row.here in meaning for row, meaning in rows)
    assert "  - S14 (overclaims privacy): Printed (" in texts["printed"]


# Comparisons


def test_every_part_is_listed_with_what_it_guarantees_by_itself(predicates: dict[str, PrivacyCertificate]) -> None:
    alone = predicates["spectral"].guarantee
    assert isinstance(alone, ApproximateDp)
    assert [(part.name, part.algorithm, part.by_itself.epsilon) for part in predicates["comparison"].parts] == [
        ("spectral", "spectral_dp", alone.epsilon),
        ("clipped-first", "spectral_dp", alone.epsilon),
    ]


def test_the_whole_costs_more_than_its_parts(predicates: dict[str, PrivacyCertificate]) -> None:
    whole, alone = predicates["comparison"].guarantee, predicates["spectral"].guarantee
    assert isinstance(whole, ApproximateDp)
    assert isinstance(alone, ApproximateDp)
    assert float(whole.epsilon) > 1.2 * float(alone.epsilon)


def test_choosing_among_the_parts_is_said_to_be_paid_for(texts: dict[str, str], predicates: dict[str, PrivacyCertificate]) -> None:
    assert "choosing among them by their results costs nothing more: every part is counted" in texts["comparison"]
    assert Reading(predicates["comparison"]).not_covered[0].endswith("(choosing among the parts doesn't: all of them are counted)")


def test_one_part_without_a_guarantee_leaves_the_whole_without(predicates: dict[str, PrivacyCertificate], texts: dict[str, str]) -> None:
    guarantee = predicates["with_baseline"].guarantee
    assert isinstance(guarantee, NoGuarantee)
    assert "without clipping and without noise" in guarantee.reason
    assert "nothing is guaranteed for them together" in texts["with_baseline"]
    assert "the guarantee is for all of them together" not in texts["with_baseline"]


def test_parts_about_different_neighbours_have_no_common_guarantee(predicates: dict[str, PrivacyCertificate]) -> None:
    guarantee = predicates["other_neighbours"].guarantee
    assert guarantee == NoGuarantee(
        reason="the parts have different notions of neighbours (add_remove and replace_one), so their guarantees don't add up"
    )


def test_parts_of_a_seeded_comparison_guarantee_nothing_by_themselves(predicates: dict[str, PrivacyCertificate]) -> None:
    assert [(part.by_itself.epsilon, part.by_itself.reason) for part in predicates["seeded_comparison"].parts] == [
        (None, "not private against someone who knows the seed")
    ]


def test_every_parts_model_is_a_subject(envelopes: dict[str, bytes]) -> None:
    statement: dict[str, Any] = statement_of(envelopes["comparison"])
    names = [subject["name"] for subject in statement["subject"]]
    assert {"spectral.model.safetensors", "clipped-first.model.safetensors"} <= set(names)


def test_a_hundred_parts_have_a_hundred_models(envelopes: dict[str, bytes]) -> None:
    statement: dict[str, Any] = statement_of(envelopes["many"])
    models = [subject["name"] for subject in statement["subject"] if subject["name"].endswith("model.safetensors")]
    assert len(models) == 100


def test_the_metrics_of_a_comparison_are_said_to_be_its_first_parts(texts: dict[str, str]) -> None:
    assert "Held-out records: for the first part, accuracy 0.875" in texts["comparison"]
    assert "The metrics stated here are those of the first part" in texts["comparison"]


def test_times_and_memory_in_a_table_are_said_not_to_be_covered(predicates: dict[str, PrivacyCertificate]) -> None:
    reading = Reading(predicates["comparison"])
    assert "except the running times and the memory in the table and the plots" in reading.kind.released(reading.setting)
    assert any(line.startswith("running time and memory, which the table and the plots show") for line in reading.not_covered)


def test_a_certificate_that_nobody_could_read_is_refused(
    finished: dict[str, CertificateInput], settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(issue, "MAXIMUM_BYTES", 4_000)
    with pytest.raises(CertificateRefused, match="the certificate's size was planned as 'at most 4000 bytes, as verifiers read'"):
        issue_certificate(finished["comparison"], settings)


# Private selection


def test_a_selection_says_which_candidate_came_out_and_how_the_choice_is_counted(texts: dict[str, str]) -> None:
    text = texts["selection"]
    assert "a secret number of runs, of Poisson law with mean 3.0, each with one of 2 candidates, drawn uniformly: slow, fast." in text
    assert "Outcome: the model of a run with fast" in text
    assert "how long the whole took isn't hidden from whoever watches the machine or the job" in text
    assert "(choosing among the candidates doesn't: it is counted)" in text


def test_a_selection_costs_more_than_one_run_and_less_than_as_many_as_are_expected(predicates: dict[str, PrivacyCertificate]) -> None:
    selected, alone = predicates["selection"].guarantee, predicates["spectral"].guarantee
    assert isinstance(selected, ApproximateDp)
    assert isinstance(alone, ApproximateDp)
    assert float(alone.epsilon) < float(selected.epsilon) < 1.5 * float(alone.epsilon)


def test_a_selection_states_no_time(finished: dict[str, CertificateInput], predicates: dict[str, PrivacyCertificate]) -> None:
    found = predicates["selection"]
    assert finished["selection"].started < finished["selection"].finished
    assert found.job.started == found.job.finished
    assert (found.environment.training_seconds, found.run.checkpoints_released) == (0, 0)


def test_a_selection_without_a_model_says_so_and_verifies(
    finished: dict[str, CertificateInput], settings: Settings, keys: PublicKeySet
) -> None:
    run = finished["selection"]
    empty = RunReport.model_validate(dict(run.report) | {"selected": Selected(), "metrics": None, "parameters": 0})
    envelope = issue_certificate(replace(run, report=empty), settings)
    assert verify(envelope, keys, None).verdict == "valid"
    text = describe(read(envelope))
    assert "Outcome: no model; there was no run, or all runs failed, and which of the two isn't told" in text
    assert "Held-out records: no metrics, on 181 records" in text


def test_a_selection_that_does_not_say_what_came_out_is_not_certified(finished: dict[str, CertificateInput], settings: Settings) -> None:
    run = finished["selection"]
    silent = RunReport.model_validate(dict(run.report) | {"selected": None})
    with pytest.raises(CertificateRefused, match="whether a private selection says what came out"):
        issue_certificate(replace(run, report=silent), settings)
