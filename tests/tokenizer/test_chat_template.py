"""Role blocks assemble what the template renders, or an error says why they cannot."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from espalier.backends.base import Message, RoleTemplate
from espalier.errors import ChatTemplateError
from espalier.tokenizer.chat_template import ChatTemplate, role_template
from espalier.tokenizer.gguf_vocab import tokenizer_from_gguf
from espalier.tokenizer.tokenizer import Tokenizer

CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}"
    "{% endfor %}"
)
PROMPT = "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
DEFAULT_SYSTEM = (
    "{% if messages[0].role != 'system' %}<|im_start|>system\nBe kind.<|im_end|>\n{% endif %}"
)
TRIMMING = (CHATML + PROMPT).replace("m.content", "(m.content | trim)")
SYSTEM_IN_USER = (
    "{% set ns = namespace(s='') %}{% for m in messages %}{% if m.role == 'system' %}"
    "{% set ns.s = m.content + '\\n\\n' %}{% else %}"
    "{{ '<|im_start|>' + m.role + '\\n' + ns.s + m.content + '<|im_end|>\\n' }}"
    "{% set ns.s = '' %}{% endif %}{% endfor %}" + PROMPT
)
# Shows an empty reasoning part in the last message only.
REASONING_LAST = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' }}"
    "{% if loop.last and m.role == 'assistant' %}<think>\n\n</think>\n\n{% endif %}"
    "{{ m.content + '<|im_end|>\\n' }}{% endfor %}" + PROMPT
)
REASONING_PROMPT = CHATML + PROMPT.replace("assistant\\n", "assistant\\n<think>\\n")
# Moves the system message to the last user message.
SYSTEM_LAST = (
    "{% set s = messages[0].content if messages[0].role == 'system' else '' %}"
    "{% for m in messages %}{% if m.role == 'user' %}"
    "[INST] {% if loop.last %}{{ s }}{% endif %}{{ m.content }}[/INST]"
    "{% elif m.role == 'assistant' %} {{ m.content }}</s>{% endif %}{% endfor %}"
)
LABELS = (
    "{% for m in messages %}{{ m.role.upper() + ': ' + m.content + '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}ASSISTANT: {% endif %}"
)
INCREMENTAL = {
    "chatml": CHATML + PROMPT,
    "default system": DEFAULT_SYSTEM + CHATML + PROMPT,
    "trimming": TRIMMING,
    "system in user": SYSTEM_IN_USER,
    "labels": LABELS,
}
ORDERS = (
    ("user", "assistant", "user", "assistant", "user"),
    ("system", "user", "assistant", "user", "assistant"),
)


def messages_of(roles: tuple[str, ...]) -> list[Message]:
    return [{"role": role, "content": f"words {index}"} for index, role in enumerate(roles)]


def blocks(template: RoleTemplate, messages: list[Message]) -> list[tuple[str, bool]]:
    """The pieces that role blocks put together: template text, then what somebody wrote."""
    pieces = []
    for index, message in enumerate(messages):
        history = messages[:index]
        pieces.append((template.opening(message["role"], history), True))
        pieces.append((message["content"], False))
        pieces.append((template.closing(message["role"], history), True))
    return pieces


def text_of(pieces: list[tuple[str, bool]]) -> str:
    return "".join(text for text, _ in pieces)


@pytest.fixture(scope="module")
def make(byte_level: Tokenizer) -> Any:
    return lambda source: role_template(byte_level, source=source, family="llama")


@pytest.mark.parametrize("name", INCREMENTAL)
@pytest.mark.parametrize("roles", ORDERS)
def test_blocks_equal_the_rendering(make: Any, name: str, roles: tuple[str, ...]) -> None:
    template: ChatTemplate = make(INCREMENTAL[name])
    messages = messages_of(roles)
    assert text_of(blocks(template, messages)) == template.render(messages)
    for count in (1, 2, 3):
        asked = roles[count] == "assistant"
        before = text_of(blocks(template, messages[:count]))
        if asked:
            opening = template.opening("assistant", messages[:count])
            assert before + opening == template.render(messages[:count], add_generation_prompt=True)


def test_blocks_do_not_depend_on_contents_or_order_of_asking(make: Any) -> None:
    template, other = make(INCREMENTAL["default system"]), make(INCREMENTAL["default system"])
    long = [{"role": role, "content": "{{ x }} <|im_end|>\n"} for role in ORDERS[1]]
    last_first = [
        (template.opening(m["role"], long[:i]), template.closing(m["role"], long[:i]))
        for i, m in reversed(list(enumerate(long)))
    ]
    first_first = [
        (other.opening(m["role"], messages_of(ORDERS[1])[:i]), other.closing(m["role"], long[:i]))
        for i, m in enumerate(long)
    ]
    assert last_first[::-1] == first_first


def test_trimmed_contents_stay_as_written_in_blocks(make: Any) -> None:
    template: ChatTemplate = make(TRIMMING)
    messages: list[Message] = [{"role": "user", "content": "  two words \n"}]
    assert template.render(messages) == "<|im_start|>user\ntwo words<|im_end|>\n"
    pieces = blocks(template, messages)
    assert text_of(pieces) == "<|im_start|>user\n  two words \n<|im_end|>\n"


def test_part_shown_in_the_last_message_only_is_left_out(make: Any) -> None:
    template: ChatTemplate = make(REASONING_LAST)
    messages = messages_of(ORDERS[0])  # ends with a user's message
    assert text_of(blocks(template, messages)) == template.render(messages)
    prompt = template.render(messages[:1], add_generation_prompt=True)
    assert prompt == text_of(blocks(template, messages[:1])) + template.opening(
        "assistant", messages[:1]
    )


def test_template_without_a_prompt_leaves_the_space_to_the_model(make: Any) -> None:
    template: ChatTemplate = make(
        "{% for m in messages %}{% if m.role == 'user' %}[INST] {{ m.content }} [/INST]"
        "{% else %} {{ m.content }} </s>{% endif %}{% endfor %}"
    )
    messages = messages_of(("user", "assistant", "user"))
    messages[1]["content"] = " words 1"
    assert text_of(blocks(template, messages)) == template.render(
        messages_of(("user", "assistant", "user"))
    )
    assert make(CHATML).opening("assistant", messages[:1]) == "<|im_start|>assistant\n"


@pytest.mark.parametrize(
    ("source", "roles", "message"),
    [
        (SYSTEM_LAST, ("system", "user", "assistant"), "changes earlier ones"),
        (REASONING_PROMPT, ("user", "assistant"), r"asks for one with .*<think>"),
        ("{{ messages[-1].content * 2 }}", ("user",), "shows it twice"),
        ("nothing", ("user",), "leaves out the last one"),
        ("{{ raise_exception('no ' + messages[0].role) }}", ("tool",), "no tool"),
        ("{{ messages[5].content.x }}", ("user",), "UndefinedError"),
        ("{{ 1 / 0 }}", ("user",), "ZeroDivisionError"),
        ("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", ("user",), "RecursionError"),
    ],
)
def test_template_that_no_block_can_follow_is_refused(
    make: Any, source: str, roles: tuple[str, ...], message: str
) -> None:
    template: ChatTemplate = make(source)
    messages = messages_of(roles)
    with pytest.raises(ChatTemplateError, match=message):
        template.opening(roles[-1], messages[:-1])


def test_broken_template_is_refused_when_made(make: Any) -> None:
    with pytest.raises(ChatTemplateError, match="not a valid jinja2 template"):
        make("{% for %}")


def test_messages_without_role_or_content_are_refused(make: Any) -> None:
    template: ChatTemplate = make(CHATML)
    for message in ({"content": "x"}, {"role": "user"}, {"role": 1, "content": "x"}):
        with pytest.raises(ChatTemplateError, match="and a content are needed"):
            template.render([message])


def test_stop_is_empty_where_a_token_ends_the_message(make: Any) -> None:
    assert make(CHATML + PROMPT).stop == ()
    assert make((CHATML + PROMPT).replace("<|im_end|>", "<end>")).stop == ("<end>",)
    assert make((CHATML + PROMPT).replace("<|im_end|>", "<|unused_0|>")).stop == ("<|unused_0|>",)
    assert make(LABELS).stop == ("USER:",)
    needs_system = "{% if messages[0].role != 'system' %}{{ raise_exception('no') }}{% endif %}"
    assert make(needs_system + CHATML + PROMPT).stop == ()


def test_blocks_of_a_long_conversation_are_bounded_and_right(make: Any) -> None:
    template: ChatTemplate = make(CHATML + PROMPT)
    messages = messages_of(("user", "assistant") * 60)
    assert text_of(blocks(template, messages)) == template.render(messages)
    with pytest.raises(ChatTemplateError, match="up to 10000 are allowed"):
        template.opening("user", messages * 84)


def test_date_stays_the_same_between_turns(make: Any) -> None:
    template: ChatTemplate = make("{{ strftime_now('%H:%M:%S.%f') }}" + CHATML)
    assert template.render(messages_of(("user",))) == template.render(messages_of(("user",)))


def test_special_tokens_are_variables(sentencepiece: Tokenizer) -> None:
    source = "{{ bos_token }}{{ messages[0].content }}{{ eos_token }}{{ pad_token is defined }}"
    template = role_template(sentencepiece, source=source, family="llama")
    assert template.render(messages_of(("user",))) == "<s>words 0</s>False"


@pytest.mark.parametrize("vocabulary", ["smollm2", "gemma3"])
@pytest.mark.parametrize("roles", ORDERS)
def test_tokens_of_blocks_equal_those_of_the_rendering(
    vocabulary: str, roles: tuple[str, ...], request: pytest.FixtureRequest
) -> None:
    tokenizer: Tokenizer = request.getfixturevalue(vocabulary)
    metadata = request.getfixturevalue(f"{vocabulary}_metadata")
    source = metadata.get("tokenizer.chat_template")
    template = role_template(tokenizer, source=source, family=vocabulary)
    messages = messages_of(roles)
    messages[0]["content"] = "  果树, it's 1987!\n\n\n- a\n- b "
    wanted = tokenizer.encode(template.render(messages), allow_special=True)
    assert tokenizer.encode_pieces(blocks(template, messages)) == wanted
    assert template.stop == ()
    # A message that spells the template's own markers stays inside its block.
    messages[1]["content"] = text_of(blocks(template, messages_of(("user",))))
    ids = tokenizer.encode_pieces(blocks(template, messages))
    count = sum(map(tokenizer.is_control, wanted))
    assert sum(map(tokenizer.is_control, ids)) == count


@settings(max_examples=40, deadline=None)
@given(st.lists(st.text("ab\n <|im_end>", max_size=12), min_size=3, max_size=3))
def test_contents_come_back_between_the_control_tokens(
    byte_level: Tokenizer, contents: list[str]
) -> None:
    template = role_template(byte_level, source=CHATML + PROMPT, family="llama")
    roles = ("system", "user", "assistant")
    messages: list[Message] = [
        {"role": role, "content": content} for role, content in zip(roles, contents, strict=True)
    ]
    ids = byte_level.encode_pieces(blocks(template, messages))
    starts = [index for index, token_id in enumerate(ids) if token_id == 1]
    ends = [index for index, token_id in enumerate(ids) if token_id == 2]
    shown = [byte_level.decode(ids[a + 1 : b]) for a, b in zip(starts, ends, strict=True)]
    assert shown == [f"{m['role']}\n{m['content']}" for m in messages]


FALLBACKS = [
    ("chatml", "gpt2", ["<|im_start|>", "<|im_end|>"], "qwen2"),
    ("llama3", "gpt2", ["<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"], "llama"),
    ("gemma", "llama", ["<start_of_turn>", "<end_of_turn>"], "gemma3"),
    ("mistral", "llama", ["[INST]", "[/INST]"], "llama"),
    ("mistral", "llama", [], "mistral"),
    ("llama-2", "llama", [], "llama"),
]


def vocabulary_of(model: str, markers: list[str]) -> Tokenizer:
    """A vocabulary of these control tokens and single letters."""
    head = ["<unk>", "<s>", "</s>", *markers]
    metadata: dict[str, object] = {
        "tokenizer.ggml.model": model,
        "tokenizer.ggml.tokens": head + [chr(code) for code in range(33, 127)] + ["▁", "Ġ", "Ċ"],
        "tokenizer.ggml.token_type": [3] * len(head) + [1] * 97,
        "tokenizer.ggml.merges": [],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
    }
    return tokenizer_from_gguf(metadata)


@pytest.mark.parametrize(("name", "model", "markers", "family"), FALLBACKS)
def test_missing_template_falls_back_by_family(
    name: str, model: str, markers: list[str], family: str
) -> None:
    tokenizer = vocabulary_of(model, markers)
    template = role_template(tokenizer, source=None, family=family)
    assert template.name == name
    assert template.stop == ()
    for roles in ORDERS:
        messages = messages_of(roles)
        text = text_of(blocks(template, messages))
        if name == "llama-2":  # the model writes the space of its answer
            text = text.replace("[/INST]words", "[/INST] words")
        assert text == template.render(messages)
        for marker in markers:
            assert marker in text


def test_missing_template_of_a_plain_model_is_refused() -> None:
    tokenizer = vocabulary_of("gpt2", [])
    for source in (None, "  "):
        with pytest.raises(ChatTemplateError, match="use raw prompts without roles"):
            role_template(tokenizer, source=source, family="qwen2")
