r"""How a message of Flower's and its parts become one request."""

import pytest

from zetadp.trainer.sites.flower import bundles


def test_parts_come_back_as_they_went() -> None:
    parts = [b"", b"a", bytes(1000), b""]
    assert bundles.split(bundles.joined(parts)) == parts


WRONG = {"cut off": bundles.joined([b"abc"])[:-1], "too long": b"\xff" * 8 + b"abc", "no length": b"abc", "half a length": bytes(3)}


@pytest.mark.parametrize("whole", WRONG.values(), ids=WRONG)
def test_parts_that_arent_whole_are_refused(whole: bytes) -> None:
    with pytest.raises(ValueError, match=r"a part of \d+ bytes after its length was expected, \d+ bytes came"):
        bundles.split(whole)
