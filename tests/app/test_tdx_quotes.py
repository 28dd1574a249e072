"""Quotes of Intel TDX: a recorded one by Intel's own certificates, and others by keys of the tests' own, in the published forms."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from itertools import product

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

from tests.app.machine_harness import changed, parts_of
from tests.app.tdx_harness import (
    ATTRIBUTES,
    MRSEAM,
    MRTD,
    PCK,
    RECORDED,
    RTMRS,
    VERSION5,
    TdxMachine,
    by,
    guest,
    header,
    number,
    point,
    sized,
)
from zetadp.app.certificates.signing.machine_keys import Chain, ReportRefused, check_chosen
from zetadp.app.certificates.signing.tdx_quotes import INTEL_ROOT, TdxQuote

CHOSEN = bytes([1, 2, 3, 4, 5])
BEGIN = RECORDED.index(b"-----BEGIN")
"""Of the certificates' text."""


@pytest.fixture(scope="module")
def machine() -> TdxMachine:
    return TdxMachine.made()


def test_a_recorded_quote_is_signed_up_to_intels_root() -> None:
    quote = TdxQuote.read(RECORDED)
    serial_number, said = quote.check_signatures()
    assert serial_number == "f08e3eca038db47bac5e8667a33e267426316e2e"
    assert "certificate f08e3eca038db47bac5e8667a33e267426316e2e" in said
    assert "(TCB), weren't looked at; no list of revoked certificates was given" in said
    assert quote.data.hex().startswith("00010d6bbc3fea6875f640bf334454ef179ac0db53eecf4e9a40bce3d782a213")
    digests = {"mrtd": "c68518a0ebb42136", "rtmr0": "3744b154069500a4", "rtmr1": "4b66e888c8dfa7a5", "rtmr2": "5a41c9f71ce5655b"}
    for name, begins in (digests | {"rtmr3": "47e591f8ee447150", "mrseam": "49b66faa451d19eb"}).items():
        assert quote.measured[name].startswith(begins)
    assert (quote.version, quote.measured["attributes"]) == (4, "0000001000000000")


def test_no_byte_of_a_recorded_quote_can_be_changed() -> None:
    honest = Chain.read(TdxQuote.read(RECORDED).certificates)
    for place, bit in product(range(len(RECORDED)), (1, 64)):
        try:
            quote = TdxQuote.read(changed(RECORDED, place, bytes([RECORDED[place] ^ bit])))
            quote.check_signatures()
        except ReportRefused:
            continue
        # The form of the certificates' text is nobody's word: what doesn't change them may be different there.
        assert place >= BEGIN
        assert Chain.read(quote.certificates) == honest
    for cut in (1, 300, 3000):
        with pytest.raises(ReportRefused):
            TdxQuote.read(RECORDED[:-cut])
    for other in (RECORDED + b"\1", RECORDED + bytes(9) + b"\1", b""):
        with pytest.raises(ReportRefused):
            TdxQuote.read(other)


def test_zeros_after_a_quote_are_the_kernels_up_to_a_size() -> None:
    assert TdxQuote.read(RECORDED + bytes(16_384 - len(RECORDED))) == TdxQuote.read(RECORDED)
    with pytest.raises(ReportRefused, match="at most 16384 bytes"):
        TdxQuote.read(RECORDED + bytes(16_385 - len(RECORDED)))


def test_the_recorded_beginning_of_version_5_is_signed_with_its_bodys_kind_and_size(machine: TdxMachine) -> None:
    signed, signature, key = VERSION5[:702], VERSION5[706:770], VERSION5[770:834]
    quote = TdxQuote.read(machine.quote(signed))
    # As somebody's Quoting Enclave signed it; what stands above that enclave wasn't recorded.
    theirs = replace(quote, signature=signature, key=key)
    assert theirs.signed == signed
    with pytest.raises(ReportRefused, match="the Quoting Enclave's report is about another key"):
        theirs.check_signatures(root=machine.root)
    signer = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), b"\4" + key)
    numbers = encode_dss_signature(*(int.from_bytes(part, "big") for part in (signature[:32], signature[32:])))
    signer.verify(numbers, theirs.signed, ec.ECDSA(hashes.SHA256()))
    assert (quote.version, quote.measured["mrtd"][:16]) == (5, "dfba221b48a22af8")


def test_a_built_quote_says_what_its_guest_is(machine: TdxMachine) -> None:
    quote = machine.read(machine.report(CHOSEN))
    expected = {"mrtd": MRTD.hex(), "mrseam": MRSEAM.hex(), "attributes": ATTRIBUTES.hex()}
    assert quote.measured == expected | {f"rtmr{index}": value.hex() for index, value in enumerate(RTMRS)}
    check_chosen(quote.data, CHOSEN)
    with pytest.raises(ReportRefused, match="about another code's digest or another head"):
        check_chosen(quote.data, CHOSEN + b"\1")


@pytest.mark.parametrize(("kind", "size"), [(2, 584), (3, 648)])
def test_version_5_has_bodies_of_two_kinds(machine: TdxMachine, kind: int, size: int) -> None:
    signed = header(5) + number(kind, 2) + number(size, 4) + guest(CHOSEN, size=size)
    assert machine.read(machine.quote(signed)).measured == machine.read(machine.report(CHOSEN)).measured
    for wrong_kind, wrong_size in ((1, 384), (5 - kind, size), (kind, size + 1), (4, size)):
        other = header(5) + number(wrong_kind, 2) + number(wrong_size, 4) + guest(CHOSEN, size=size)
        with pytest.raises(ReportRefused, match="none of a TDX guest"):
            TdxQuote.read(machine.quote(other))


@pytest.mark.parametrize(
    ("begin", "reason"),
    [
        (header(3), "its form is version 3"),
        (header(6), "its form is version 6"),
        (header(key_kind=3), "it isn't signed by ECDSA over P-256"),
        (header(machine_kind=0), "it isn't of a TDX guest"),
        (header(vendor=bytes(16)), "isn't Intel's by its own word"),
    ],
)
def test_another_version_key_machine_or_vendor_is_refused(machine: TdxMachine, begin: bytes, reason: str) -> None:
    with pytest.raises(ReportRefused, match=reason):
        TdxQuote.read(machine.quote(begin + guest(CHOSEN)))


@pytest.mark.parametrize("bit", range(8))
def test_a_guest_with_any_kind_of_debugging_is_refused(machine: TdxMachine, bit: int) -> None:
    with pytest.raises(ReportRefused, match="it is not confidential"):
        TdxQuote.read(machine.report(CHOSEN, attributes=bytes([1 << bit]) + ATTRIBUTES[1:]))


@pytest.mark.parametrize("place", [64, 111, 112, 119])
def test_a_module_that_is_not_intels_or_not_for_production_is_refused(machine: TdxMachine, place: int) -> None:
    with pytest.raises(ReportRefused, match="the TDX module is another's than Intel's, or not for production"):
        TdxQuote.read(machine.quote(header() + changed(guest(CHOSEN), place, b"\1")))


@pytest.mark.parametrize("fields", [{"signer": bytes(32)}, {"product": 1}, {"flags": 0x17}, {"flags": 0x5}, {"flags": 1 << 63 | 0x15}])
def test_an_enclave_of_the_machines_owner_is_refused(machine: TdxMachine, fields: dict[str, object]) -> None:
    # Its key is certified by the machine like that of Intel's, and it signs whatever its owner likes.
    enclave = machine.enclave(b"added", **fields)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ReportRefused, match="isn't Intel's Quoting Enclave"):
        machine.read(machine.quote(header() + guest(CHOSEN), enclave=enclave))
    with pytest.raises(ReportRefused, match="isn't Intel's Quoting Enclave"):
        machine.read(machine.quote(header() + guest(CHOSEN), enclave=changed(machine.enclave(b"added"), 16, b"\1")))


def test_whether_the_enclave_is_of_64_bits_does_not_count(machine: TdxMachine) -> None:
    machine.read(machine.quote(header() + guest(CHOSEN), enclave=machine.enclave(b"added", flags=0x11)))


def test_the_enclaves_report_is_about_its_key_and_what_it_added_and_nothing_else(machine: TdxMachine) -> None:
    for enclave in (machine.enclave(b"other"), changed(machine.enclave(b"added"), 383, b"\1")):
        with pytest.raises(ReportRefused, match="about another key"):
            machine.read(machine.quote(header() + guest(CHOSEN), enclave=enclave))
    machine.read(machine.quote(header() + guest(CHOSEN), authentication=b""))


def test_each_signature_has_to_be_by_the_key_above_it(machine: TdxMachine) -> None:
    other = TdxMachine.made()
    quote = machine.read(machine.report(CHOSEN))
    with pytest.raises(ReportRefused, match="the Quoting Enclave's signature doesn't hold"):
        replace(quote, signature=by(other.enclaves, quote.signed)).check_signatures(root=machine.root)
    with pytest.raises(ReportRefused, match="the machine's signature on its Quoting Enclave doesn't hold"):
        replace(quote, enclave_signature=by(other.key, quote.enclave)).check_signatures(root=machine.root)
    with pytest.raises(ReportRefused, match="isn't of Intel's root key"):
        quote.check_signatures()
    with pytest.raises(ReportRefused, match="isn't of Intel's root key"):
        quote.check_signatures(root=other.root)


def test_a_key_that_is_no_point_is_refused(machine: TdxMachine) -> None:
    key = b"\xff" * 64
    quote = machine.read(machine.report(CHOSEN))
    enclave = changed(quote.enclave, 320, hashlib.sha256(key + b"added").digest())
    lying = replace(quote, key=key, enclave=enclave, enclave_signature=by(machine.key, enclave))
    with pytest.raises(ReportRefused, match="isn't a point of P-256"):
        lying.check_signatures(root=machine.root)


def test_certificates_must_be_of_a_machines_key_and_sign_each_other(machine: TdxMachine) -> None:
    own, between, root = parts_of(machine.pem)
    alike = parts_of(TdxMachine.made().pem)
    for parts in ((own, between), (own, root, between), (own, between, alike[2]), (own, alike[1], root), (alike[0], between, root), ()):
        with pytest.raises(ReportRefused, match="Intel's certificates in it don't hold"):
            machine.read(machine.quote(header() + guest(CHOSEN), pem="".join(parts) or "none"))
    for other in (TdxMachine.made(is_pck=False), TdxMachine.made(curve=ec.SECP256K1)):
        with pytest.raises(ReportRefused, match="the first certificate isn't of a machine's key"):
            other.read(other.report(CHOSEN))


def test_parts_have_the_kinds_and_sizes_that_are_specified(machine: TdxMachine) -> None:
    signed, report = header() + guest(CHOSEN), machine.enclave(b"added")
    own = by(machine.enclaves, signed) + point(machine.enclaves)
    inner = report + by(machine.key, report) + sized(b"added", 2)
    chain = sized(machine.pem.encode(), 4)
    whole = number(6, 2) + sized(inner + number(5, 2) + chain, 4)
    machine.read(signed + sized(own + whole, 4))
    for wrong in (
        number(5, 2) + sized(machine.pem.encode(), 4),
        number(6, 2) + sized(inner + number(4, 2) + chain, 4),
        number(6, 2) + sized(inner + number(5, 2) + chain + b"\0", 4),
        whole + b"\0",
        whole[:-1],
        number(6, 2) + sized(inner[:400], 4),
    ):
        with pytest.raises(ReportRefused, match=r"it ends too early|aren't of kind"):
            TdxQuote.read(signed + sized(own + wrong, 4))


def test_intels_root_is_the_one_of_the_recorded_certificate() -> None:
    numbers = Chain.read(TdxQuote.read(RECORDED).certificates).root.public_key().public_numbers()  # pyright: ignore
    assert numbers.x.to_bytes(32, "big") + numbers.y.to_bytes(32, "big") == INTEL_ROOT  # pyright: ignore


def test_only_certificates_of_machines_have_the_part_that_is_looked_for() -> None:
    chain = Chain.read(TdxQuote.read(RECORDED).certificates)
    found = [[one.oid.dotted_string == PCK for one in each.extensions].count(True) for each in (chain.own, chain.between, chain.root)]
    assert found == [1, 0, 0]
