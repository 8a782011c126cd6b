"""Safetensors files and Hugging Face folders: read as written, and refused where broken."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from espalier.errors import EspalierError, ModelFileError, UnsupportedError
from espalier.exec.executor import TensorType
from espalier.loaders.hf_folder import HfFolder
from espalier.loaders.safetensors import SafetensorsFile

WEIGHT = np.arange(12, dtype=np.float32).reshape(3, 4)
BIAS = np.arange(3, dtype=np.float16)


def pack(header: object, data: bytes) -> bytes:
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def entry(dtype: str, shape: list[int], start: int, stop: int) -> dict[str, object]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, stop]}


SOUND = pack(
    {
        "__metadata__": {"format": "pt"},
        "bias": entry("F16", [3], 48, 54),
        "weight": entry("F32", [3, 4], 0, 48),
    },
    WEIGHT.tobytes() + BIAS.tobytes(),
)


def write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def test_tensors_are_read_as_written(tmp_path: Path) -> None:
    file = SafetensorsFile(write(tmp_path / "model.safetensors", SOUND))
    assert file.tensor_shapes == {"weight": (3, 4), "bias": (3,)}
    weight, bias = file.tensor("weight"), file.tensor("bias")
    assert (weight.type, weight.shape) == (TensorType.F32, (3, 4))
    assert weight.data.tobytes() == WEIGHT.tobytes()
    assert (bias.type, bias.data.tobytes()) == (TensorType.F16, BIAS.tobytes())
    assert not weight.data.flags.writeable
    with pytest.raises(ModelFileError, match="no tensor 'absent'"):
        file.tensor("absent")


def test_every_truncation_and_surplus_raises(tmp_path: Path) -> None:
    for kept in range(len(SOUND)):
        with pytest.raises(ModelFileError):
            SafetensorsFile(write(tmp_path / "cut.safetensors", SOUND[:kept]))
    with pytest.raises(ModelFileError, match="54 bytes of data should follow, not 55"):
        SafetensorsFile(write(tmp_path / "long.safetensors", SOUND + b"\0"))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (struct.pack("<Q", 2**40) + b"{}", "header should be"),
        (pack([], b""), "not a JSON object"),
        (struct.pack("<Q", 4) + b"{]  ", "not JSON"),
        (struct.pack("<Q", 4) + b"\xff\xff  ", "not UTF-8"),
        (struct.pack("<Q", 16) + b'{"a": 1, "a": 2}', "given twice"),
        (struct.pack("<Q", 200_000) + b"[" * 200_000, "not JSON"),
        (pack({"a": 1}, b""), "entry for a is not a tensor's"),
        (pack({"a": entry("F32", [-1], 0, 4)}, bytes(4)), "broken shape or range"),
        (pack({"a": entry("F32", [True], 0, 4)}, bytes(4)), "broken shape or range"),
        (pack({"a": entry("F32", [2], 0, 4)}, bytes(4)), r"shape \[2\] has 4 bytes"),
        (pack({"a": entry("F32", [1], 4, 8)}, bytes(8)), "not where the data before it ends"),
        (pack({"a": entry("I64", [1], 0, 8)}, bytes(8)), "a of type 'I64'; supported are F32"),
    ],
)
def test_broken_header_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    with pytest.raises((ModelFileError, UnsupportedError), match=message):
        SafetensorsFile(write(tmp_path / "broken.safetensors", content))


def opened(path: Path) -> SafetensorsFile | EspalierError:
    """The file, or the error that says why not; any other exception fails the test."""
    try:
        return SafetensorsFile(path)
    except EspalierError as error:
        return error


@settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(position=st.integers(0, len(SOUND) - 1), value=st.integers(0, 255))
def test_corrupt_byte_gives_a_result_or_a_clear_error(
    tmp_path: Path, position: int, value: int
) -> None:
    broken = bytearray(SOUND)
    broken[position] = value
    result = opened(write(tmp_path / "broken.safetensors", bytes(broken)))
    if isinstance(result, EspalierError):
        assert "broken.safetensors" in str(result)
    else:
        assert all(result.tensor(name).data.size > 0 for name in result.tensor_shapes)


def folder(path: Path, **files: object) -> Path:
    path.mkdir(exist_ok=True)
    (path / "config.json").write_text('{"model_type": "llama"}')
    for name, content in files.items():
        target = path / name.replace("__", "-").replace("_at_", ".")
        if isinstance(content, bytes):
            target.write_bytes(content)
        else:
            target.write_text(json.dumps(content))
    return path


ONE = pack({"a": entry("F32", [1], 0, 4)}, bytes(4))
TWO = pack({"b": entry("BF16", [2], 0, 4)}, bytes(4))


def test_folder_with_one_file_is_read(tmp_path: Path) -> None:
    model = HfFolder(folder(tmp_path / "m", model_at_safetensors=SOUND))
    assert model.config == {"model_type": "llama"}
    assert model.tensor_shapes == {"weight": (3, 4), "bias": (3,)}
    assert model.tensor("bias").shape == (3,)


def test_folder_with_shards_is_read(tmp_path: Path) -> None:
    index = {"weight_map": {"a": "m-1.safetensors", "b": "m-2.safetensors"}}
    path = folder(
        tmp_path / "m",
        m__1_at_safetensors=ONE,
        m__2_at_safetensors=TWO,
        model_at_safetensors_at_index_at_json=index,
    )
    model = HfFolder(path)
    assert model.tensor_shapes == {"a": (1,), "b": (2,)}
    assert model.tensor("b").type is TensorType.BF16
    with pytest.raises(ModelFileError, match="no tensor 'c'"):
        model.tensor("c")


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "has no safetensors file"),
        ({"pytorch_model_at_bin": b"x"}, "pickle format only"),
        ({"a_at_safetensors": ONE, "b_at_safetensors": TWO}, "has 2 safetensors files and no"),
        ({"model_at_safetensors_at_index_at_json": {}}, "no weight_map"),
        (
            {"model_at_safetensors_at_index_at_json": {"weight_map": {"a": "../x.safetensors"}}},
            "names '../x.safetensors'",
        ),
        (
            {"model_at_safetensors_at_index_at_json": {"weight_map": {"a": "x.safetensors"}}},
            "does not exist",
        ),
        (
            {
                "m1_at_safetensors": ONE,
                "m2_at_safetensors": ONE,
                "model_at_safetensors_at_index_at_json": {
                    "weight_map": {"a": "m1.safetensors", "b": "m2.safetensors"}
                },
            },
            "holds the tensor 'a', as another",
        ),
        ({"config_at_json": [1]}, "holds no JSON object"),
        ({"config_at_json": b"{"}, "is not JSON"),
    ],
)
def test_incomplete_folder_is_refused(
    tmp_path: Path, files: dict[str, object], message: str
) -> None:
    with pytest.raises((ModelFileError, UnsupportedError), match=message):
        HfFolder(folder(tmp_path / "m", **files))


def test_folder_without_config_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match=r"config\.json does not exist"):
        HfFolder(tmp_path)
