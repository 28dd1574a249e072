"""A model card says what the certificate says, and nothing that it doesn't."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from markdown_it import MarkdownIt

from tests.library.certificates import issued, keys, settings
from tests.selection import chosen
from zetadp.accountants import neighbourhood
from zetadp.app.certificates.facts.guarantee import ApproximateDp, NoGuarantee
from zetadp.app.certificates.page.plain import describe
from zetadp.app.certificates.signing.keys import PublicKeySet, jwks, signing_key
from zetadp.app.certificates.verification.verify import read
from zetadp.app.certificates.words.reading import Reading
from zetadp.app.kit.settings import Settings
from zetadp.integrations.model_card import _escaped, model_card
from zetadp.mechanisms import InvalidParameter

__all__ = ["issued", "keys", "settings"]  # fixtures

STATED = ("plain", "patients", "large_delta", "spof_users", "sums_gaussian")
NOTHING = ("baseline", "seeded", "printed", "with_baseline", "seeded_noisy_rotation")


def card_of(folder: Path, keys: PublicKeySet) -> tuple[dict[str, Any], str]:
    """Metadata and text."""
    card = model_card((folder / "certificate.json").read_bytes(), keys, license_id="apache-2.0", folder=folder)
    _, metadata, text = re.split(r"^---\n", card, maxsplit=2, flags=re.MULTILINE)
    return yaml.safe_load(metadata), text


def shown(text: str) -> str:
    """The words that a reader of Markdown sees."""
    tokens = MarkdownIt("commonmark").enable("table").parse(text)
    inline = [child for token in tokens for child in token.children or ()]
    assert {child.type for child in inline} <= {"text", "strong_open", "strong_close", "softbreak"}
    return "\n".join("".join(child.content for child in token.children) for token in tokens if token.children)


@pytest.mark.parametrize("name", chosen(STATED, STATED[:1]))
def test_a_guarantee_stands_there_with_all_that_can_void_it(issued: Callable[[str], Path], keys: PublicKeySet, name: str) -> None:
    certificate = read((issued(name) / "certificate.json").read_bytes())
    assert isinstance(certificate.guarantee, ApproximateDp)
    metadata, text = card_of(issued(name), keys)
    privacy = metadata["privacy"]
    assert (metadata["license"], metadata["tags"]) == ("apache-2.0", ["differential-privacy"])
    assert (privacy["epsilon"], privacy["delta"]) == (certificate.guarantee.epsilon, certificate.guarantee.delta)
    assert (privacy["unit"], privacy["adjacency"]) == (certificate.plan.unit, neighbourhood(certificate.event)[0])
    told = " ".join(privacy["caveats"])
    assert len(privacy["caveats"]) >= 2
    assert privacy["trust"] in describe(certificate)
    seen = shown(text.partition("## Check it")[0])
    for line in describe(certificate).splitlines()[3:]:
        assert line.strip().removeprefix("- ") in seen
    assert f"The floating-point caveat: {Reading(certificate).floating_point}" in privacy["caveats"]
    assert all(line in told for line in (*Reading(certificate).assumptions, *Reading(certificate).not_covered))


@pytest.mark.parametrize("name", NOTHING)
def test_without_a_guarantee_there_are_no_figures_and_no_tag(issued: Callable[[str], Path], keys: PublicKeySet, name: str) -> None:
    certificate = read((issued(name) / "certificate.json").read_bytes())
    assert isinstance(certificate.guarantee, NoGuarantee)
    metadata, text = card_of(issued(name), keys)
    assert set(metadata) == {"license", "privacy"}
    assert set(metadata["privacy"]) == {"guarantee", "reason", "certificate_sha256"}
    assert (metadata["privacy"]["guarantee"], metadata["privacy"]["reason"]) == ("none", certificate.guarantee.reason)
    assert "**THERE IS NO PRIVACY GUARANTEE**" in text


def test_it_names_the_files_and_how_to_check_them(issued: Callable[[str], Path], keys: PublicKeySet) -> None:
    _, text = card_of(issued("plain"), keys)
    assert "zetadp verify certificate.json --keys keys-i-trust.json" in text
    assert re.search(r"\| model.safetensors \| [0-9a-f]{64} \|", text)
    assert "proves nothing" in text


def test_a_license_is_left_to_the_caller(issued: Callable[[str], Path], keys: PublicKeySet) -> None:
    certificate = (issued("plain") / "certificate.json").read_bytes()
    assert "license" not in model_card(certificate, keys, license_id=None).partition("\n---\n")[0]
    with pytest.raises(InvalidParameter, match="license_id must be a license's name on the Hub"):
        model_card(certificate, keys, license_id="mit\ntags: [safe]")


def test_a_certificate_that_is_not_valid_has_no_card(issued: Callable[[str], Path], keys: PublicKeySet, tmp_path: Path) -> None:
    certificate = (issued("plain") / "certificate.json").read_bytes()
    others = Settings(data_dir=tmp_path / "another")
    signing_key(others)
    with pytest.raises(InvalidParameter, match=r"certificate must be valid, got .*What failed: signature"):
        model_card(certificate, jwks(others), license_id=None)
    (tmp_path / "model.safetensors").write_bytes(b"another model")
    with pytest.raises(InvalidParameter, match="certificate must be valid"):
        model_card(certificate, keys, license_id=None, folder=tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        "# Privacy guarantee: epsilon 0",
        "<script>alert(1)</script> <!-- x",
        "[click](https://example.org) ![x](y) <https://example.org> www.example.org a@example.org",
        "1. first",
        "12) twelfth",
        "- a | b | c",
        "+ a",
        "=====",
        "***",
        "a *b* _c_ `d` ~~e~~ &amp; $x$ \\* \\",
        "a snake_case_name",
    ],
)
def test_what_somebody_wrote_stays_text(text: str) -> None:
    for line in (_escaped(text), f"- {_escaped(text)}", f"| a |\n| --- |\n| {_escaped(text)} |"):
        assert shown(line).removeprefix("a\n") == text


def test_the_hub_reads_it(issued: Callable[[str], Path], keys: PublicKeySet) -> None:
    library = pytest.importorskip("huggingface_hub", reason="huggingface_hub isn't installed: pip install 'zetadp[huggingface]'")
    card = model_card((issued("plain") / "certificate.json").read_bytes(), keys, license_id="apache-2.0")
    read_card = library.ModelCard(card)
    assert read_card.data.license == "apache-2.0"
    assert read_card.data.tags == ["differential-privacy"]
    assert read_card.data.to_dict()["privacy"]["unit"] == "record"
    assert read_card.text.strip().startswith("# Privacy")
