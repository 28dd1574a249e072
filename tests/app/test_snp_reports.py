"""Reports of AMD SEV-SNP: recorded ones by AMD's own certificates, and others by keys of the tests' own, in the published layouts."""

from __future__ import annotations

import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP384R1, generate_private_key

from tests.app.machine_harness import (
    AMD,
    CHAIN,
    CHOSEN,
    RECORDED,
    TCB,
    TURIN,
    TURIN_CHAIN,
    TURIN_ORDER,
    TURIN_TCB,
    Machine,
    certified,
    changed,
    numbers_of,
    parts_of,
)
from zetadp.app.certificates.signing.machine_keys import EndorsementRefused, ReportRefused, check_chosen
from zetadp.app.certificates.signing.snp_reports import SnpReport, endorsement_in


@pytest.fixture(scope="module")
def machine() -> Machine:
    return Machine.made()


def test_a_recorded_report_is_signed_by_the_key_that_amds_certificates_name() -> None:
    report, endorsed = SnpReport.read(RECORDED), endorsement_in(CHAIN)
    check_chosen(report.data, CHOSEN)
    report.check_signature(endorsed.key)
    assert endorsed.is_for(report)
    assert report.chip.hex().startswith("3ac3fe21e13fb0990eb28a802e3fb6a2")
    assert report.measurement.hex().startswith("b07af9620f3b839b47996422ddec6058")
    assert (report.layout, report.privilege, report.allows_debugging, report.allows_migration, report.by_vlek) == (2, 0, True, False, False)


def test_a_recorded_report_of_turin_is_signed_by_the_key_that_amds_certificates_name() -> None:
    report, endorsed = SnpReport.read(TURIN), endorsement_in(TURIN_CHAIN)
    said = endorsed.check_signature(report)
    assert endorsed.is_for(report)
    assert "the key of the chip 3b42092f69c656d3... with firmware 0001000200000047 signed it" in said
    check_chosen(report.data, bytes.fromhex("e0fd0bdb6aa4030a6ddea9073e1fcec5be6c782a2c8075a0825dfb3d9a81b924"))
    assert report.measurement.hex().startswith("f924dd18f168df60fbea937f0b086284")
    assert (report.layout, report.privilege, report.allows_debugging, report.allows_migration, report.by_vlek) == (
        5,
        0,
        False,
        False,
        False,
    )
    milan = endorsement_in(CHAIN)
    assert not milan.is_for(report)
    assert not endorsed.is_for(SnpReport.read(RECORDED))


@pytest.mark.parametrize(("recorded", "chain"), [(RECORDED, CHAIN), (TURIN, TURIN_CHAIN)], ids=["Milan", "Turin"])
def test_no_byte_of_a_recorded_report_can_be_changed(recorded: bytes, chain: str) -> None:
    endorsed = endorsement_in(chain)
    for place in range(len(recorded)):
        with pytest.raises(ReportRefused):
            SnpReport.read(changed(recorded, place, bytes([recorded[place] ^ 1]))).check_signature(endorsed.key)
    for other in (recorded[:-1], recorded + b"\0", b""):
        with pytest.raises(ReportRefused, match="a report has 1184 bytes"):
            SnpReport.read(other)


@pytest.mark.parametrize("layout", [2, 3, 5])
def test_reserved_bytes_must_be_zero_in_each_layout(machine: Machine, layout: int) -> None:
    reserved = {
        2: ((0x4C, 4), (0x188, 24), (0x1EB, 1), (0x1EF, 1), (0x1F8, 168)),
        3: ((0x4C, 4), (0x18B, 21), (0x1EB, 1), (0x1EF, 1), (0x1F8, 168)),
        5: ((0x4C, 4), (0x18B, 21), (0x1EB, 1), (0x1EF, 1), (0x208, 152)),
    }[layout]
    honest = machine.report(CHOSEN, layout=layout)
    filled = bytearray(b"\1" * 1184)  # so that what isn't reserved may be anything, as far as the form goes
    for place, size in ((0x00, 0x50), (0x2A0, 512), *reserved):
        filled[place : place + size] = honest[place : place + size]
    SnpReport.read(honest)
    SnpReport.read(bytes(filled))
    for begin, size in (*reserved, (0x2A0 + 144, 368)):
        for place in (begin, begin + size - 1):
            with pytest.raises(ReportRefused, match="reserved bytes aren't zero"):
                SnpReport.read(machine.signed(changed(honest, place, b"\1")))


@pytest.mark.parametrize(
    ("place", "new", "reason"),
    [
        (0x00, b"\4", "its layout is version 4"),
        (0x0A, b"\0", "reserved bits of the guest's policy"),
        (0x0B, b"\4", "reserved bits of the guest's policy"),
        (0x0F, b"\x80", "reserved bits of the guest's policy"),
        (0x30, b"\4", "it wasn't asked for from within a guest"),
        (0x30, b"\xff\xff\xff\xff", "it wasn't asked for from within a guest"),
        (0x34, b"\2", "it isn't signed by ECDSA over P-384"),
        (0x48, b"\x20", "reserved bits of the signing key's kind"),
        (0x48, b"\x08", "reserved bits of the signing key's kind"),
        (0x48, b"\x1c", "no key of the chip signed it"),
        (0x48, b"\x02", "no key of the chip signed it"),
    ],
)
def test_another_version_policy_algorithm_or_key_is_refused(machine: Machine, place: int, new: bytes, reason: str) -> None:
    with pytest.raises(ReportRefused, match=reason):
        SnpReport.read(machine.signed(changed(machine.report(CHOSEN), place, new)))


def test_numbers_of_a_signature_are_at_most_as_long_as_the_curves(machine: Machine) -> None:
    for place in (0x2A0 + 48, 0x2A0 + 72 + 71):
        with pytest.raises(ReportRefused, match="too large"):
            SnpReport.read(changed(machine.report(CHOSEN), place, b"\1")).check_signature(machine.key.public_key())


def test_a_report_about_something_else_is_refused(machine: Machine) -> None:
    report = SnpReport.read(machine.report(CHOSEN + bytes(58) + b"\1"))
    with pytest.raises(ReportRefused, match="about another code's digest or another head"):
        check_chosen(report.data, CHOSEN)


def test_certificates_must_be_of_a_chips_key_and_sign_each_other(machine: Machine) -> None:
    own, between, root = parts_of(CHAIN)
    # The names are the same as of ``machine``'s, but nothing else.
    own_alike, between_alike, root_alike = parts_of(Machine.made().pem)
    own_made, between_made, root_made = parts_of(machine.pem)
    others = (
        (own, between),
        (own, root, between),
        (own, between, between),
        (own, between, root_alike),
        (between, root, root),
        (own_alike, between_made, root_made),
        (own_made, between_alike, root_made),
        (own_made, between_made, root_alike),
    )
    for pem in ("", "text", own, *("".join(parts) for parts in others), CHAIN.replace("MII", "MIJ", 1)):
        with pytest.raises(EndorsementRefused):
            endorsement_in(pem)


def test_the_last_certificate_must_have_signed_itself(machine: Machine) -> None:
    above, root, between, own = (generate_private_key(SECP384R1()) for _ in range(4))
    first = certified("VCEK", own, "ASK", between, numbers_of(machine.chip, machine.tcb)) + certified("ASK", between, "ARK", root)
    endorsement_in(first + certified("ARK", root, "ARK", root))
    with pytest.raises(EndorsementRefused, match="don't follow each other"):
        endorsement_in(first + certified("ARK", root, "ABOVE", above))


def test_a_key_of_turin_names_a_shorter_chip_and_one_version_more() -> None:
    turin = Machine.made(chip=b"\xab" * 8, tcb=TURIN_TCB, held=numbers_of(b"\xab" * 8, TURIN_TCB, TURIN_ORDER))
    found, report = endorsement_in(turin.pem), SnpReport.read(turin.report(CHOSEN, layout=3))
    assert found.is_for(report)
    assert f"chip {'ab' * 8}... with firmware {TURIN_TCB.hex()}" in found.check_signature(report)
    for place in (*range(0x180, 0x188), 0x1A0, 0x1A8, 0x1DF):
        assert not found.is_for(SnpReport.read(changed(report.content, place, b"\x77")))


@pytest.mark.parametrize(
    "held",
    [
        numbers_of(b"\xab" * 64, TURIN_TCB, TURIN_ORDER),
        numbers_of(b"\xab" * 8, TCB),
        {name: value for name, value in numbers_of(b"\xab" * 64, TCB).items() if name != f"{AMD}4"},
        {name: value for name, value in numbers_of(b"\xab" * 64, TCB).items() if name != f"{AMD}3.8"},
        numbers_of(b"\xab" * 64, TCB) | {f"{AMD}3.8": b"\2\2\1\0"},
        numbers_of(b"\xab" * 64, TCB) | {f"{AMD}5": b"\x0c\1a"},
        numbers_of(b"\xab" * 64, TCB) | {f"{AMD}5": b"\x16\2a"},
        numbers_of(b"\xab" * 64, TCB) | {f"{AMD}5": b"\x16\0"},
        numbers_of(b"\xab" * 64, TCB) | {f"{AMD}5": b""},
    ],
    ids=[
        "long chip of Turin",
        "short chip",
        "no chip",
        "no microcode",
        "large number",
        "other text",
        "short text",
        "empty text",
        "no text",
    ],
)
def test_a_certificate_that_names_chip_cloud_or_firmware_otherwise_is_refused(held: dict[str, bytes]) -> None:
    with pytest.raises(EndorsementRefused, match="doesn't name a chip or a cloud, and firmware"):
        endorsement_in(Machine.made(held=held).pem)


def test_a_clouds_key_is_for_reports_by_it_from_any_chip() -> None:
    named = numbers_of(b"", TCB) | {f"{AMD}5": b"\x16\5cloud"}
    cloud = Machine.made(held={name: value for name, value in named.items() if name != f"{AMD}4"})
    found, report = endorsement_in(cloud.pem), SnpReport.read(cloud.report(CHOSEN, key_info=1 << 2))
    assert found.is_for(report)
    said = found.check_signature(report)
    assert f"the key of the cloud 'cloud', on whichever of its chips, with firmware {TCB.hex()} signed it" in said
    assert found.is_for(SnpReport.read(changed(report.content, 0x1A0, b"\x77")))
    assert not found.is_for(SnpReport.read(cloud.report(CHOSEN)))
    assert not found.is_for(SnpReport.read(changed(report.content, 0x187, b"\x77")))
    with pytest.raises(ReportRefused, match="its signature doesn't hold"):
        endorsement_in(Machine.made(held=named).pem).check_signature(report)


def test_a_key_is_of_one_chip_and_one_state_of_its_firmware(machine: Machine) -> None:
    found, report = endorsement_in(machine.pem), SnpReport.read(machine.report(CHOSEN))
    assert found.is_for(report)
    assert not found.is_for(SnpReport.read(machine.report(CHOSEN, key_info=1 << 2)))
    for place in (*range(0x180, 0x188), 0x1A0, 0x1DF):
        assert not found.is_for(SnpReport.read(changed(report.content, place, b"\x77")))
