"""Writes data/corpus.json and the small vocabularies, from the texts below.

Run it by hand, then make_expected_ids.py: `python tests/tokenizer/make_corpus.py`. Everything is
written for these tests; nothing comes from a model.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, models, pre_tokenizers, trainers

DATA = Path(__file__).parent / "data"
SEED = 20240501
NUM_RANDOM_TEXTS = 600

SCRIPTS = {
    "english": "The gardener tied young branches to the frame, and it's grown there since 1987.",
    "french": "L'été dernier, nous avons cueilli des pêches au vieux mur ; c'était délicieux !",
    "german": "Die Bäume größerer Gärten müssen jährlich geschnitten werden, sagt Frau Weiß.",
    "polish": "Zażółć gęślą jaźń: dziś rano źdźbła trawy były całkiem mokre.",
    "turkish": "İstanbul'da ılık bir akşam, ağaçların altında çay içtik.",
    "vietnamese": "Những cây ăn quả được uốn dọc theo bức tường gạch cũ.",
    "greek": "Το δέντρο μεγαλώνει αργά, αλλά οι ρίζες του φτάνουν βαθιά.",
    "cyrillic": "Садовник обрезал ветви ранней весной, когда ещё лежал снег.",
    "armenian": "Ծառը աճում է պատի երկայնքով։",
    "georgian": "ხე იზრდება კედლის გასწვრივ.",
    "hebrew": "העץ גדל לאורך הקיר, והענפים נקשרו אליו.",
    "arabic": "تنمو الشجرة بمحاذاة الجدار، وتُربط الأغصان في شهر ٣ من كل عام.",
    "hindi": "पेड़ दीवार के सहारे बढ़ता है और हर वर्ष १२ फल देता है।",
    "tamil": "மரம் சுவரை ஒட்டி வளர்கிறது.",
    "thai": "ต้นไม้เติบโตไปตามกำแพงทุกปี",
    "amharic": "ዛፉ በግድግዳው ላይ ያድጋል።",
    "chinese": "果树沿着墙生长，每年春天都要修剪枝条。１２３",
    "japanese": "果樹は壁に沿って育ち、毎年春にはカタカナのラベルを付けます。",
    "korean": "과일나무는 벽을 따라 자라며 해마다 봄에 가지를 친다.",
    "mixed scripts": "abc абв αβγ אבג ابت 你好abcこんにちはабв안녕123٤٥٦",
}

EMOJI = {
    "emoji": "🌳🌱 grow 🍐🍎!",
    "emoji family": "👨‍👩‍👧‍👦 and 👩🏽‍🌾 with 🏳️‍🌈",
    "emoji flags": "🇫🇷🇯🇵🇧🇷 🇺",
    "emoji keycap": "1️⃣2️⃣ #️⃣ ☃️ ☃",
    "astral letters": "𝔊𝔞𝔯𝔡𝔢𝔫 𐐷𐐲 𠮷𠮾",
    "private use": "\ue000\uf8ff\U000f0000\U0010fffd",
    "plane 4 to 11": "\U00040000\U00080000\U000b0001",
    "tags": "\U0001f3f4\U000e0067\U000e0062\U000e007f",
}

CODE = {
    "python": "def f(x: int) -> str:\n    return f'{x:>10}'  # note\n\n\nclass A:\n\tpass\n",
    "c": '#include <stdio.h>\nint main(void){for(int i=0;i<10;++i)printf("%d\\n",i);return 0;}',
    "json": '{"a": [1, 2.50, -3e-7], "b": null, "c\\u00e9": "\\"q\\""}',
    "html": '<table><tr><td class="x">1</td></tr></table><!-- no --><br/>&nbsp;</s><s>',
    "shell": "ls -la | grep '^d' && echo \"$HOME\" >> ~/out.txt; exit $?",
    "math": "∑_{i=1}^n x_i² ≤ ∞ ⇒ √2≈1.41421356 ∧ ¬(a∨b) ½ Ⅷ ㊷",
    "url": "https://example.org/a/b?c=d&e=%20f#g-h_i",
    "regex": r"^(?:[a-z_]\w*|\d{3,})\s*$",
}

SPACES = {
    "one space": " ",
    "two spaces": "  ",
    "spaces 100": " " * 100,
    "spaces 300": "a" + " " * 300 + "b",
    "trailing spaces": "word   ",
    "leading spaces": "   word",
    "spaces between": "a b  c   d    e     f",
    "tabs": "\ta\t\tb\t\t\tc" + "\t" * 20,
    "newlines 1": "\n",
    "newlines 2": "a\n\nb",
    "newlines 40": "a" + "\n" * 40 + "b",
    "newlines mixed": "a\r\nb\rc\n\rd\n\n\r\ne \n f\n \n\n  g",
    "newline and space": "x \n y  \n  z\n\n   w",
    "unicode spaces": "a\u00a0b\u2003c\u3000d\u2028e\u2029f\u0085g\u200bh\ufeffi\u1680j",
    "vertical": "a\vb\fc\x1cd\x1fe",
    "space before punctuation": "Well , he said ; ( yes ) ! ... ?",
    "underline space": "a▁b▁▁c ▁d▁ e",
}

NUMBERS = {
    "digits": "0 12 345 6789 12345 678901234567890",
    "digits and words": "a1b22c333d4444 x86_64 3rd 1st v2.0.1",
    "dates": "2024-05-01T12:34:56.789Z, 01/05/24, 12:30pm, $1,234,567.89, 50%, +49 30 123",
    "other digits": "٠١٢٣٤٥ १२३४५ ๑๒๓ 〇一二三 ①②③ ¹²³ ½⅓",
    "digits after spaces": "x  1  22   333\n4 \t5",
}

WORDS = {
    "contractions": "I'm you're he's she'd we'll they've can't 'tis o'clock I'M YOU'RE IT'S 'Sx",
    "curly contractions": "I’m you’re it’s",
    "long s": "'ſ 'ſt Buchſtabe",
    "long word": "pneumonoultramicroscopicsilicovolcanoconiosis" * 8,
    "one letter 500": "a" * 500,
    "two letters 500": "ab" * 250,
    "long cjk": "果树沿着墙生长每年春天都要修剪" * 20,
    "base64": "VGhlIGdhcmRlbmVyIHRpZWQgdGhlIHlvdW5nIGJyYW5jaGVzIHRvIHRoZSBmcmFtZQ" * 4,
    "hex": "deadbeefcafebabe0123456789abcdef" * 4,
    "camel": "getHTTPResponseCodeXMLHttpRequest snake_case_word SCREAMING_CASE kebab-case",
    "combining": "e\u0301te\u0301 n\u0303 o\u0308 a\u0308\u0301 नि क्षि g\u0308",
    "punctuation": "!!! ??? ... --- === *** ### ((( ))) [[[ ]]] {{{ }}} \"\"\" ''' ``` ~~~ ^^^ |||",
    "joined punctuation": "a,b.c;d:e!f?g(h)i[j]k{l}m\"n'o`p~q^r|s\\t/u",
    "nul": "a\x00b\x00\x00c",
    "control characters": "\x01\x02\x03\x04\x05\x06\x07\x08\x0e\x10\x13\x14\x16\x1a\x1b\x1d\x7f",
    "replacement": "a\ufffdb\ufffd\ufffdc \uffff \ufffe",
    "empty": "",
}

CONTROL = {
    "chatml": "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n",
    "llama": "<s>[INST] Hi [/INST] Hello</s><s>",
    "llama3": "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>",
    "gemma": "<bos><start_of_turn>user\nHi<end_of_turn>\n<start_of_turn>model\n<eos>",
    "end of text": "one<|endoftext|>two <|endoftext|> three<|endoftext|>",
    "unknown": "<unk> <pad> <mask> [PAD] [multimodal] <unused0><unused12> <unused99>",
    "half": "<|im_start <|im_end|| |im_end|> <start_of_turn <end_of_turn >",
    "doubled": "<|im_start|><|im_start|><|im_end|><|im_end|>",
    "byte names": "<0x0A> <0x41><0xff> <0x00>",
    "spaces around": "a <bos> b  <|im_end|>  c\n<s>\nd </s> e",
    "tools": "<tool_call>{}</tool_call> <think>x</think>",
}


def named_texts() -> dict[str, str]:
    """All texts by name."""
    groups = (SCRIPTS, EMOJI, CODE, SPACES, NUMBERS, WORDS, CONTROL)
    return {name: text for group in groups for name, text in group.items()}


def random_texts(texts: Sequence[str]) -> list[str]:
    """Texts put together at random from pieces of the named ones and from any characters."""
    source = random.Random(SEED)
    atoms = [" ", "  ", "\n", "\n\n", "\t", "\r\n", "1", "12", "'s", "'S", "é", ".", ",", "_", "▁"]
    atoms += list(CONTROL.values())[:4]
    ranges: tuple[tuple[int, int], ...] = (
        (32, 127),
        (0xA0, 0x250),
        (0x370, 0x800),
        (0x900, 0xE00),
        (0x2000, 0x2700),
    )
    ranges += ((0x3000, 0x9FFF), (0xAC00, 0xD7A3), (0x1F300, 0x1FA00))
    found = []
    for _ in range(NUM_RANDOM_TEXTS):
        parts = []
        for _ in range(source.randint(1, 8)):
            kind = source.randrange(4)
            if kind == 0:
                parts.append(source.choice(atoms))
            elif kind == 1:
                parts.append(chr(source.randrange(*source.choice(ranges))))
            else:
                text = source.choice(texts) or " "
                start = source.randrange(len(text))
                parts.append(text[start : start + source.randint(1, 12)])
        found.append("".join(parts))
    return found


def byte_level_vocabulary(texts: Sequence[str]) -> dict[str, Any]:
    """A byte-level BPE vocabulary in GGUF's keys, with control and user-defined tokens."""
    library = Tokenizer(models.BPE())
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(vocab_size=900, initial_alphabet=alphabet, show_progress=False)
    library.train_from_iterator(texts, trainer)
    model = json.loads(library.to_str())["model"]
    words = sorted(model["vocab"], key=model["vocab"].get)
    control = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|unused_0|>"]
    defined = ["<think>", "</think>", "\n\n\n\n", "    ", "  ", "<b", "b>"]
    tokens = control + words + defined
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [3] * len(control) + [1] * len(words) + [4] * len(defined),
        "tokenizer.ggml.merges": [" ".join(pair) for pair in model["merges"]],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.padding_token_id": 0,
    }


def sentencepiece_vocabulary(texts: Sequence[str]) -> dict[str, Any]:
    """A vocabulary with scores in GGUF's keys: Llama 2's layout, byte tokens included."""
    library = Tokenizer(models.BPE())
    library.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always", split=True)
    trainer = trainers.BpeTrainer(vocab_size=1100, show_progress=False)
    library.train_from_iterator(texts, trainer)
    vocab = json.loads(library.to_str())["model"]["vocab"]
    defined = ["\n\n", "\n", "<td>", "</td>"]
    # From parts of <s> llama.cpp would merge the control token out of plain text; we never do.
    barred = {*defined, "<s", "s>", "</s", "/s>"}
    learned = [word for word in sorted(vocab, key=vocab.get) if word not in barred]
    chars = [word for word in learned if len(word) == 1]
    words = [word for word in learned if len(word) > 1]
    words += ["▁▁", "▁▁▁▁", "e▁t", ".▁"]  # also across words
    words = list(dict.fromkeys(words))
    head = ["<unk>", "<s>", "</s>"]
    size = len(head) + 256 + len(words) + len(chars) + len(defined)
    scores = [0.0] * (len(head) + 256) + [-float(rank // 2) for rank in range(len(words))]
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": head
        + [f"<0x{byte:02X}>" for byte in range(256)]
        + words
        + chars
        + defined,
        "tokenizer.ggml.token_type": [2, 3, 3]
        + [6] * 256
        + [1] * (len(words) + len(chars))
        + [4] * len(defined),
        "tokenizer.ggml.scores": scores + [-1e6] * (size - len(scores)),
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
    }


def write(name: str, value: object, indent: int | None = None) -> None:
    """Writes a data file as JSON in ASCII."""
    text = json.dumps(value, indent=indent, separators=(",", ":") if indent is None else None)
    (DATA / name).write_text(text + "\n", encoding="ascii")


def main() -> None:
    texts = named_texts()
    # Not from the control tokens, which merges must not make; llama.cpp cuts tokens at a NUL.
    sources = [text for name, text in texts.items() if name not in CONTROL and len(text) < 250]
    training = [text for text in sources if "\0" not in text] * 3
    write("corpus.json", {"named": texts, "random": random_texts(list(texts.values()))})
    write("small_byte_level.json", byte_level_vocabulary(training))
    # Scripts that are left out here become byte tokens.
    left_out = {*EMOJI.values(), *(SCRIPTS[name] for name in ("tamil", "thai", "korean"))}
    fewer = [text for text in training if text not in left_out]
    write("small_sentencepiece.json", sentencepiece_vocabulary(fewer))


if __name__ == "__main__":
    main()
