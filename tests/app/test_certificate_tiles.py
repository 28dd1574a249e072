"""The log as tiles: whoever reads them has all of it, and sees what does not add up."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from tests.app.jobs_harness import settings as service_settings
from tests.selection import thinned
from zetadp.app.certificates.log import journal
from zetadp.app.certificates.log.entries import CERTIFICATE
from zetadp.app.certificates.log.tiles import Place, entries_in, place_in, places, read_entries
from zetadp.app.certificates.log.tree import leaf_hash, root_over
from zetadp.app.kit.database import now
from zetadp.app.main import create_app


@pytest.mark.parametrize("size", thinned([1, 256, 600], every=3))
def test_tiles_make_the_log_again(size: int, tmp_path: Path) -> None:
    of = service_settings(tmp_path)
    with TestClient(create_app(of), base_url="http://localhost") as client:
        with client.app.state.database.writing() as session:  # pyright: ignore
            for number in range(size):
                journal.append(session, CERTIFICATE, str(number), f"{CERTIFICATE}\n-\n{number:064}\n".encode(), now())
        checkpoint = client.get("/v1/log/checkpoint").text
        entries = [e for p in places(size) for e in entries_in(client.get(f"/v1/log/tile/entries/{p.text}").content)]
        leaves = b"".join(client.get(f"/v1/log/tile/0/{place.text}").content for place in places(size))
        above = client.get(f"/v1/log/tile/1/{Place(0, max(1, size // 256)).text}")
        absent = (f"0/{Place(size // 256 + 1, 1).text}", "0/0", "9/000", "entries/000.p/256")
        missing = [client.get(f"/v1/log/tile/{path}").status_code for path in absent]
    assert leaves == b"".join(leaf_hash(entry) for entry in entries)
    assert checkpoint.split("\n")[1:3] == [str(size), base64.b64encode(root_over([leaf_hash(entry) for entry in entries])).decode()]
    assert above.status_code == (200 if size >= 256 else 404)
    if size >= 256:
        assert above.content[:32] == root_over([leaf_hash(entry) for entry in entries[:256]])
    assert missing == [404] * 4


@pytest.mark.parametrize("text", ["", "0", "1000", "x001", "001/002", "x1/002", "000.p/0", "000.p/256", "000.p/", "x000/001"])
def test_a_place_has_one_spelling(text: str) -> None:
    assert place_in(text) is None


def test_who_reads_the_log_sees_what_was_never_certified_and_what_does_not_add_up() -> None:
    def plan(tag: str, number: int) -> bytes:
        return f"zetadp-plan\n{tag}\n{number}\n{'0' * 64}\n".encode()

    def certificate(index: object) -> bytes:
        return f"zetadp-certificate\n{index}\n{'0' * 64}\n".encode()

    honest = read_entries([plan("a", 1), plan("b", 1), plan("a", 2), certificate(2), certificate("-")])
    assert (honest.plans, honest.certificates, honest.unannounced, honest.problems) == (3, 2, 1, ())
    assert (honest.data_sets, honest.uncertified) == ({"a": 2, "b": 1}, {"a": 1, "b": 1})
    for dishonest in (
        [plan("a", 2)],
        [plan("a", 1), plan("a", 1)],
        [plan("a", 1), plan("a", 3)],
        [certificate(1), plan("a", 1)],
        [plan("a", 1), certificate(0), certificate(0)],
        [b"something else"],
        [f"zetadp-plan\na\n{'9' * 5000}\n".encode()],
        [plan("a", 1), certificate("9" * 5000)],
        [plan("a", 1), certificate("\u0660")],  # a zero, in other digits
        ["zetadp-plan\na\n\u0661\n".encode()],
    ):
        assert len(read_entries(dishonest).problems) == 1
