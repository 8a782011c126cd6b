"""Where tokens lie in the text that they stand for, in characters."""

from __future__ import annotations

from collections.abc import Sequence

from espalier.backends.prompt_ids import PromptEncoder
from espalier.tokenizer.tokenizer import Tokenizer
from espalier.types import Prompt, prompt_text


def prompt_offset(
    tokenizer: Tokenizer, encoder: PromptEncoder, prompt: Prompt, num_tokens: int
) -> int:
    """Whole characters of a prompt's text that its first `num_tokens` tokens stand for.

    A BOS that the model wants and the text does not spell stands for none. Raises PromptError.
    """
    ids = encoder.encode(prompt).all[:num_tokens]
    text = prompt_text(prompt)
    bos_id = tokenizer.bos_id
    if ids and ids[0] == bos_id and not text.startswith(tokenizer.token_text(bos_id)):
        found = tokenizer.decode_bytes(ids[1:], skip_special_tokens=False, at_start=True)
    else:
        found = tokenizer.decode_bytes(ids, skip_special_tokens=False, at_start=True)
    return min(len(found.decode("utf-8", "ignore")), len(text))


def token_offsets(tokenizer: Tokenizer, token_ids: Sequence[int]) -> list[int]:
    """Where each generated token begins in their text, and where the last one ends.

    A character belongs to the token that its first byte is in; control tokens stand for no text.
    """
    offsets = [0]
    for token_id in token_ids:
        data = b"" if tokenizer.is_control(token_id) else tokenizer.token_bytes(token_id)
        offsets.append(offsets[-1] + sum(byte & 0xC0 != 0x80 for byte in data))
    return offsets
