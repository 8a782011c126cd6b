"""Folders with tokenizer.json: ids are those that the tokenizers library itself gives."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tokenizers import (
    AddedToken,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

from espalier.errors import ModelFileError, UnsupportedError
from espalier.tokenizer.hf_folder import chat_template_from_folder, tokenizer_from_folder
from espalier.tokenizer.vocabulary import SpacePrefix

SPECIAL = ["<s>", "</s>", "<|im_end|>"]
SPACES = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]


def _train(library: Tokenizer, texts: list[str], *, byte_tokens: bool) -> Tokenizer:
    alphabet = [] if byte_tokens else sorted(pre_tokenizers.ByteLevel.alphabet())
    head = ["<unk>", *SPECIAL, *([f"<0x{b:02X}>" for b in range(256)] if byte_tokens else [])]
    trainer = trainers.BpeTrainer(
        vocab_size=900, initial_alphabet=alphabet, special_tokens=head, show_progress=False
    )
    library.train_from_iterator(texts, trainer)
    source = json.loads(library.to_str())
    source["added_tokens"] = [t for t in source["added_tokens"] if t["content"] in SPECIAL]
    library = Tokenizer.from_str(json.dumps(source))
    library.add_tokens([AddedToken("<think>", special=False, normalized=False), "  "])
    library.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair=None, special_tokens=[("<s>", library.token_to_id("<s>"))]
    )
    return library


def _byte_level(texts: list[str]) -> Tokenizer:
    library = Tokenizer(models.BPE())
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = decoders.ByteLevel()
    return _train(library, texts, byte_tokens=False)


def _byte_level_with_space(texts: list[str]) -> Tokenizer:
    library = Tokenizer(models.BPE())
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    library.decoder = decoders.ByteLevel()
    return _train(library, texts, byte_tokens=False)


def _fallback_model() -> Tokenizer:
    return Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))


def _llama2(texts: list[str]) -> Tokenizer:
    library = _fallback_model()
    library.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    library.decoder = decoders.Sequence([*SPACES, decoders.Strip(" ", 1, 0)])
    return _train(library, texts, byte_tokens=True)


def _gemma(texts: list[str]) -> Tokenizer:
    library = _fallback_model()
    library.normalizer = normalizers.Replace(" ", "▁")
    library.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    library.decoder = decoders.Sequence(SPACES)
    return _train(library, texts, byte_tokens=True)


def _metaspace(scheme: str) -> Callable[[list[str]], Tokenizer]:
    def make(texts: list[str]) -> Tokenizer:
        library = _fallback_model()
        library.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme, split=True)
        library.decoder = decoders.Sequence(
            [decoders.ByteFallback(), decoders.Metaspace(prepend_scheme=scheme)]
        )
        return _train(library, texts, byte_tokens=True)

    return make


KINDS: dict[str, Callable[[list[str]], Tokenizer]] = {
    "byte level": _byte_level,
    "byte level with space": _byte_level_with_space,
    "llama 2": _llama2,
    "gemma": _gemma,
    "metaspace first": _metaspace("first"),
    "metaspace always": _metaspace("always"),
    "metaspace never": _metaspace("never"),
}
CONFIG = {"bos_token": "<s>", "eos_token": {"content": "</s>"}, "unk_token": "<unk>"}


def save(folder: Path, library: Tokenizer, **files: Any) -> Path:
    """A model folder of this tokenizer and these JSON files."""
    library.save(str(folder / "tokenizer.json"))
    for name, value in {"tokenizer_config": CONFIG, **files}.items():
        (folder / f"{name}.json").write_text(json.dumps(value), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def training(corpus: dict[str, Any]) -> list[str]:
    return [text for text in corpus["named"].values() if "<" not in text and len(text) < 250]


@pytest.fixture(scope="module")
def libraries(training: list[str]) -> dict[str, Tokenizer]:
    return {kind: make(training) for kind, make in KINDS.items()}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("allow_special", [False, True])
def test_ids_equal_the_library(
    kind: str,
    allow_special: bool,
    libraries: dict[str, Tokenizer],
    corpus: dict[str, Any],
    tmp_path: Path,
) -> None:
    library = Tokenizer.from_str(libraries[kind].to_str())
    tokenizer = tokenizer_from_folder(save(tmp_path, library))
    library.encode_special_tokens = not allow_special
    for text in (*corpus["named"].values(), *corpus["random"][:300]):
        ids = library.encode(text, add_special_tokens=False).ids
        assert tokenizer.encode(text, allow_special=allow_special, add_bos=False) == ids, text


@pytest.mark.parametrize("kind", KINDS)
def test_decoding_gives_every_text_back(
    kind: str, libraries: dict[str, Tokenizer], corpus: dict[str, Any], tmp_path: Path
) -> None:
    tokenizer = tokenizer_from_folder(save(tmp_path, libraries[kind]))
    per_fragment = tokenizer.vocabulary.space_prefix is SpacePrefix.PER_FRAGMENT
    num_kept = 0
    for text in (*corpus["named"].values(), *corpus["random"]):
        # A space is added after each added token, or is not added where there is one already.
        lossy = per_fragment and ("  " in text or "<think>" in text)
        lossy = lossy or (text.startswith(" ") and kind not in ("byte level", "llama 2", "gemma"))
        if "▁" not in text and not lossy:
            ids = tokenizer.encode(text)
            assert tokenizer.decode(ids, at_start=True) == text
            num_kept += 1
    assert num_kept > 400


@pytest.mark.parametrize("kind", KINDS)
def test_control_tokens_are_only_taken_where_allowed(
    kind: str, libraries: dict[str, Tokenizer], tmp_path: Path
) -> None:
    tokenizer = tokenizer_from_folder(save(tmp_path, libraries[kind]))
    text = "a</s>b<|im_end|><s>"
    assert not any(map(tokenizer.is_control, tokenizer.encode(text, add_bos=False)))
    ids = tokenizer.encode_pieces([(text, False), (text, True)], add_bos=False)
    assert sum(map(tokenizer.is_control, ids)) == 3
    assert tokenizer.eos_ids == {tokenizer.token_id("</s>"), tokenizer.token_id("<|im_end|>")}
    assert tokenizer.add_bos
    assert tokenizer.encode("<s>a", allow_special=True).count(tokenizer.bos_id or 0) == 1


def test_text_that_goes_on_gets_no_space(libraries: dict[str, Tokenizer], tmp_path: Path) -> None:
    for kind in ("llama 2", "metaspace first", "byte level with space"):
        tokenizer = tokenizer_from_folder(save(tmp_path, libraries[kind]))
        ids = tokenizer.encode("tree") + tokenizer.encode("wall", at_start=False)
        assert tokenizer.decode(ids) == "treewall"


def test_small_files_say_which_tokens_begin_and_end(
    libraries: dict[str, Tokenizer], tmp_path: Path
) -> None:
    library = libraries["byte level"]
    folder = save(
        tmp_path,
        library,
        tokenizer_config={"add_bos_token": False},
        special_tokens_map={"bos_token": "<s>", "pad_token": {"content": "<think>"}},
        generation_config={"eos_token_id": [5, 7]},
    )
    tokenizer = tokenizer_from_folder(folder)
    assert tokenizer.bos_id == library.token_to_id("<s>")
    assert tokenizer.pad_id == library.token_to_id("<think>")
    assert tokenizer.eos_id is None
    assert tokenizer.eos_ids == {5, 7, library.token_to_id("<|im_end|>")}
    assert not tokenizer.add_bos
    (folder / "generation_config.json").unlink()
    (folder / "config.json").write_text('{"eos_token_id": 9}', encoding="utf-8")
    assert 9 in tokenizer_from_folder(folder).eos_ids


def test_ids_that_only_the_model_has_are_unused_tokens(
    libraries: dict[str, Tokenizer], tmp_path: Path
) -> None:
    library = libraries["byte level"]
    size = library.get_vocab_size()
    larger: list[dict[str, Any]] = [{"vocab_size": size + 9}]
    for config in (*larger, {"text_config": larger[0]}):
        tokenizer = tokenizer_from_folder(save(tmp_path, library, config=config))
        assert tokenizer.vocab_size == size + 9
        assert tokenizer.decode([size + 8, *tokenizer.encode("a", add_bos=False)]) == "a"
    smaller: list[dict[str, Any]] = [{"vocab_size": 3}, {"vocab_size": "x"}]
    for config in smaller:
        assert tokenizer_from_folder(save(tmp_path, library, config=config)).vocab_size == size


def test_markers_are_control_tokens_whatever_the_file_says(
    training: list[str], tmp_path: Path
) -> None:
    library = Tokenizer(models.BPE(byte_fallback=True))
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = decoders.ByteLevel()
    library.train_from_iterator(training, trainers.BpeTrainer(vocab_size=400, show_progress=False))
    library.add_tokens([AddedToken("<|im_start|>", special=False), AddedToken("<b>")])
    tokenizer = tokenizer_from_folder(save(tmp_path, library, tokenizer_config={}))
    marker, tag = tokenizer.token_id("<|im_start|>"), tokenizer.token_id("<b>")
    assert marker is not None
    assert tag is not None
    assert tokenizer.is_control(marker)
    assert not tokenizer.is_control(tag)
    assert marker not in tokenizer.encode("a<|im_start|>")
    assert tokenizer.encode("<|im_start|>", allow_special=True) == [marker]
    assert tag in tokenizer.encode("a<b>")


def test_unigram_model_is_read(tmp_path: Path) -> None:
    pieces = [("<unk>", 0.0), ("▁", -2.0), ("▁tree", -1.0), ("s", -3.0), ("▁a", -1.5)]
    library = Tokenizer(models.Unigram(pieces, unk_id=0, byte_fallback=False))
    library.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    library.decoder = decoders.Metaspace(prepend_scheme="always")
    tokenizer = tokenizer_from_folder(save(tmp_path, library, tokenizer_config={}))
    ids = tokenizer.encode("a trees")
    assert ids == library.encode("a trees").ids == [4, 2, 3]
    assert tokenizer.decode(ids, at_start=True) == "a trees"


def test_folder_without_a_usable_tokenizer_is_refused(
    libraries: dict[str, Tokenizer], tmp_path: Path
) -> None:
    with pytest.raises(ModelFileError, match=r"has no tokenizer\.json"):
        tokenizer_from_folder(tmp_path)
    (tmp_path / "tokenizer.model").write_bytes(b"x")
    with pytest.raises(UnsupportedError, match=r"SentencePiece model but no tokenizer\.json"):
        tokenizer_from_folder(tmp_path)
    for text, message in (
        ("{", "is not JSON"),
        ("[]", "a JSON object is needed"),
        ('{"model": {"type": "WordPiece"}}', "'WordPiece'; supported are BPE and Unigram"),
        ('{"model": {"type": "BPE", "vocab": 3}}', "cannot be read by the tokenizers library"),
        ("{}", "a model of the kind None"),
    ):
        (tmp_path / "tokenizer.json").write_text(text, encoding="utf-8")
        with pytest.raises((ModelFileError, UnsupportedError), match=message):
            tokenizer_from_folder(tmp_path)
    library = Tokenizer.from_str(libraries["byte level"].to_str())
    library.decoder = decoders.WordPiece()
    with pytest.raises(UnsupportedError, match="decodes by WordPiece; supported are ByteLevel"):
        tokenizer_from_folder(save(tmp_path, library))
    single = Tokenizer.from_str(libraries["byte level"].to_str())
    single.add_special_tokens([AddedToken("<w>", single_word=True)])
    with pytest.raises(UnsupportedError, match=r"'<w>'.*single_word"):
        tokenizer_from_folder(save(tmp_path, single))


def test_end_token_outside_the_vocabulary_is_refused(
    libraries: dict[str, Tokenizer], tmp_path: Path
) -> None:
    folder = save(tmp_path, libraries["gemma"], generation_config={"eos_token_id": 10**6})
    with pytest.raises(ModelFileError, match=r"end \(1000000\) token has the id 1000000"):
        tokenizer_from_folder(folder)


def test_chat_template_is_found_where_folders_keep_it(tmp_path: Path) -> None:
    assert chat_template_from_folder(tmp_path) is None
    (tmp_path / "chat_template.json").write_text('{"chat_template": "one"}', encoding="utf-8")
    assert chat_template_from_folder(tmp_path) == "one"
    named = [{"name": "tool_use", "template": "x"}, {"name": "default", "template": "two"}]
    config = json.dumps({"chat_template": named})
    (tmp_path / "tokenizer_config.json").write_text(config, encoding="utf-8")
    assert chat_template_from_folder(tmp_path) == "two"
    (tmp_path / "chat_template.jinja").write_text("{{ three }}", encoding="utf-8")
    assert chat_template_from_folder(tmp_path) == "{{ three }}"


@pytest.mark.parametrize("value", [None, 0, True, "x", [], {}, {"a": 1}, [{}], [[1]], [None, "x"]])
def test_small_files_with_values_of_another_kind_are_read(
    libraries: dict[str, Tokenizer], tmp_path: Path, value: Any
) -> None:
    library = libraries["byte level"]
    files = {"generation_config": {"eos_token_id": value}, "config": {"eos_token_id": value}}
    config = {"chat_template": value, "bos_token": value, "eos_token": "<|im_end|>"}
    folder = save(tmp_path, library, tokenizer_config=config, **files)
    assert library.token_to_id("<|im_end|>") in tokenizer_from_folder(folder).eos_ids
    assert chat_template_from_folder(folder) == (value if isinstance(value, str) else None)
