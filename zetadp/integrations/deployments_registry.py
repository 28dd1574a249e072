r"""An entry for the OpenDP Differential Privacy Deployments Registry, from a certificate and what only its publisher knows.

The form is that of the registry's data repository (github.com/opendp/deployments-registry-data) as its schema stood at commit 057e5d8; it
changes often. An entry is for reading and proves nothing; it names the certificate by its digest. Nobody at OpenDP has seen these words.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Annotated, Any, Literal, final

import yaml
from pydantic import Field, StringConstraints

from zetadp.app.certificates.facts.guarantee import ApproximateDp
from zetadp.app.certificates.log.evidence import Evidence
from zetadp.app.certificates.signing.keys import PublicKeySet
from zetadp.app.certificates.words.caveats import caveats, not_covered_elsewhere
from zetadp.app.certificates.words.reading import Reading
from zetadp.app.certificates.words.releases import release_phrase
from zetadp.integrations.valid_certificate import valid_certificate
from zetadp.mechanisms.base import Value
from zetadp.mechanisms.errors import InvalidParameter

_NO_EVIDENCE = Evidence()
_Line = Annotated[str, StringConstraints(strict=True, min_length=1, max_length=2000, pattern=r"^[^\x00-\x1f\x7f]*$")]


@final
class Publication(Value):
    r"""What a certificate doesn't know, in its publisher's words.

    Attributes:
      url_slug: of the entry's address; small letters, digits and hyphens.
      name, description, intended_use: of the data product.
      curator, curator_type: who publishes it.
      region: whose data, or whose laws.
      sector: of the product; None leaves it out.
      publication_date: as YYYY-MM-DD.
      preprocessing: what was done with the data before, and how hyperparameters and epsilon were chosen, paid for or not.
      justification: why these choices.
      actors: who may see the data or the model, and who of them is trusted with what.
      authors: of the entry.
    """

    url_slug: Annotated[str, StringConstraints(strict=True, pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$", max_length=100)]
    name: _Line
    description: _Line
    intended_use: _Line
    curator: _Line
    curator_type: Literal["Government", "Industry", "Nonprofit"]
    region: _Line
    sector: Literal["Technology", "Healthcare", "Education", "Government", "Energy", "Finance"] | None = None
    publication_date: Annotated[str, StringConstraints(strict=True, pattern=r"^[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])$")]
    preprocessing: _Line
    justification: _Line
    actors: _Line
    authors: Annotated[tuple[_Line, ...], Field(min_length=1, max_length=50)]


def registry_entry(
    certificate: bytes, keys: PublicKeySet, publication: Publication, *, folder: Path | None = None, evidence: Evidence = _NO_EVIDENCE
) -> str:
    r"""The entry's YAML, for a file whose name has small letters, digits and underscores; a draft, for the registry to review.

    Args:
      certificate: a DSSE envelope or a compact JWS.
      keys: that you trust; the entry is written only for a certificate that is valid with them.
      folder: with the files that the certificate names, which are then checked; None checks none.
      evidence: of the log and of revoked keys, which is then checked.
    Raises:
      InvalidParameter: the certificate isn't valid, or guarantees nothing: the registry lists deployments of differential privacy.
    """
    found = valid_certificate(certificate, keys, folder, evidence)
    reading = Reading(found.statement.predicate)
    guarantee = reading.certificate.guarantee
    if not isinstance(guarantee, ApproximateDp):
        raise InvalidParameter("certificate", "one with a guarantee, since the registry lists differential privacy", guarantee.reason)
    deployment = {
        "basic": _basic(publication),
        "dp_variant": {
            "variant_name": "Approximate DP",
            "data_domain": reading.certificate.data.description,
            "unprotected_quantities": _lines([f"Not covered: {line}" for line in reading.not_covered]),
        },
        "privacy_loss": _privacy_loss(reading, guarantee),
        "deployment_model": _model(reading, publication),
        "implementation": _implementation(reading, guarantee, publication, hashlib.sha256(certificate).hexdigest()),
        "administrative": {"status": "Draft", "registry_authors": list(publication.authors), "tier": 3},
    }
    return yaml.dump(
        {"url_slug": publication.url_slug, "deployment": deployment}, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=10**9
    )


def _basic(publication: Publication) -> dict[str, Any]:
    sector = {} if publication.sector is None else {"data_product_sector": publication.sector}
    return {
        "name": publication.name,
        "data_curators": [{"data_curator_name": publication.curator, "data_curator_type": publication.curator_type}],
        "description": publication.description,
        "intended_use": publication.intended_use,
        "data_product_type": "Machine learning model",
        "data_product_region": publication.region,
        **sector,
        "publication_date": publication.publication_date,
    }


def _privacy_loss(reading: Reading, guarantee: ApproximateDp) -> dict[str, Any]:
    told = [f"Of this one training as a whole; rounded up. The true epsilon of its event is at least {guarantee.epsilon_lower}."]
    if guarantee.pure_epsilon is not None:
        told.append(f"Also pure: epsilon {guarantee.pure_epsilon} at delta 0.")
    if guarantee.gdp_mu is not None:
        told.append(f"Also {guarantee.gdp_mu}-Gaussian DP.")
    told += [f"At epsilon {point.epsilon} delta is at most {point.delta}." for point in guarantee.delta_curve]
    told += [" ".join([caveat.lead, "; ".join(caveat.lines)]) for caveat in caveats(reading, guarantee)]
    return {
        "privacy_unit": reading.unit,
        "privacy_unit_details": _lines([reading.neighbours, reading.unit_meaning]),
        "number_of_privacy_units": reading.certificate.plan.units,
        "privacy_parameters": {"epsilon": float(guarantee.epsilon), "delta": float(guarantee.delta)},
        "privacy_parameters_details": _lines(told),
    }


def _model(reading: Reading, publication: Publication) -> dict[str, Any]:
    # A training runs in one place, also one that is accounted for as several nodes or owners, unless a network connected its sites.
    return {
        "model_name": "Federated" if reading.certificate.run.sites else "Central",
        "model_name_details": reading.trust,
        "trust_assumptions": reading.trust,
        "actors": publication.actors,
        "release_type": "One release",
        "release_type_details": "The certificate is about one training. Whether the data were or will be used again it doesn't say.",
        "data_source_type": "Static",
        "data_source_type_details": "The training read one fixed data set.",
        "access_type": "Non-interactive",
        "access_type_details": "Nobody queries the data through the model.",
    }


def _implementation(reading: Reading, guarantee: ApproximateDp, publication: Publication, digest: str) -> dict[str, Any]:
    certificate = reading.certificate
    released = [release_phrase(release, reading.unit) for release in reading.releases]
    versions = ", ".join(f"{name} {version}" for name, version in certificate.environment.versions.items())
    return {
        "preprocessing_and_hyperparameter_tuning": publication.preprocessing,
        "mechanisms": _lines([*released, f"Implemented by zetadp, with {versions}.", f"Floating point: {reading.floating_point}"]),
        "composition": f"All releases of the training together, by the accountant {guarantee.route}; verification recomputes it.",
        "post_processing": "Whatever was computed from the releases alone, the model included.",
        "justification": publication.justification,
        "utility": reading.measured(),
        "additional_information": _lines(
            [
                f"From the certificate with SHA-256 {digest}: `zetadp verify` checks it. This entry proves nothing.",
                *(f"Not covered: {line}" for line in not_covered_elsewhere(reading)),
            ]
        ),
    }


def _lines(sentences: list[str]) -> str:
    """As a Markdown list; one alone as it is."""
    plain = [re.sub(r"\s+", " ", sentence).strip() for sentence in sentences if sentence]
    return plain[0] if len(plain) == 1 else "".join(f"- {sentence}\n" for sentence in plain)


class _Dumper(yaml.SafeDumper):
    """Texts of several lines as blocks that keep them: the registry's checks refuse folded ones."""


def _written(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _written)
