"""The GGUF reader against files that the `gguf` package writes, and against broken ones."""

from __future__ import annotations

import struct
from pathlib import Path

import gguf
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from espalier.errors import EspalierError, ModelFileError, UnsupportedError
from espalier.exec.executor import TensorType
from espalier.loaders.gguf import GgufFile

TOKENS = ["<s>", "Ġhello", "日本語", "", "🙂"]


def write_file(path: Path) -> dict[str, np.ndarray]:
    """Writes a small file with every kind of value; returns its tensors."""
    random = np.random.default_rng(0)
    tensors = {
        "vector": random.normal(size=7).astype(np.float32),
        "matrix": random.normal(size=(3, 64)).astype(np.float16),
        "packed": gguf.quants.quantize(
            random.normal(size=(5, 64)).astype(np.float32), gguf.GGMLQuantizationType.Q4_0
        ),
    }
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_uint8("test.u8", 200)
    writer.add_int8("test.i8", -100)
    writer.add_uint16("test.u16", 60_000)
    writer.add_int16("test.i16", -30_000)
    writer.add_uint32("test.u32", 4_000_000_000)
    writer.add_int32("test.i32", -2_000_000_000)
    writer.add_uint64("test.u64", 2**63)
    writer.add_int64("test.i64", -(2**62))
    writer.add_float32("test.f32", 0.5)
    writer.add_float64("test.f64", 0.1)
    writer.add_bool("test.bool", True)
    writer.add_string("test.string", "naïve 🙂")
    writer.add_array("test.tokens", TOKENS)
    writer.add_array("test.numbers", [1, -2, 3])
    writer.add_array("test.floats", [1.5, -2.5])
    writer.add_array("test.flags", [True, False])
    writer.add_tensor("vector", tensors["vector"])
    writer.add_tensor("matrix", tensors["matrix"])
    writer.add_tensor("packed", tensors["packed"], raw_dtype=gguf.GGMLQuantizationType.Q4_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return tensors


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("gguf") / "sound.gguf"
    write_file(path)
    return path.read_bytes()


def test_metadata_and_tensors_are_read_as_written(tmp_path: Path) -> None:
    tensors = write_file(tmp_path / "model.gguf")
    file = GgufFile(tmp_path / "model.gguf")
    assert dict(file.metadata) == {
        "general.architecture": "llama",
        "test.u8": 200,
        "test.i8": -100,
        "test.u16": 60_000,
        "test.i16": -30_000,
        "test.u32": 4_000_000_000,
        "test.i32": -2_000_000_000,
        "test.u64": 2**63,
        "test.i64": -(2**62),
        "test.f32": 0.5,
        "test.f64": 0.1,
        "test.bool": True,
        "test.string": "naïve 🙂",
        "test.tokens": TOKENS,
        "test.numbers": [1, -2, 3],
        "test.floats": [1.5, -2.5],
        "test.flags": [True, False],
    }
    assert file.metadata["test.bool"] is True
    assert file.tensor_names == ("vector", "matrix", "packed")
    shapes = {"vector": (7,), "matrix": (3, 64), "packed": (5, 64)}
    assert file.tensor_shapes == shapes
    kinds = {"vector": TensorType.F32, "matrix": TensorType.F16, "packed": TensorType.Q4_0}
    for name, values in tensors.items():
        raw = file.tensor(name)
        assert (raw.name, raw.type, raw.shape) == (name, kinds[name], shapes[name])
        assert raw.data.tobytes() == values.tobytes()
        assert not raw.data.flags.writeable


def test_real_file_is_read_as_the_gguf_package_reads_it(smollm2_path: Path) -> None:
    file = GgufFile(smollm2_path)
    assert file.metadata["general.architecture"] == "llama"
    tokens = file.metadata["tokenizer.ggml.tokens"]
    assert isinstance(tokens, list)
    assert (len(tokens), tokens[1]) == (49152, "<|im_start|>")
    assert len(file.tensor_names) == 272
    assert file.tensor("blk.0.attn_k.weight").shape == (192, 576)


def test_tensor_that_is_not_there_raises(tmp_path: Path) -> None:
    write_file(tmp_path / "model.gguf")
    with pytest.raises(ModelFileError, match="has no tensor 'absent'"):
        GgufFile(tmp_path / "model.gguf").tensor("absent")


@pytest.mark.parametrize("kept", [0, 3, 4, 8, 20, 24, 40, 100, 300, -200, -13])
def test_truncated_file_raises(tmp_path: Path, sound: bytes, kept: int) -> None:
    path = tmp_path / "cut.gguf"
    path.write_bytes(sound[:kept])
    with pytest.raises(ModelFileError, match=r"cut\.gguf"):
        GgufFile(path)


def test_every_truncation_raises_model_file_error(tmp_path: Path, sound: bytes) -> None:
    path = tmp_path / "cut.gguf"
    padding = len(sound) - len(sound.rstrip(b"\0"))
    for kept in range(0, len(sound) - padding, 7):
        path.write_bytes(sound[:kept])
        with pytest.raises(ModelFileError):
            GgufFile(path)


def opened(path: Path) -> GgufFile | EspalierError:
    """The file, or the error that says why not; any other exception fails the test."""
    try:
        return GgufFile(path)
    except EspalierError as error:
        return error


@settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_corrupt_bytes_give_a_result_or_a_clear_error(
    tmp_path: Path, sound: bytes, data: st.DataObject
) -> None:
    broken = bytearray(sound)
    for _ in range(data.draw(st.integers(1, 4))):
        position = data.draw(st.integers(0, min(len(sound), 1400) - 1))
        broken[position] = data.draw(
            st.sampled_from([0, 1, 0x7F, 0x80, 0xFF]) | st.integers(0, 255)
        )
    path = tmp_path / "broken.gguf"
    path.write_bytes(broken)
    result = opened(path)
    if isinstance(result, EspalierError):
        assert "broken.gguf" in str(result)
    else:
        assert all(result.tensor(name).data.size > 0 for name in result.tensor_names)


@pytest.mark.parametrize(
    ("find", "put", "message"),
    [
        (b"GGUF\x03\0\0\0", b"GGUF\x01\0\0\0", "GGUF version 1"),
        (b"GGUF\x03\0\0\0", b"GGUF\0\0\0\x03", "big-endian"),
        (b"GGUF\x03\0\0\0", b"PK\x03\x04\x03\0\0\0", "begins with b'PK"),
        (b"test.u16", b"test.i16", "given twice"),
        (b"test.string", b"test.str\xff\xffg", "not UTF-8"),
        (b"vector\x01\0\0\0", b"vector\x05\0\0\0", "5 dimensions"),
        (b"vector", b"matrix", "given twice"),
    ],
)
def test_broken_field_is_named(
    tmp_path: Path, sound: bytes, find: bytes, put: bytes, message: str
) -> None:
    assert find in sound
    path = tmp_path / "broken.gguf"
    path.write_bytes(sound.replace(find, put, 1))
    with pytest.raises((ModelFileError, UnsupportedError), match=message):
        GgufFile(path)


def header(num_tensors: int, num_pairs: int) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", 3, num_tensors, num_pairs)


def key(name: str, kind: int) -> bytes:
    return struct.pack("<Q", len(name)) + name.encode() + struct.pack("<I", kind)


def tensor_info(name: str, shape: tuple[int, ...], kind: int, offset: int) -> bytes:
    dimensions = struct.pack(f"<I{len(shape)}Q", len(shape), *shape)
    return key(name, 0)[:-4] + dimensions + struct.pack("<IQ", kind, offset)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (header(2**60, 0) + bytes(64), "number of tensors is 1,152,921"),
        (header(0, 2**60) + bytes(64), "number of metadata pairs is"),
        (header(0, 20) + bytes(64), "20 metadata pairs needs"),
        (header(0, 1) + struct.pack("<Q", 2**50) + bytes(64), "length of a metadata key"),
        (header(0, 1) + key("a", 8) + struct.pack("<Q", 2**40), "the length of a is"),
        (header(0, 1) + key("a", 9) + struct.pack("<IQ", 9, 1) + bytes(16), "nested value type 9"),
        (header(0, 1) + key("a", 9) + struct.pack("<IQ", 4, 9) + bytes(16), "a needs 36 bytes"),
        (header(0, 1) + key("a", 99) + bytes(16), "unknown or nested value type 99"),
        (header(0, 1) + key("a", 7) + b"\x02", "neither 0 nor 1"),
        (header(0, 1) + key("general.alignment", 4) + struct.pack("<I", 12), "alignment is 12"),
        (header(0, 1) + key("split.count", 4) + struct.pack("<I", 3), "one of 3 parts"),
        (header(1, 0) + tensor_info("t", (0,), 0, 0), "no room for"),
        (header(1, 0) + tensor_info("t", (2**40, 2**40), 0, 0), "no room for"),
        (header(1, 0) + tensor_info("t", (33,), 2, 0) + bytes(64), "not whole blocks of 32"),
        (header(1, 0) + tensor_info("t", (4,), 0, 64) + bytes(64), "too short for it"),
        (header(1, 0) + tensor_info("t", (4,), 0, 8) + bytes(64), "not aligned to 32"),
        (header(1, 0) + tensor_info("t", (32,), 16, 0) + bytes(64), r"IQ2_XXS \(such as t"),
        (header(1, 0) + tensor_info("t", (32,), 77, 0) + bytes(64), "number 77"),
        (
            header(2, 0)
            + tensor_info("t", (32,), 0, 0)
            + tensor_info("u", (4,), 0, 0)
            + bytes(160),
            "inside another tensor",
        ),
    ],
)
def test_hostile_field_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "hostile.gguf"
    path.write_bytes(content)
    with pytest.raises((ModelFileError, UnsupportedError), match=message):
        GgufFile(path)


def test_missing_empty_and_folder_raise(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="does not exist"):
        GgufFile(tmp_path / "absent.gguf")
    with pytest.raises(ModelFileError, match="cannot be read"):
        GgufFile(tmp_path)
    (tmp_path / "empty.gguf").touch()
    with pytest.raises(ModelFileError, match="it is empty"):
        GgufFile(tmp_path / "empty.gguf")
