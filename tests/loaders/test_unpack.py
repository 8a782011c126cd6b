"""Every tensor type against the `gguf` package's own dequantisation, bit for bit."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import gguf
import numpy as np
import pytest
from gguf import GGMLQuantizationType
from numpy.typing import NDArray

from espalier import _native
from espalier.exec.executor import TensorType

QUANTISED = [kind for kind in TensorType if kind.value[0] == "Q"]
# Where the half-precision scales lie in a block (byte offsets).
SCALE_OFFSETS = {
    "Q8_0": (0,),
    "Q4_0": (0,),
    "Q4_1": (0, 2),
    "Q5_0": (0,),
    "Q5_1": (0, 2),
    "Q4_K": (0, 2),
    "Q5_K": (0, 2),
    "Q6_K": (208,),
}


def random_blocks(kind: TensorType, num_blocks: int, seed: int) -> NDArray[np.uint8]:
    """Blocks of random bits, all of them valid, with finite half-precision scales."""
    _, block_bytes = gguf.GGML_QUANT_SIZES[GGMLQuantizationType[kind.value]]
    random = np.random.default_rng(seed)
    blocks = random.integers(0, 256, (num_blocks, block_bytes), dtype=np.uint8)
    for offset in SCALE_OFFSETS[kind.value]:
        scales = random.normal(0, 1, num_blocks).astype(np.float16)
        scales[:2] = [6e-8, 65504]  # a subnormal and the largest half
        blocks[:, offset : offset + 2] = scales.view(np.uint8).reshape(-1, 2)
    return blocks


def expected(kind: TensorType, data: NDArray[np.uint8]) -> NDArray[np.float32]:
    values: NDArray[np.float32] = gguf.quants.dequantize(data, GGMLQuantizationType[kind.value])
    return values.reshape(-1)


def assert_same_bits(got: NDArray[np.float32], want: NDArray[np.float32]) -> None:
    assert got.dtype == np.float32
    np.testing.assert_array_equal(got.view(np.uint32), want.view(np.uint32))


@pytest.mark.parametrize("kind", QUANTISED)
def test_unpack_equals_gguf_package_on_random_blocks(kind: TensorType) -> None:
    blocks = random_blocks(kind, 257, seed=len(kind.value))
    want = expected(kind, blocks)
    assert_same_bits(_native.unpack(kind.value, blocks.reshape(-1), want.size), want)


@pytest.mark.parametrize("kind", ["Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1"])
def test_unpack_equals_gguf_package_on_quantised_data(kind: str) -> None:
    values = np.random.default_rng(5).normal(0, 0.1, (48, 512)).astype(np.float32)
    packed = gguf.quants.quantize(values, GGMLQuantizationType[kind])
    got = _native.unpack(kind, packed.reshape(-1), values.size)
    assert_same_bits(got, expected(TensorType(kind), packed))
    assert np.abs(got - values.reshape(-1)).max() < 0.06


def test_unpack_is_exact_for_every_half() -> None:
    halves = np.arange(65536, dtype=np.uint16)
    halves = halves[~np.isnan(halves.view(np.float16))]
    got = _native.unpack("F16", halves.view(np.uint8), halves.size)
    assert_same_bits(got, halves.view(np.float16).astype(np.float32))
    nan = np.array([0x7E00], dtype=np.uint16)
    assert np.isnan(_native.unpack("F16", nan.view(np.uint8), 1)[0])


def test_unpack_is_exact_for_every_bfloat16() -> None:
    values = np.arange(65536, dtype=np.uint16)
    got = _native.unpack("BF16", values.view(np.uint8), values.size)
    assert_same_bits(got, (values.astype(np.uint32) << 16).view(np.float32))


def test_unpack_copies_floats_from_unaligned_bytes() -> None:
    values = np.random.default_rng(6).normal(size=100).astype(np.float32)
    unaligned = np.concatenate([np.zeros(1, np.uint8), values.view(np.uint8)])[1:]
    assert_same_bits(_native.unpack("F32", unaligned, 100), values)


@pytest.mark.parametrize("kind", TensorType)
def test_packed_bytes_equals_gguf_package(kind: TensorType) -> None:
    elements, size = gguf.GGML_QUANT_SIZES[GGMLQuantizationType[kind.value]]
    assert _native.packed_bytes(kind.value, 3 * elements) == 3 * size
    assert _native.unpack(kind.value, np.zeros(0, np.uint8), 0).size == 0


def test_unpack_refuses_what_does_not_fit() -> None:
    data = np.zeros(34, np.uint8)
    with pytest.raises(ValueError, match="33 elements are not whole blocks of 32"):
        _native.unpack("Q8_0", data, 33)
    with pytest.raises(ValueError, match="64 elements of Q8_0 take 68 bytes, 34 were given"):
        _native.unpack("Q8_0", data, 64)
    with pytest.raises(ValueError, match="unknown tensor kind IQ2_XS"):
        _native.unpack("IQ2_XS", data, 32)
    with pytest.raises(ValueError, match="-32 elements"):
        _native.unpack("Q8_0", data, -32)


def test_unpack_gives_the_same_from_many_threads() -> None:
    blocks = random_blocks(TensorType.Q6_K, 64, seed=1)
    want = expected(TensorType.Q6_K, blocks)
    with ThreadPoolExecutor(8) as pool:
        rows = pool.map(lambda row: _native.unpack("Q6_K", row, 256), blocks)
        assert_same_bits(np.concatenate(list(rows)), want)
