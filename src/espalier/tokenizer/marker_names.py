"""Names by which tokens are known to be markers, whatever type a file gives them.

Files are often wrong about token types and list one end token where a model uses several; these
tables (the same names as llama.cpp's) set that right.
"""

from __future__ import annotations

# These end a generation wherever they are in a vocabulary.
END_NAMES = frozenset(
    {
        "<|eot_id|>",
        "<|im_end|>",
        "<|end|>",
        "<|return|>",
        "<|call|>",
        "<|flush|>",
        "<|calls|>",
        "<end_of_turn>",
        "<|endoftext|>",
        "</s>",
        "<|eom_id|>",
        "<EOT>",
        "_<EOT>",
        "[EOT]",
        "[EOS]",
        "<|end_of_text|>",
        "<end_of_utterance>",
        "<eos>",
        "<｜end▁of▁sentence｜>",
    }
)

# Of the names above, those that are HTML tags (ordinary added text) in some vocabularies.
HTML_NAMES = frozenset({"</s>"})

# Turn markers that open a role: control tokens, though they end nothing.
TURN_NAMES = frozenset(
    {
        "<|im_start|>",
        "<|start_header_id|>",
        "<|end_header_id|>",
        "<|begin_of_text|>",
        "<start_of_turn>",
        "[INST]",
        "[/INST]",
        "[SYSTEM_PROMPT]",
        "[/SYSTEM_PROMPT]",
        "<|system|>",
        "<|user|>",
        "<|assistant|>",
        "<｜begin▁of▁sentence｜>",
        "<｜User｜>",
        "<｜Assistant｜>",
    }
)

# Fill-in-the-middle markers, by the GGUF key that may name them: (names, ends a generation).
FIM_NAMES: dict[str, tuple[tuple[str, ...], bool]] = {
    "fim_pre_token_id": (
        (
            "<|fim_prefix|>",
            "<fim-prefix>",
            "<fim_prefix>",
            "<｜fim▁begin｜>",
            "<PRE>",
            "▁<PRE>",
            "<|code_prefix|>",
            "<|prefix|>",
        ),
        False,
    ),
    "fim_suf_token_id": (
        (
            "<|fim_suffix|>",
            "<fim-suffix>",
            "<fim_suffix>",
            "<｜fim▁hole｜>",
            "<SUF>",
            "▁<SUF>",
            "<|code_suffix|>",
            "<|suffix|>",
        ),
        False,
    ),
    "fim_mid_token_id": (
        (
            "<|fim_middle|>",
            "<fim-middle>",
            "<fim_middle>",
            "<｜fim▁end｜>",
            "<MID>",
            "▁<MID>",
            "<|code_middle|>",
            "<|middle|>",
        ),
        False,
    ),
    "fim_pad_token_id": (("<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"), True),
    "fim_rep_token_id": (
        ("<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"),
        True,
    ),
    "fim_sep_token_id": (("<|file_sep|>",), True),
}
