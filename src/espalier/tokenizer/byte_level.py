"""Byte-level BPE (GPT-2's scheme) from a GGUF vocabulary, on the tokenizers library.

Owns the byte alphabet and the patterns that split text into words before merging. The patterns are
those of llama.cpp, so that ids equal its ids; it knows no special tokens.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tokenizers import Regex, Tokenizer, models, pre_tokenizers

from espalier.errors import ModelFileError, UnsupportedError
from espalier.tokenizer.vocabulary import TokenKind

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_CONTRACTIONS = r"'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]"
_WORDS = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_OTHER = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"

_SMOLLM = (r"\p{N}", _GPT2)
_LLAMA3 = (rf"{_CONTRACTIONS}|{_WORDS}|\p{{N}}{{1,3}}|{_OTHER}",)
_QWEN2 = (rf"{_CONTRACTIONS}|{_WORDS}|\p{{N}}|{_OTHER}",)
_DEFAULT = (r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", r"[0-9][0-9][0-9]")

# `tokenizer.ggml.pre` -> patterns, applied one after the other to the pieces of the one before
WORD_PATTERNS: dict[str, tuple[str, ...]] = {
    "smollm": _SMOLLM,
    "llama-bpe": _LLAMA3,
    "llama3": _LLAMA3,
    "llama-v3": _LLAMA3,
    "qwen2": _QWEN2,
    "deepseek-r1-qwen": _QWEN2,
    "gpt-2": (_GPT2,),
    "default": _DEFAULT,
}
# These take a word that is a token as that token, whatever the merges say, and begin with BOS.
LLAMA3_NAMES = frozenset({"llama-bpe", "llama3", "llama-v3"})


def _byte_alphabet() -> dict[int, str]:
    """Byte -> the printable character that stands for it in token texts."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    alphabet = {byte: chr(byte) for byte in printable}
    others = (byte for byte in range(256) if byte not in alphabet)
    alphabet.update({byte: chr(256 + index) for index, byte in enumerate(others)})
    return alphabet


BYTE_TO_CHAR = _byte_alphabet()
# Each character of the alphabet is the Latin-1 character of its byte; others have none.
_TO_LATIN_1 = dict.fromkeys(range(256), "\uffff")
_TO_LATIN_1.update({ord(char): chr(byte) for byte, char in BYTE_TO_CHAR.items()})


def bytes_of(text: str) -> bytes:
    """Bytes that a byte-level token text stands for.

    A text with a character outside the alphabet was not made by this scheme and stands for itself.
    """
    try:
        return text.translate(_TO_LATIN_1).encode("latin-1")
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace")


def pre_tokenizer(patterns: Iterable[str]) -> pre_tokenizers.PreTokenizer:
    """Splits text by the patterns and writes each piece in the byte alphabet."""
    steps: list[pre_tokenizers.PreTokenizer] = [
        pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in patterns
    ]
    steps.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False))
    return pre_tokenizers.Sequence(steps)


class ByteLevelEncoder:
    """Encodes text that holds no special tokens. Bytes that have no token are left out.

    Raises UnsupportedError for an unknown `pre`, ModelFileError for merges that make no token.
    """

    # Each of the patterns ends a word between a line break with text right before it and a letter.
    splits_at_lines = True

    def __init__(self, texts: Sequence[str], kinds: bytes, merges: Sequence[str], pre: str) -> None:
        if pre not in WORD_PATTERNS:
            raise UnsupportedError(
                f"the tokenizer's pre-tokenizer is {pre!r}; supported are "
                f"{', '.join(sorted(WORD_PATTERNS))}. Use another model, or its Hugging Face "
                "folder with a tokenizer.json."
            )
        # Without the control tokens no merge can end in one.
        barred = {TokenKind.CONTROL, TokenKind.UNKNOWN}
        ids = {text: index for index, text in enumerate(texts) if kinds[index] not in barred}
        model = models.BPE(
            vocab=ids,
            merges=merge_pairs(merges, ids, texts),
            ignore_merges=pre in LLAMA3_NAMES,
        )
        self._library = Tokenizer(model)
        self._library.pre_tokenizer = pre_tokenizer(WORD_PATTERNS[pre])

    def encode(self, text: str, *, adds_space: bool = False) -> list[int]:
        """Token ids of a text; this scheme adds no space."""
        assert not adds_space
        ids: list[int] = self._library.encode(text, add_special_tokens=False).ids
        return ids


def merge_pairs(
    merges: Sequence[str], ids: dict[str, int], texts: Sequence[str]
) -> list[tuple[str, str]]:
    """Merges as pairs, each once; those that would make a control token are left out."""
    pairs: dict[tuple[str, str], None] = {}
    known: frozenset[str] | None = None
    for index, merge in enumerate(merges):
        cut = merge.find(" ", 1)
        left, right = merge[:cut], merge[cut + 1 :]
        if cut > 0 and left in ids and right in ids and left + right in ids:
            pairs.setdefault((left, right))
            continue
        known = known if known is not None else frozenset(texts)
        if cut <= 0 or not {left, right, left + right} <= known:
            raise ModelFileError(
                f"merge {index} of the tokenizer is {merge!r}; two tokens that make a third are "
                "needed. The file is damaged."
            )
    return list(pairs)
