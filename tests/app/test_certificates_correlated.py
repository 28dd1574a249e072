"""What a certificate says of units that take turns and of noise that is correlated along the steps."""

from __future__ import annotations

from collections.abc import Callable

from zetadp.app.certificates.facts.guarantee import ApproximateDp
from zetadp.app.certificates.words.reading import Reading

Readings = Callable[[str], Reading]
Texts = Callable[[str], str]


def test_a_certificate_tells_whose_turn_it_is(text: Texts) -> None:
    assert "Turns: 3 groups of units have samples of their own, one after the other: a unit can be in at most 14 of 40 samples." in text(
        "cyclic"
    )
    assert "Epochs: of 7 steps each; one that isn't finished is charged as a whole." in text("allocated")


def test_a_certificate_tells_how_noise_is_correlated(text: Texts, reading: Readings) -> None:
    told = text("banded")
    assert "Bands: 2, with weights 0.8935546875, 0.447265625." in told
    assert "what a record adds in its turn shows in as many releases as there are bands" in told
    assert "their sums are exact in float64" in told
    assert "banded_sums.md" in reading("banded").proofs
    assert reading("banded").certificate.guarantee == reading("cyclic").certificate.guarantee


def test_a_certificate_tells_of_bands_with_one_turn_of_each_epoch(text: Texts, reading: Readings) -> None:
    told = text("banded_allocated")
    assert (
        "Turns: 3 groups of units have samples of their own, one after the other. Epochs: of 4 turns of each group, 12 steps, of which a "
        "unit is in one; one that isn't finished is charged as a whole."
    ) in told
    assert "2 releases with complex Gaussian noise" in told
    assert "each over 4 steps, of which each record takes part in one, chosen uniformly; each time, the data are those of the group" in told
    assert "Bands: 2, with weights 0.8935546875, 0.447265625." in told
    assert "Steps: 20 charged (some of an interrupted epoch may have released nothing) of 20 planned" in told
    assert "banded_sums.md" in reading("banded_allocated").proofs
    assert any("in every epoch it takes part in one of its group's turns" in one for one in reading("banded_allocated").assumptions)


def test_a_certificate_of_buffered_noise_counts_all_steps_as_one_release(text: Texts, reading: Readings) -> None:
    told = text("buffered")
    assert "Buffers: weights 0.5 decaying by 0.5, all times 0.500017" in told
    assert "1 release with complex Gaussian noise of standard deviation 1.0" in told
    assert "on all of the data; all 40 noisy sums together count as this one" in told
    assert "no benefit of sampling is claimed" in told
    guarantee = reading("buffered").certificate.guarantee
    assert isinstance(guarantee, ApproximateDp)
    assert guarantee.gdp_mu == "0.5000001"


def test_a_certificate_of_banded_inverse_noise_counts_all_steps_as_one_release(text: Texts, reading: Readings) -> None:
    told = text("inverse")
    assert "Inverse bands: 0.5, 0.125, 0.0625, all times 0.4" in told
    assert "on all of the data; all 40 noisy sums together count as this one" in told
    assert "no benefit of sampling is claimed" in told
    assert "the rounding of every operation, in all steps, is within the sensitivity" in told
    assert "banded_sums.md" in reading("inverse").proofs
    assert reading("inverse").certificate.guarantee == reading("buffered").certificate.guarantee


def test_a_certificate_tells_of_noise_that_is_correlated_at_nodes(text: Texts, reading: Readings) -> None:
    for name in ("federated_banded", "federated_lambda"):
        told = text(name)
        assert "Every node weights its own sums alone" in told
        assert "a unit's guarantee is the same at each" in told
        assert "banded_sums.md" in reading(name).proofs
        assert any("groups take turns in the same rounds at all nodes" in one for one in reading(name).assumptions)
    assert "14 releases with complex Gaussian noise" in text("federated_banded")
    assert "at each node; each time, the data are those of the group whose turn it is" in text("federated_banded")
    assert "all 40 noisy sums together count as this one" in text("federated_lambda")
