"""Lists of revoked certificates: of the makers of machines, whose keys sign the machines' certificates."""

from __future__ import annotations

from base64 import b64decode, encodebytes
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from random import Random

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from tests.app.machine_harness import AMDS_LIST, CHAIN, CHOSEN, TURIN, TURIN_CHAIN, Machine, certified, parts_of, revoking
from tests.app.tdx_harness import RECORDED, TdxMachine
from zetadp.app.certificates.signing.machine_keys import Chain, EndorsementRefused, ReportRefused, revoked_in
from zetadp.app.certificates.signing.snp_reports import SnpReport, endorsement_in
from zetadp.app.certificates.signing.tdx_quotes import TdxQuote

REVOKED = "its maker revoked a certificate of the key that signed it"


@pytest.fixture(scope="module")
def machine() -> TdxMachine:
    return TdxMachine.made()


def test_only_who_may_sign_certificates_stands_above_a_machines_key(machine: TdxMachine) -> None:
    other, (own, between, root) = ec.generate_private_key(ec.SECP256R1()), parts_of(machine.pem)
    below = certified("OTHER", other, "PCK", machine.key, {})
    assert Chain.read("".join((own, between, root)).encode())
    for not_above in (
        (below, own, between),
        (own, certified("Platform CA", machine.between, "Root CA", machine.root_key, {}), root),
        (own, between, certified("Root CA", machine.root_key, "Root CA", machine.root_key, {})),
    ):
        with pytest.raises(EndorsementRefused):
            Chain.read("".join(not_above).encode())


def test_a_certificate_is_looked_up_in_the_lists_of_its_issuer_alone(machine: TdxMachine) -> None:
    chain = Chain.read(machine.pem.encode())
    by_between, by_root = revoking("Platform CA", machine.between, 7), revoking("Root CA", machine.root_key)
    assert chain.in_words(()) == "no list of revoked certificates was given"
    assert chain.in_words((by_between,)).startswith("1 of the 2 certificates")
    assert chain.in_words((by_between, by_root)).startswith("2 of the 2 certificates")
    for bad in (revoking("Platform CA", machine.between, 7, 1), revoking("Root CA", machine.root_key, 1)):
        with pytest.raises(ReportRefused, match=REVOKED):
            chain.in_words((by_between, bad, by_root))
    # Whoever else revokes it: an issuer's name with another key, another name with its key, another issuer of the same chain.
    strangers = (
        revoking("Platform CA", machine.enclaves, 1),
        revoking("Root CA", machine.between, 1),
        revoking("PCK", machine.key, 1),
    )
    assert chain.in_words(strangers).startswith("0 of the 2 certificates")


def test_a_quote_and_a_report_by_a_revoked_key_are_refused(machine: TdxMachine) -> None:
    quote = machine.read(machine.report(CHOSEN))
    with pytest.raises(ReportRefused, match=REVOKED):
        quote.check_signatures((revoking("Platform CA", machine.between, 1),), machine.root)
    fine = revoking("Root CA", machine.root_key, 2)
    _, said = quote.check_signatures((fine,), machine.root)
    listed = "1 of the 2 certificates below the maker's root were looked up in the lists of revoked ones that were given"
    assert said.endswith(f"{listed}, the oldest of {revoked_in(fine).last_update_utc.date()}")
    snp = Machine.made()
    report, endorsed = SnpReport.read(snp.report(CHOSEN)), endorsement_in(snp.pem)
    with pytest.raises(ReportRefused, match=REVOKED):
        endorsed.check_signature(report, (revoking("ARK", snp.root, 1),))
    assert "1 of the 2 certificates" in endorsed.check_signature(report, (revoking("ARK", snp.root, 2),))


def test_lists_signed_as_amd_signs_are_read() -> None:
    # AMD's keys above a machine's are of RSA, and sign with PSS and salts of 48 bytes.
    root, between = (rsa.generate_private_key(65537, 2048) for _ in range(2))
    pss, began = padding.PSS(padding.MGF1(hashes.SHA384()), 48), datetime.now(UTC)

    def name(text: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])

    def made(text: str, key: rsa.RSAPrivateKey, by: str, by_key: rsa.RSAPrivateKey) -> str:
        builder = x509.CertificateBuilder(name(by), name(text), key.public_key(), 5, began, began + timedelta(days=9))
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        return builder.sign(by_key, hashes.SHA384(), rsa_padding=pss).public_bytes(Encoding.PEM).decode()

    def listed(number: int) -> str:
        builder = x509.CertificateRevocationListBuilder(name("ARK"), began, began + timedelta(days=9))
        builder = builder.add_revoked_certificate(x509.RevokedCertificateBuilder(number, began).build())
        return builder.sign(root, hashes.SHA384(), rsa_padding=pss).public_bytes(Encoding.PEM).decode()

    pem = made("VCEK", between, "ASK", between) + made("ASK", between, "ARK", root) + made("ARK", root, "ARK", root)
    chain = Chain.read(pem.encode())
    assert chain.in_words((listed(6),)).startswith("1 of the 2 certificates")
    with pytest.raises(ReportRefused, match=REVOKED):
        chain.in_words((listed(5),))


def test_amds_own_list_for_turin_counts_for_turin_alone() -> None:
    found = revoked_in(AMDS_LIST)
    assert (list(found), found.last_update_utc.date().isoformat()) == ([], "2026-08-19")
    report, endorsed = SnpReport.read(TURIN), endorsement_in(TURIN_CHAIN)
    assert endorsed.check_signature(report, (AMDS_LIST,)).endswith("that were given, the oldest of 2026-08-19")
    assert Chain.read(TURIN_CHAIN.encode()).in_words((AMDS_LIST,)).startswith("1 of the 2 certificates")
    assert Chain.read(CHAIN.encode()).in_words((AMDS_LIST,)).startswith("0 of the 2 certificates")


@pytest.mark.parametrize("seed", range(4))
def test_whatever_the_bytes_of_certificates_and_lists_are_they_are_read_or_refused(seed: int) -> None:
    # Policies hold them, so nothing else may come of reading one.
    random = Random(seed)
    texts = [AMDS_LIST, *parts_of(CHAIN)]
    for _ in range(400):
        chosen = random.randrange(len(texts))
        begin, *lines, end = texts[chosen].strip().split("\n")
        content = bytearray(b64decode("".join(lines)))
        for _ in range(random.choice((1, 2, 4))):
            content[random.randrange(len(content))] = random.randrange(256)
        pem = f"{begin}\n{encodebytes(content).decode()}{end}\n"
        with suppress(EndorsementRefused):
            if chosen == 0:
                revoked_in(pem)
                Chain.read(TURIN_CHAIN.encode()).in_words((pem,))
            else:
                endorsement_in("".join([*texts[1:chosen], pem, *texts[chosen + 1 :]]))


def test_a_strangers_list_says_nothing_of_the_recorded_ones(machine: TdxMachine) -> None:
    stranger = revoking("Intel SGX Root CA", machine.root_key, 1)
    assert TdxQuote.read(RECORDED).check_signatures((stranger,))[1].endswith("that were given")
    assert Chain.read(CHAIN.encode()).in_words((stranger,)).startswith("0 of the 2 certificates")


def test_what_is_no_list_or_has_a_part_that_is_not_read_is_refused(machine: TdxMachine) -> None:
    revoked_in(revoking("Root CA", machine.root_key, 3))
    content = bytearray(b64decode("".join(AMDS_LIST.split("\n")[1:-2])))
    content[10] = 11  # the version
    of_version_11 = f"-----BEGIN X509 CRL-----\n{encodebytes(content).decode()}-----END X509 CRL-----\n"
    for text in ("", "text", parts_of(machine.pem)[0], revoking("Root CA", machine.root_key, 3)[:-80], of_version_11):
        with pytest.raises(EndorsementRefused, match="can't be read"):
            revoked_in(text)
    with pytest.raises(EndorsementRefused, match="has a critical part"):
        revoked_in(revoking("Root CA", machine.root_key, 3, critical=True))
