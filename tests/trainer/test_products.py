r"""Products are whole inside a clip, whatever the process allows, and its settings are its own again afterwards."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import pytest
import torch
from torch import Tensor, nn

from tests.trainer.test_microbatches import parameters, problem
from zetadp.trainer.engine import ClippedGradients, products
from zetadp.trainer.engine.products import SETTINGS, WholeProducts, put, settings
from zetadp.trainer.specs.execution_plan import FlatClipping


def legacy() -> None:
    torch.set_float32_matmul_precision("medium")
    torch.backends.cudnn.allow_tf32 = torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.deterministic = False
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = True
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = True
    torch.backends.cuda.matmul.allow_fp16_accumulation = True


def by_operation() -> None:
    torch.backends.cuda.matmul.fp32_precision = "tf32"
    torch.backends.cudnn.conv.fp32_precision = "tf32"
    torch.backends.mkldnn.conv.fp32_precision = "bf16"


def all_at_once() -> None:
    for operation in products.OPERATIONS:  # one that was set by itself, as in earlier clips, doesn't follow
        products._set_precision(*operation, "none")
    torch.backends.fp32_precision = "bf16"


ALLOWED = [legacy, by_operation, all_at_once]


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    before, generic = settings(), torch.backends.fp32_precision
    yield
    torch.backends.fp32_precision = generic
    put(before)


@pytest.mark.parametrize("allow", ALLOWED)
def test_no_short_cut_is_taken_inside_a_clip_and_all_are_allowed_again_after_it(allow: Callable[[], None]) -> None:
    seen: list[object] = []

    def look(_module: nn.Module, _inputs: object, output: Tensor) -> None:
        seen.append(settings())
        if output.requires_grad:
            output.register_hook(lambda _slope: seen.append(settings()))

    of = problem(20)
    clipped = ClippedGradients(of, FlatClipping(bound=0.5), 8)
    allow()
    before = settings()
    assert before != SETTINGS
    of.network.register_forward_hook(look)
    clipped.sum(parameters(of), torch.arange(20), 0.5)
    assert len(seen) >= 6  # forward and backward, of three microbatches
    assert set(seen) == {SETTINGS}
    assert settings() == before
    seen.clear()
    clipped.settle()
    assert set(seen) == {SETTINGS}
    assert settings() == before


def test_settings_come_back_after_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_parameters: Mapping[str, Tensor], _batch: object) -> None:
        raise RuntimeError("out of memory")

    of = problem(20)
    clipped = ClippedGradients(of, FlatClipping(bound=0.5), 8)
    monkeypatch.setattr(clipped, "gradients", fails)
    legacy()
    before = settings()
    with pytest.raises(RuntimeError, match="out of memory"):
        clipped.sum(parameters(of), torch.arange(20), 0.5)
    assert settings() == before


def test_what_a_library_reads_inside_is_what_is_set() -> None:
    legacy()
    with WholeProducts():
        assert torch.get_float32_matmul_precision() == "highest"
        assert not torch.backends.cuda.matmul.allow_tf32
        assert not torch.backends.cudnn.allow_tf32
        assert not torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction
        assert (torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic) == (False, True)
    assert torch.get_float32_matmul_precision() == "medium"
    assert torch.backends.cudnn.allow_tf32
