"""An entry for the registry of deployments has the registry's form and the certificate's figures, and sounds no better than it is."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import yaml
from pydantic import ValidationError

from tests.library.certificates import issued, keys, settings
from tests.selection import chosen
from zetadp.app.certificates.facts.guarantee import ApproximateDp
from zetadp.app.certificates.signing.keys import PublicKeySet
from zetadp.app.certificates.verification.verify import read
from zetadp.integrations.deployments_registry import Publication, registry_entry
from zetadp.mechanisms import InvalidParameter

__all__ = ["issued", "keys", "settings"]  # fixtures

STATED = ("plain", "patients", "spof_users", "sums_gaussian", "federated", "sites")
FIELDS: dict[str, Any] = {
    "url_slug": "digits-example-2026",
    "name": "Digits: an example",
    "description": "A model of digits",
    "intended_use": "To show an entry",
    "curator": "Nobody's",
    "curator_type": "Nonprofit",
    "region": "Nowhere",
    "publication_date": "2026-01-31",
    "preprocessing": "None; epsilon was given",
    "justification": "None",
    "actors": "Readers: not trusted",
    "authors": ("A # reader",),
}
TEXT = {"type": "string"}


def _closed(required: tuple[str, ...], **properties: object) -> dict[str, object]:
    return {"type": "object", "additionalProperties": False, "required": list(required), "properties": properties}


SCHEMA = _closed(
    ("url_slug", "deployment"),
    url_slug=TEXT,
    deployment=_closed(
        ("basic", "administrative"),
        basic=_closed(
            ("name", "data_curators", "description", "intended_use", "data_product_type", "data_product_region", "publication_date"),
            **dict.fromkeys(("name", "description", "intended_use", "data_product_region"), TEXT),
            data_curators={
                "type": "array",
                "minItems": 1,
                "items": {
                    "type": "object",
                    "required": ["data_curator_name", "data_curator_type"],
                    "properties": {"data_curator_name": TEXT, "data_curator_type": {"enum": ["Government", "Industry", "Nonprofit"]}},
                },
            },
            data_product_type={"enum": ["Summary statistics", "Machine learning model", "Dataset", "Synthetic data"]},
            data_product_sector={"enum": ["Technology", "Healthcare", "Education", "Government", "Energy", "Finance"]},
            publication_date=TEXT | {"format": "date"},
        ),
        dp_variant=_closed(
            (),
            variant_name={"enum": ["Pure DP", "Approximate DP", "Zero-concentrated DP", "Renyi DP", "Custom"]},
            data_domain=TEXT,
            unprotected_quantities=TEXT,
        ),
        privacy_loss=_closed(
            (),
            privacy_unit=TEXT,
            privacy_unit_details=TEXT,
            number_of_privacy_units={"type": "integer"},
            privacy_parameters=_closed((), epsilon={"type": "number"}, delta={"type": "number"}, rho={"type": "number"}),
            privacy_parameters_details=TEXT,
        ),
        deployment_model=_closed(
            (),
            model_name={"enum": ["Local", "Central", "Shuffle", "Federated", "Varies"]},
            release_type={"enum": ["One release", "Many releases"]},
            data_source_type={"enum": ["Static", "Dynamic"]},
            access_type={"enum": ["Interactive", "Non-interactive"]},
            **dict.fromkeys(("model_name_details", "trust_assumptions", "actors", "release_type_details"), TEXT),
            **dict.fromkeys(("data_source_type_details", "access_type_details"), TEXT),
        ),
        implementation=_closed(
            (),
            **dict.fromkeys(("preprocessing_and_hyperparameter_tuning", "mechanisms", "composition", "post_processing"), TEXT),
            **dict.fromkeys(("justification", "utility", "additional_information"), TEXT),
        ),
        administrative=_closed(
            ("status", "registry_authors", "tier"),
            status={"enum": ["Draft"]},
            registry_authors={"type": "array", "items": TEXT, "minItems": 1},
            tier={"enum": [1, 2, 3]},
        ),
    ),
)
"""Names, kinds and choices of the registry's schema at commit 057e5d8, as far as entries of ours have them."""


@pytest.mark.parametrize("name", chosen(STATED, ["plain", "sites"]))
def test_an_entry_has_the_registrys_form_and_the_certificates_figures(issued: Callable[[str], Path], keys: PublicKeySet, name: str) -> None:
    envelope = (issued(name) / "certificate.json").read_bytes()
    text = registry_entry(envelope, keys, Publication.model_validate(FIELDS))
    entry = yaml.safe_load(text)
    jsonschema_rs.Draft7Validator(SCHEMA, validate_formats=True).validate(entry)
    # The registry's check of quoting: folded texts would lose their lines.
    styles = {token.style for token in yaml.scan(text) if isinstance(token, yaml.ScalarToken)}
    assert styles <= {None, "|", "'", '"'}
    assert "://" not in text, "the registry's checks fetch every address"
    assert len(re.findall("holds only if", text)) == 1, "conditions are one list, not a sentence each"
    certificate, deployment = read(envelope), entry["deployment"]
    assert isinstance(certificate.guarantee, ApproximateDp)
    loss = deployment["privacy_loss"]
    assert loss["privacy_parameters"] == {"epsilon": float(certificate.guarantee.epsilon), "delta": float(certificate.guarantee.delta)}
    assert (loss["privacy_unit"], loss["number_of_privacy_units"]) == (certificate.plan.unit, certificate.plan.units)
    # One place computed everything, whatever the accounting is for, but where a network connected the sites.
    assert deployment["deployment_model"]["model_name"] == ("Federated" if name == "sites" else "Central")
    assert deployment["administrative"] == {"status": "Draft", "registry_authors": ["A # reader"], "tier": 3}
    assert "This entry proves nothing." in deployment["implementation"]["additional_information"]
    assert deployment["dp_variant"]["unprotected_quantities"].count("Not covered:") >= 2


def test_no_entry_is_written_where_there_is_no_guarantee_or_another_signer(issued: Callable[[str], Path], keys: PublicKeySet) -> None:
    publication = Publication.model_validate(FIELDS)
    with pytest.raises(InvalidParameter, match="the registry lists differential privacy"):
        registry_entry((issued("baseline") / "certificate.json").read_bytes(), keys, publication)
    with pytest.raises(InvalidParameter, match="valid"):
        registry_entry((issued("plain") / "certificate.json").read_bytes(), PublicKeySet(keys=()), publication)


@pytest.mark.parametrize(
    "wrong", [{"url_slug": "A b"}, {"publication_date": "2026-13-01"}, {"name": "two\nlines"}, {"authors": ()}, {"curator_type": "Club"}]
)
def test_what_the_registry_would_not_take_is_refused_at_once(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        Publication.model_validate(FIELDS | wrong)
