"""Writes data/expected_*.json: what llama.cpp makes of the corpus with each vocabulary.

Run it by hand after make_corpus.py, with `pip install llama-cpp-python==0.3.36 gguf`:

    python tests/tokenizer/make_expected_ids.py smollm2=FILE.gguf gemma3=FILE.gguf

The small vocabularies are always done, each in every form that the tests know.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib
import json
import random
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

DATA = Path(__file__).parent / "data"
BLOCK = 50  # random texts that share one checksum
PRE_TOKENIZERS = ("smollm", "llama-bpe", "qwen2", "gpt-2", "default")


class LlamaCpp:
    """The vocabulary of a GGUF file in llama.cpp, by its C interface."""

    def __init__(self, path: Path) -> None:
        package = importlib.import_module("llama_cpp")
        self._c = package.llama_cpp
        self._model = package.Llama(str(path), vocab_only=True, verbose=False)
        self._vocab = self._c.llama_model_get_vocab(self._model._model.model)
        self.size = int(self._c.llama_vocab_n_tokens(self._vocab))

    def encode(self, text: str, parse_special: bool, add_special: bool) -> list[int]:
        """Token ids of a text."""
        data = text.encode("utf-8")
        room = len(data) + 8
        buffer = (ctypes.c_int32 * room)()
        count = self._c.llama_tokenize(
            self._vocab, data, len(data), buffer, room, add_special, parse_special
        )
        assert count >= 0
        return list(buffer[:count])

    def piece(self, token_id: int) -> bytes:
        """Bytes of a token, special ones included."""
        buffer = ctypes.create_string_buffer(1024)
        count = self._c.llama_token_to_piece(self._vocab, token_id, buffer, 1024, 0, True)
        assert count >= 0
        return buffer.raw[:count]

    def end_ids(self) -> list[int]:
        """Tokens that end a generation."""
        ids = range(self.size)
        return [token_id for token_id in ids if self._c.llama_vocab_is_eog(self._vocab, token_id)]

    def adds_bos(self) -> bool:
        """Whether a text gets a BOS token by default."""
        return bool(self._c.llama_vocab_get_add_bos(self._vocab))


def ids_checksum(rows: Sequence[Sequence[int]]) -> str:
    """Checksum of lists of ids."""
    return hashlib.sha256(json.dumps([list(row) for row in rows]).encode()).hexdigest()[:16]


def pieces_checksum(pieces: Sequence[bytes]) -> str:
    """Checksum of the bytes of all tokens, lengths included."""
    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(len(piece).to_bytes(4, "little") + piece)
    return digest.hexdigest()[:16]


def expected(path: Path) -> dict[str, Any]:
    """Everything that the tests compare for one vocabulary."""
    vocab = LlamaCpp(path)
    corpus = json.loads((DATA / "corpus.json").read_text(encoding="ascii"))
    plain = {name: vocab.encode(text, False, True) for name, text in corpus["named"].items()}
    special = {name: vocab.encode(text, True, False) for name, text in corpus["named"].items()}
    texts = corpus["random"]
    blocks = [texts[start : start + BLOCK] for start in range(0, len(texts), BLOCK)]
    source = random.Random(len(texts))
    sequences = [[source.randrange(vocab.size) for _ in range(10)] for _ in range(30)]
    return {
        "vocab_size": vocab.size,
        "add_bos": vocab.adds_bos(),
        "end_ids": vocab.end_ids(),
        "pieces": pieces_checksum([vocab.piece(token_id) for token_id in range(vocab.size)]),
        "plain": plain,
        "special": {name: ids for name, ids in special.items() if ids != plain[name]},
        "random_plain": [
            ids_checksum([vocab.encode(text, False, False) for text in block]) for block in blocks
        ],
        "random_special": [
            ids_checksum([vocab.encode(text, True, False) for text in block]) for block in blocks
        ],
        "decoded": [
            [ids, b"".join(vocab.piece(token_id) for token_id in ids).hex()] for ids in sequences
        ],
    }


def write_gguf(path: Path, metadata: dict[str, Any]) -> None:
    """Writes a GGUF file that holds a vocabulary and no tensors."""
    gguf = importlib.import_module("gguf")
    writer = gguf.GGUFWriter(str(path), "llama")
    for key, value in metadata.items():
        if isinstance(value, str):
            writer.add_string(key, value)
        elif isinstance(value, bool):
            writer.add_bool(key, value)
        elif isinstance(value, int):
            writer.add_uint32(key, value)
        else:
            writer.add_array(key, value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()


def small_vocabularies() -> dict[str, dict[str, Any]]:
    """The small vocabularies in all their forms, by name."""
    byte_level = json.loads((DATA / "small_byte_level.json").read_text(encoding="ascii"))
    sentencepiece = json.loads((DATA / "small_sentencepiece.json").read_text(encoding="ascii"))
    forms = {pre: {**byte_level, "tokenizer.ggml.pre": pre} for pre in PRE_TOKENIZERS}
    forms["llama-2"] = sentencepiece
    forms["no-prefix"] = {**sentencepiece, "tokenizer.ggml.add_space_prefix": False}
    return forms


def write(name: str, value: dict[str, Any]) -> None:
    """Writes the expectations of one vocabulary, a line for each entry."""
    lines = [
        f"{json.dumps(key)}: {json.dumps(entry, separators=(',', ':'))}"
        for key, entry in value.items()
    ]
    text = "{\n" + ",\n".join(lines) + "\n}\n"
    (DATA / f"expected_{name}.json").write_text(text, encoding="ascii")


def main() -> None:
    for name, metadata in small_vocabularies().items():
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "vocab.gguf"
            write_gguf(path, metadata)
            write(name, expected(path))
    for argument in sys.argv[1:]:
        name, _, path_text = argument.partition("=")
        write(name, expected(Path(path_text)))


if __name__ == "__main__":
    main()
