"""Time stamps by themselves: answers of authorities as services take them, and authorities' certificates as readers give them."""

from __future__ import annotations

import base64
import random
import re

import pytest

from tests.app.announced_harness import Authority
from zetadp.app.certificates.log import time_stamps
from zetadp.app.certificates.log.time_stamps import StampRefused, accept_answer, check_stamp, stamp_request


@pytest.fixture(scope="module")
def clock(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority") / "clock")


def test_an_answer_to_another_question_is_not_kept(clock: Authority) -> None:
    question, nonce = stamp_request("a text\n")
    answer = clock.answer(question)
    assert accept_answer(answer, "a text\n", nonce)
    for text, number in (("another text\n", nonce), ("a text\n", nonce + 1)):
        with pytest.raises(StampRefused):
            accept_answer(answer, text, number)
    with pytest.raises(StampRefused):
        accept_answer(b"nothing", "a text\n", nonce)


@pytest.mark.parametrize("answer", ["", "30", "3000", "30053003020100", "30053003020101", "3005300302017f"])
def test_what_is_no_answer_is_refused_by_whoever_gets_it(clock: Authority, answer: str) -> None:
    raw = bytes.fromhex(answer)
    with pytest.raises(StampRefused):
        accept_answer(raw, "a text\n", 1)
    with pytest.raises(StampRefused):
        check_stamp(base64.b64encode(raw).decode(), "a text\n", [clock.pem])


def test_a_refusal_without_a_reason_is_one(clock: Authority, monkeypatch: pytest.MonkeyPatch) -> None:
    def silent(*_: object) -> object:
        raise AssertionError

    monkeypatch.setattr(time_stamps, "_verifier", silent)
    with pytest.raises(StampRefused, match="its signature doesn't hold"):
        check_stamp(clock.stamp("a text\n"), "a text\n", [clock.pem])


def test_certificates_of_an_authority_that_were_changed_are_refused_or_read(clock: Authority) -> None:
    found = re.findall(r"-----BEGIN CERTIFICATE-----\n(.*?)-----END", clock.pem, re.DOTALL)
    texts = [base64.b64decode(one) for one in found]
    stamp, chosen, refused = clock.stamp("a text\n"), random.Random(5), 0
    for _ in range(300):
        changed = [bytearray(text) for text in texts]
        one = chosen.choice(changed)
        one[chosen.randrange(len(one))] = chosen.randrange(256)
        try:
            check_stamp(stamp, "a text\n", ["".join(map(pem_of, changed))])
        except StampRefused:
            refused += 1
    assert refused > 200


def pem_of(certificate: bytes) -> str:
    return f"-----BEGIN CERTIFICATE-----\n{base64.b64encode(certificate).decode()}\n-----END CERTIFICATE-----\n"
