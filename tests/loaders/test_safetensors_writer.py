"""The safetensors writer: what it writes is read back, and bfloat16 is rounded to the nearest."""

from __future__ import annotations

import math
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from espalier.errors import UserInputError
from espalier.loaders.safetensors import SafetensorsFile
from espalier.loaders.safetensors_writer import bfloat16_bits, write_safetensors


def widened(bits: int) -> float:
    (value,) = struct.unpack("<f", struct.pack("<I", bits << 16))
    return float(value)


def naive_bits(value: float) -> int:
    """Of the two bfloat16 around a number the nearer one; of two equally near the even one."""
    bits = int(struct.unpack("<I", struct.pack("<f", value))[0])
    low = bits >> 16
    high = low + 1
    # Beyond the largest number lies infinity, which stands for 2 ** 128 here.
    above = math.copysign(2.0**128, value) if math.isinf(widened(high)) else widened(high)
    to_low, to_high = abs(value - widened(low)), abs(above - value)
    if to_low == to_high:
        return low if low % 2 == 0 else high
    return low if to_low < to_high else high


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_bfloat16_is_the_nearest(value: float) -> None:
    assert bfloat16_bits(np.array([value], dtype=np.float32))[0] == naive_bits(value)


def test_bfloat16_keeps_what_is_no_number() -> None:
    values = np.array([np.nan, np.inf, -np.inf], dtype=np.float32)
    values[0] = np.array([0x7F800001], dtype=np.uint32).view(np.float32)[0]
    assert bfloat16_bits(values).tolist() == [0x7FC0, 0x7F80, 0xFF80]


@pytest.mark.parametrize("element_type", ["bfloat16", "float32"])
def test_written_file_is_read_back(element_type: str, tmp_path: Path) -> None:
    values = np.arange(12, dtype=np.float32)
    shapes: dict[str, tuple[int, ...]] = {"b": (2, 3), "a": (6,)}
    blocks = [values[:3], values[3:6], values[6:]]
    write_safetensors(tmp_path / "x.safetensors", shapes, blocks, element_type)
    file = SafetensorsFile(tmp_path / "x.safetensors")
    assert file.tensor_shapes == shapes
    stored = np.concatenate([file.tensor(name).data for name in shapes]).tobytes()
    expected = values if element_type == "float32" else bfloat16_bits(values)
    assert stored == expected.tobytes()


def test_unknown_element_type_raises(tmp_path: Path) -> None:
    with pytest.raises(UserInputError, match="dtype is 'int8'; allowed are bfloat16, float32"):
        write_safetensors(tmp_path / "x", {}, [], "int8")
    assert not (tmp_path / "x").exists()
