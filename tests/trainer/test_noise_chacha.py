r"""ChaCha20 in torch's integers: the bits of another implementation, and normal numbers with their law."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from scipy import stats

from mechanisms import InvalidParameter, RandomStream
from trainer.engine import TorchSource
from trainer.engine.chacha import ChaChaStream, normal_pairs
from trainer.engine.torch_source import generator

CPU = torch.device("cpu")
KEY = bytes(range(32))
COUNT = 400_000
CHANCE = 1e-6
"""Of a false alarm in each check, were the keys not fixed."""

cuda = pytest.param("cuda", marks=(pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")))


def _reference(key: bytes, first: int, blocks: int) -> bytes:
    # A block at a time: that implementation stops where the counter's lower half ends.
    ciphers = (Cipher(algorithms.ChaCha20(key, block.to_bytes(8, "little") + bytes(8)), None) for block in range(first, first + blocks))
    return b"".join(cipher.encryptor().update(bytes(64)) for cipher in ciphers)


def _bytes(words: torch.Tensor) -> bytes:
    return words.T.contiguous().cpu().numpy().astype("<i4").tobytes()


@pytest.mark.parametrize("device", ["cpu", cuda])
@pytest.mark.parametrize("key", [KEY, bytes(32), b"\xff" * 32])
def test_the_stream_is_chacha20_bit_for_bit(key: bytes, device: str) -> None:
    assert _bytes(ChaChaStream(key, torch.device(device)).words(70)) == _reference(key, 0, 70)


def test_calls_go_on_where_the_last_one_ended() -> None:
    stream = ChaChaStream(KEY, CPU)
    assert _bytes(torch.cat([stream.words(blocks) for blocks in (3, 1, 5)], dim=1)) == _reference(KEY, 0, 9)


@pytest.mark.parametrize("first", [2**32 - 2, 2**40 - 1])
def test_the_counter_has_sixty_four_bits(first: int) -> None:
    stream = ChaChaStream(KEY, CPU, first)
    assert _bytes(stream.words(4)) == _reference(KEY, first, 4)


def _drawn(device: str, dtype: torch.dtype, std: float = 1.0) -> np.ndarray:
    return ChaChaStream(KEY, torch.device(device)).normal(COUNT, std, dtype).double().cpu().numpy()


@pytest.mark.parametrize("device", ["cpu", cuda])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_normal_numbers_have_their_law(dtype: torch.dtype, device: str) -> None:
    drawn = _drawn(device, dtype)
    assert stats.kstest(drawn, "norm").pvalue >= CHANCE
    lower, upper = stats.chi2.ppf([CHANCE / 2, 1 - CHANCE / 2], COUNT)
    assert lower <= (drawn**2).sum() <= upper
    halves = drawn.reshape(2, -1)
    for one, other in ((halves[0], halves[1]), (halves[0][1:], halves[0][:-1])):
        assert abs(np.corrcoef(one**2, other**2)[0, 1]) <= stats.norm.isf(CHANCE / 2) / math.sqrt(len(one))


@pytest.mark.parametrize("std", [0.7, 1.3])
def test_the_check_rejects_a_scale_that_is_thirty_per_cent_off(std: float) -> None:
    assert stats.kstest(_drawn("cpu", torch.float32, std), "norm").pvalue < CHANCE


def _from_words(near: int, turn: int, high: int, low: int, dtype: torch.dtype) -> torch.Tensor:
    words = np.array([[near], [turn], [high], [low]], np.uint32).view(np.int32)
    return normal_pairs(*torch.from_numpy(words), dtype=dtype)


@pytest.mark.parametrize(
    ("near", "high", "low", "complement"),
    [
        (2**31 - 1, 0, 0, 2.0**-96),
        (2**31 - 1, 0, 2**32 - 1, 2.0**-63),
        (2**32 - 1, 2**32 - 1, 2**32 - 1, 2.0**-31),
        (2**31 - 2, 2**31, 0, 1.5 * 2.0**-31),
        (2**31 - 2**23, 2**32 - 1, 2**32 - 1, 2.0**-8),
    ],
)
def test_the_tail_is_refined_by_further_bits(near: int, high: int, low: int, complement: float) -> None:
    radius = _from_words(near, 5, high, low, torch.float32).double().norm().item()
    # Six roundings of float32, relative.
    assert radius == pytest.approx(math.sqrt(-2.0 * math.log(complement)), rel=6 * 2.0**-24)


def test_double_precision_has_bits_of_its_own_for_the_angle() -> None:
    angles = [torch.atan2(*_from_words(7, 2**30, 0, low, torch.float64).flip(0)).item() for low in (0, 2**31)]
    assert angles[1] - angles[0] == pytest.approx(math.pi * 2.0**-32, rel=1e-5)


@pytest.mark.parametrize("word", [0, 1, 2**31 - 1, 2**31, 2**32 - 1])
def test_no_word_gives_zero_or_infinity(word: int) -> None:
    for turn in (0, 2**31, 2**30, 2**32 - 1):
        numbers = _from_words(word, turn, 0, 0, torch.float32)
        assert bool((numbers.isfinite() & (numbers != 0.0)).all())


def test_keys_and_types_that_do_not_fit_are_refused() -> None:
    with pytest.raises(InvalidParameter, match="key must be 32 bytes, got '16 bytes'"):
        ChaChaStream(bytes(16), CPU)
    with pytest.raises(InvalidParameter, match=r"dtype must be torch.float32 or torch.float64"):
        ChaChaStream(KEY, CPU).normal(2, 1.0, torch.float16)


@pytest.mark.parametrize("count", [0, 1, 9])
def test_any_count_is_drawn(count: int) -> None:
    assert ChaChaStream(KEY, CPU).normal(count, 1.0, torch.float32).shape == (count,)


def test_a_stream_keys_another_with_bytes_it_never_uses_again() -> None:
    one, other = (RandomStream.from_seed(1, "key") for _ in range(2))
    keys = {one.key(), one.key(), other.key()}
    assert len(keys) == 2
    assert all(len(key) == 32 for key in keys)


def test_the_generator_has_a_name_for_each_device() -> None:
    assert [generator(torch.device(name)) for name in ("cpu", "cuda")] == ["AES-256-CTR", "ChaCha20 keyed from AES-256-CTR"]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_an_accelerator_makes_its_noise_itself() -> None:
    drawn = TorchSource(RandomStream.from_seed(1, "gpu"), torch.device("cuda"), torch.float32).standard_normal((9,))
    key = RandomStream.from_seed(1, "gpu").key()
    assert drawn.device.type == "cuda"
    assert torch.allclose(drawn.cpu(), ChaChaStream(key, CPU).normal(9, 1.0, torch.float32), rtol=1e-5, atol=1e-6)
