r"""A model card for the Hugging Face Hub: what a certificate says, in Markdown with YAML metadata.

A card is for reading and proves nothing; it says so, and how to check the certificate. All words are the certificate's own document's.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from zetadp.app.certificates.facts.guarantee import ApproximateDp
from zetadp.app.certificates.log.evidence import Evidence
from zetadp.app.certificates.page.blocks import Block, Bullets, CurvePlot, Document, Table, Text, visible
from zetadp.app.certificates.page.content import document_of
from zetadp.app.certificates.signing.keys import PublicKeySet
from zetadp.app.certificates.words.caveats import caveats, not_covered_elsewhere
from zetadp.app.certificates.words.reading import Reading
from zetadp.integrations.valid_certificate import valid_certificate
from zetadp.mechanisms.errors import InvalidParameter

_NO_EVIDENCE = Evidence()
_CHECK_IT = """\
## Check it

This card is for reading and proves nothing: anybody can write one. Only the signed certificate counts. Put it next to the files that it
names, get its signer's keys over a channel that you trust, and let zetadp check the signature, the files and the figures:

```sh
zetadp verify certificate.json --keys keys-i-trust.json
```
"""


def model_card(
    certificate: bytes, keys: PublicKeySet, *, license_id: str | None, folder: Path | None = None, evidence: Evidence = _NO_EVIDENCE
) -> str:
    r"""The text of a model's ``README.md``.

    It has epsilon, delta and the tag ``differential-privacy`` only if the certificate guarantees something, and then everything that can
    void it; else it says that there is no guarantee, and why.

    Args:
      certificate: a DSSE envelope or a compact JWS.
      keys: that you trust; the card is written only for a certificate that is valid with them.
      license_id: of the model, by the Hub's names, such as "apache-2.0"; None leaves it out.
      folder: with the files that the certificate names, which are then checked; None checks none.
      evidence: of the log and of revoked keys, which is then checked.
    Raises:
      InvalidParameter: the certificate isn't valid, or ``license_id`` isn't such a name.
    """
    if license_id is not None and re.fullmatch(r"[a-z0-9][a-z0-9.+-]{0,99}", license_id) is None:
        raise InvalidParameter("license_id", "a license's name on the Hub: small letters, digits and .+-", license_id)
    found = valid_certificate(certificate, keys, folder, evidence)
    reading = Reading(found.statement.predicate)
    document = document_of(found.statement.predicate, found.statement.subject, found.checks)
    files = Table(("file", "SHA-256"), tuple((one.name, one.digest.sha256) for one in found.statement.subject))
    lines = [
        "---",
        *([] if license_id is None else [f"license: {_quoted(license_id)}"]),
        *_metadata(reading, hashlib.sha256(certificate).hexdigest()),
        "---",
        "",
        *_body(document),
        "## The files it is about",
        "",
        *_block(files),
    ]
    return "\n".join(lines) + "\n" + _CHECK_IT


def _metadata(reading: Reading, digest: str) -> Iterator[str]:
    guarantee = reading.certificate.guarantee
    if not isinstance(guarantee, ApproximateDp):
        yield from ("privacy:", "  guarantee: none", f"  reason: {_quoted(guarantee.reason)}", f"  certificate_sha256: {_quoted(digest)}")
        return
    assert reading.adjacency is not None  # a guarantee has neighbours
    yield from ("tags:", "- differential-privacy", "privacy:", "  guarantee: approximate_dp")
    figures = {
        "epsilon": guarantee.epsilon,
        "delta": guarantee.delta,
        "unit": reading.unit,
        "adjacency": reading.adjacency.value,
        "trust": reading.trust,
    }
    yield from (f"  {name}: {_quoted(value)}" for name, value in figures.items())
    yield "  caveats:"
    for caveat in caveats(reading, guarantee):
        yield from (f"  - {_quoted(f'{caveat.lead} {line}' if line else caveat.lead)}" for line in caveat.lines or ("",))
    yield f"  - {_quoted(f'The floating-point caveat: {reading.floating_point}')}"
    yield from (f"  - {_quoted(f'Not covered: {line}')}" for line in not_covered_elsewhere(reading))
    yield f"  certificate_sha256: {_quoted(digest)}"


def _body(document: Document) -> Iterator[str]:
    verdict = document.verdict
    yield from ("# Privacy", "", f"**{_escaped(verdict.headline)}**", "", _escaped(document.subtitle), "")
    for caveat in verdict.caveats:
        yield from (_escaped(caveat.lead), "", *_block(Bullets(caveat.lines)))
    yield from _block(Text(verdict.lines))
    for section in document.sections:
        if not section.is_detail:
            yield from (f"## {_escaped(section.heading)}", "")
            for block in section.blocks:
                yield from _block(block)


def _block(block: Block) -> Iterator[str]:
    match block:
        case Text():
            for line in block.lines:
                yield from (_escaped(line), "")
        case Bullets():
            if block.lines:
                yield from (*(f"- {_escaped(line)}" for line in block.lines), "")
        case Table():
            rule = "|" + " --- |" * len(block.header)
            yield from (_row(block.header), rule, *map(_row, block.rows), "")
        case CurvePlot():
            yield from (_escaped(block.description), "")


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(map(_escaped, cells)) + " |"


def _escaped(text: str) -> str:
    r"""The text as Markdown that shows just it: what somebody wrote about their data can't become a heading, a link or HTML.

    >>> _escaped("# a [link](https://x) <b>")
    '\\# a \\[link\\](https\\://x) \\<b\\>'
    """
    safe = re.sub(r"([\\`*_{}\[\]<>#|~&$@!])", r"\\\1", visible(text).strip())
    safe = re.sub(r"://|(?<=www)\.", lambda found: "\\" + found[0], safe, flags=re.IGNORECASE)
    # What begins a list, a rule or a heading, at the beginning of a line.
    return re.sub(r"^([-+=]|\d+(?=[.)]))", lambda found: found[0] + "\\" if found[0].isdigit() else "\\" + found[0], safe)


def _quoted(text: str) -> str:
    """A text in YAML. Every JSON text of printable characters is one."""
    return json.dumps(visible(text), ensure_ascii=False)
