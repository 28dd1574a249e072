r"""The self-test of a device: it passes here, and a device that computes otherwise fails the check that is about it."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from zetadp.mechanisms.errors import InvalidParameter
from zetadp.mechanisms.sampling.key_stream import KeyStream
from zetadp.trainer.engine import self_test
from zetadp.trainer.engine.gradients import clipping
from zetadp.trainer.engine.noise.torch_source import TorchSource
from zetadp.trainer.specs.findings.devices import Check

CPU = torch.device("cpu")


def test_this_processor_passes() -> None:
    self_test.checked.cache_clear()
    assert self_test.checked(CPU) == "self-test passed (cipher, noise, products, clipped sums, sensitivity)"


def other_counter(monkeypatch: pytest.MonkeyPatch) -> None:
    right = KeyStream.next
    monkeypatch.setattr(KeyStream, "next", lambda self, count: right(self, count + 16)[16:])


def other_sign(monkeypatch: pytest.MonkeyPatch) -> None:
    right = TorchSource.standard_normal
    monkeypatch.setattr(TorchSource, "standard_normal", lambda self, shape: right(self, shape).abs())


def short_products(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in TF32: each factor keeps eleven bits."""
    right = Tensor.__matmul__

    def off(one: Tensor, other: Tensor) -> Tensor:
        narrow = (one.view(torch.int32) & -(2**13)).view(torch.float32) if one.dtype == torch.float32 else one
        return right(narrow, other)

    monkeypatch.setattr(Tensor, "__matmul__", off)


def longer_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clipping, "AIM", 1.01)


def no_number_as_a_convolution(monkeypatch: pytest.MonkeyPatch) -> None:
    right = torch.nn.functional.conv2d

    def off(images: Tensor, filters: Tensor) -> Tensor:
        found = right(images, filters)
        return torch.full_like(found, torch.nan) if found.dtype == torch.float32 else found

    monkeypatch.setattr(torch.nn.functional, "conv2d", off)


def no_number_as_a_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clipping, "AIM", math.nan)


@pytest.mark.parametrize(
    ("broken", "check"),
    [
        (other_counter, lambda _device: self_test._cipher()),
        (other_sign, self_test._noise),
        (short_products, self_test._products),
        (no_number_as_a_convolution, self_test._products),
        (longer_bound, self_test._moves),
        (no_number_as_a_sum, self_test._moves),
        # Slow: the other sums are shown by what they move.
        pytest.param(longer_bound, self_test._sums, marks=pytest.mark.slow),
    ],
    ids=["cipher", "noise", "products", "no number as a product", "sensitivity", "no number as a sum", "sums"],
)
def test_what_is_broken_fails(
    broken: Callable[[pytest.MonkeyPatch], None], check: Callable[[torch.device], Check], monkeypatch: pytest.MonkeyPatch
) -> None:
    broken(monkeypatch)
    assert check(CPU).passed is False


def test_a_run_is_refused_where_a_check_fails_and_says_that_none_did(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [Check(name="noise", passed=True, found="bits"), Check(name="products", passed=None, found="nothing")]
    monkeypatch.setattr(self_test, "checks", lambda _device: found)
    monkeypatch.setattr(self_test, "hardware", lambda _device: "card")
    self_test.checked.cache_clear()
    assert self_test.described(torch.device("cuda")) == "card, self-test passed (noise)"
    assert self_test.described(CPU) == "card"
    found.append(Check(name="sums", passed=False, found="other numbers"))
    self_test.checked.cache_clear()
    with pytest.raises(InvalidParameter, match=r"gpu-selftest, got .*cuda, where these fail: sums \(other numbers\)"):
        self_test.described(torch.device("cuda"))
    self_test.checked.cache_clear()


def test_a_device_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidParameter, match="device must be one of this machine's"):
        self_test.examined("cuda:77", tmp_path)
