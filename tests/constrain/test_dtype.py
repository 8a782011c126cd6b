"""Dtypes: what is accepted, and that whatever a model does the result parses."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.constrain.tiny_vocabulary import spells

from espalier.constrain.compiler import compiler_of
from espalier.constrain.dtype import MAX_DIGITS, dtype_stops
from espalier.constrain.matcher import Matcher, MatcherTokenizer
from espalier.constraint import Constraint, ConstraintKind
from espalier.engine.output_text import OutputText
from espalier.engine.sampler import SampledToken, Sampler, SampleRow
from espalier.errors import UserInputError
from espalier.loaders.gguf import GgufFile
from espalier.tokenizer.gguf_vocab import tokenizer_from_gguf
from espalier.tokenizer.incremental import IncrementalDecoder
from espalier.tokenizer.tokenizer import Tokenizer
from espalier.types import SamplingParams

END = 256


class ByteTokenizer:
    """A token for every byte, an end of text, and a few longer tokens."""

    def __init__(self) -> None:
        extra = [
            b"<end>",
            b"12",
            b"3.",
            b". The",
            b" apples",
            b'"}',
            b"True",
            b'\\"',
            b"\\u",
            b"\n\n",
        ]
        self.pieces = [bytes([byte]) for byte in range(256)] + extra
        self.vocab_size = len(self.pieces)
        self.eos_ids = frozenset({END})

    def token_bytes(self, token_id: int) -> bytes:
        return self.pieces[token_id]

    def is_control(self, token_id: int) -> bool:
        return token_id == END

    def decoder(self, *, skip_special_tokens: bool = True) -> IncrementalDecoder:
        assert skip_special_tokens
        return IncrementalDecoder(
            lambda token_id: (None if token_id == END else self.pieces[token_id], False),
            drops_space=False,
        )


BYTES = ByteTokenizer()


def dtype_matcher(dtype: str, tokenizer: MatcherTokenizer) -> Matcher:
    """As the engine makes it."""
    compiler = compiler_of(tokenizer, tokenizer.vocab_size)
    return compiler.compile(Constraint(ConstraintKind.DTYPE, dtype)).matcher()


def accepts(dtype: str, text: str) -> bool:
    return spells(dtype_matcher(dtype, BYTES), text)


ACCEPTED = {
    "int": ["0", "-7", "+12", "007", "9" * MAX_DIGITS, "42 ", "42\n", "42. So", "3/4", "5% of it"],
    "float": [
        "0",
        "-7",
        "+1.50",
        ".5",
        "-.25",
        "3.14 ",
        "3.14. So",
        "3. So",
        "2)",
        "9" * MAX_DIGITS,
    ],
    "bool": ["True", "False"],
    "str": [
        '""',
        '"a b"',
        '"\\"\\\\\\/\\b\\f\\n\\r\\t"',
        '"\\u00e9\\ud83d\\ude00"',
        '"\u00e9\U0001f600.!?"',
    ],
}
REJECTED = {
    "int": [
        "",
        "-",
        "a",
        " 1",
        "--1",
        "9" * (MAX_DIGITS + 1),
        "1,000",
        "1_000",
        "1e5",
        "12-3",
        ".",
    ],
    "float": [
        "",
        ".",
        "3.",
        "3.-",
        "1.2.3",
        "1e5",
        "nan",
        "inf",
        "9" * (MAX_DIGITS + 1),
        "1..",
        "1,5",
    ],
    "bool": ["", "true", "Tru", "True ", "Falsey", "1"],
    "str": [
        "",
        '"',
        "a",
        '"a',
        '"a"b',
        '"\n"',
        '"\\x"',
        '"\\u12"',
        '"\\ud83d"',
        '"\\ude00"',
        "'a'",
    ],
}


@pytest.mark.parametrize(
    ("dtype", "text"), [(dtype, text) for dtype, texts in ACCEPTED.items() for text in texts]
)
def test_dtype_accepts(dtype: str, text: str) -> None:
    assert accepts(dtype, text)


@pytest.mark.parametrize(
    ("dtype", "text"), [(dtype, text) for dtype, texts in REJECTED.items() for text in texts]
)
def test_dtype_rejects(dtype: str, text: str) -> None:
    assert not accepts(dtype, text)


def test_unknown_dtype_is_refused_with_those_that_exist() -> None:
    with pytest.raises(UserInputError, match="'list'; 'int', 'float', 'bool', 'str' are allowed"):
        dtype_matcher("list", BYTES)


def parse(dtype: str, text: str) -> object:
    """The value, as a user would read it."""
    if dtype == "str":
        value = json.loads(text)
        assert isinstance(value, str)
        value.encode()  # no lone surrogates
        return value
    if dtype == "bool":
        return {"True": True, "False": False}[text]
    return int(text) if dtype == "int" else float(text)


def generate(
    matcher: Matcher, text: OutputText, logits: list[np.ndarray], params: SamplingParams, end: int
) -> str:
    """The engine's loop for one request: "stop", or "length" where the logits run out."""
    sampler = Sampler(logits[0].shape[0])
    for position, values in enumerate(logits):
        row = SampleRow(params, seed=0, position=position, mask=matcher.mask())
        [result] = sampler.sample(values[None], [row])
        assert isinstance(result, SampledToken), result
        if result.token_id == end:
            text.finish()
            return "stop"
        matcher.accept(result.token_id)
        if text.push(result.token_id) is not None or matcher.must_stop:
            text.finish()
            return "stop"
    text.finish()
    return "length"


@settings(max_examples=60, deadline=None)
@given(
    dtype=st.sampled_from(["int", "float", "bool", "str"]),
    seed=st.integers(0, 2**32),
    temperature=st.sampled_from([0.0, 1.0, 3.0]),
    keeps_stop=st.booleans(),
)
def test_whatever_the_model_wants_the_result_parses(
    dtype: str, seed: int, temperature: float, keeps_stop: bool
) -> None:
    rng = np.random.default_rng(seed)
    # Lean towards what makes numbers and strings long or odd.
    lean = np.zeros(BYTES.vocab_size)
    lean[[*b'0123456789."\\u', 257, 258, 259, 263, 264]] = rng.normal(0, 3)
    logits = [(rng.normal(0, 2, BYTES.vocab_size) + lean).astype(np.float32) for _ in range(120)]
    params = SamplingParams(temperature=temperature, no_stop_trim=keeps_stop)
    text = OutputText(BYTES, params, dtype_stops(dtype))
    reason = generate(dtype_matcher(dtype, BYTES), text, logits, params, END)
    if dtype != "str":
        assert reason == "stop"
    if reason == "stop":
        value = parse(dtype, text.text)
        assert not isinstance(value, float) or math.isfinite(value)
    else:  # a string that the model never closes
        assert text.text.startswith('"')


@pytest.fixture(scope="module")
def smollm2(smollm2_path: Path) -> Tokenizer:
    return tokenizer_from_gguf(GgufFile(smollm2_path).metadata)


def allowed(matcher: Matcher) -> set[int]:
    bits = np.unpackbits(matcher.mask().view(np.uint8), bitorder="little")
    return set(np.flatnonzero(bits).tolist())


def test_masks_on_the_real_vocabulary_are_the_tokens_that_fit(smollm2: Tokenizer) -> None:
    pieces = [
        b"" if smollm2.is_control(token_id) else smollm2.token_bytes(token_id)
        for token_id in range(smollm2.vocab_size)
    ]
    number = dtype_matcher("int", smollm2)
    digits = {i for i, piece in enumerate(pieces) if piece.isdigit() and piece.isascii()}
    signs = {i for i, piece in enumerate(pieces) if piece in (b"-", b"+")}
    starts = allowed(number)
    assert digits | signs <= starts
    for token_id in starts - digits - signs:  # a sign and digits, or digits and an end
        assert pieces[token_id].lstrip(b"+-")[:1].isdigit()
    number.accept(min(digits))
    spaced = {i for i, piece in enumerate(pieces) if piece[:1] in (b" ", b"\n")}
    assert spaced | digits | smollm2.eos_ids <= allowed(number)
    truth = dtype_matcher("bool", smollm2)
    assert {pieces[token_id] for token_id in allowed(truth)} == {
        piece
        for piece in pieces
        if piece and (b"True".startswith(piece) or b"False".startswith(piece))
    }


@pytest.mark.parametrize("dtype", ["int", "float", "bool", "str"])
def test_results_on_the_real_vocabulary_parse(smollm2: Tokenizer, dtype: str) -> None:
    rng = np.random.default_rng(0)
    for seed in range(3):
        logits = [rng.normal(0, 2, smollm2.vocab_size).astype(np.float32) for _ in range(60)]
        params = SamplingParams(temperature=float(seed))
        text = OutputText(smollm2, params, dtype_stops(dtype))
        reason = generate(dtype_matcher(dtype, smollm2), text, logits, params, -1)
        if reason == "stop":
            parse(dtype, text.text)
        else:
            assert dtype == "str"
