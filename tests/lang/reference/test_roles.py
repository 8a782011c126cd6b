"""Section 6 of the reference: roles and chat templates."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from tests.backends.toy import toy_backend

from espalier.backends.base import Message, RoleTemplate
from espalier.backends.scripted import ScriptedBackend
from espalier.errors import ChatTemplateError, RoleError, UnsupportedError, UserInputError
from espalier.lang import chat_template
from espalier.lang.api import (
    assistant,
    assistant_begin,
    assistant_end,
    gen,
    system,
    user,
    user_begin,
    user_end,
)
from espalier.lang.backend.base_backend import BaseBackend
from espalier.lang.chat_template import (
    ChatTemplate,
    ChatTemplateStyle,
    get_chat_template,
    get_chat_template_by_model_path,
    register_chat_template,
    register_chat_template_matching_function,
)
from espalier.lang.executor import StreamExecutor
from espalier.lang.function import function
from espalier.lang.named_templates import NAMED_TEMPLATES
from espalier.lang.reference_sampling import SglSamplingParams
from espalier.lang.state import ProgramState
from espalier.loaders.gguf import GgufFile
from espalier.tokenizer.chat_template import role_template
from espalier.tokenizer.family_templates import FAMILY_TEMPLATES
from espalier.tokenizer.gguf_vocab import tokenizer_from_gguf
from espalier.tokenizer.template_sandbox import TemplateSandbox

CHAT: list[Message] = [
    {"role": "system", "content": "S"},
    {"role": "user", "content": "U"},
    {"role": "assistant", "content": "A"},
    {"role": "user", "content": "V"},
]
VICUNA = (
    "A chat between a curious user and an artificial intelligence assistant. The assistant gives "
    "helpful, detailed, and polite answers to the user's questions. "
)
HELPFUL = "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n"
_CHATML = (
    "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nU<|im_end|>\n"
    "<|im_start|>assistant\nA<|im_end|>\n<|im_start|>user\nV<|im_end|>\n<|im_start|>assistant\n"
)
_LLAMA3 = (
    "<|start_header_id|>system<|end_header_id|>\n\nS<|eot_id|>"
    "<|start_header_id|>user<|end_header_id|>\n\nU<|eot_id|>"
    "<|start_header_id|>assistant<|end_header_id|>\n\nA<|eot_id|>"
    "<|start_header_id|>user<|end_header_id|>\n\nV<|eot_id|>"
    "<|start_header_id|>assistant<|end_header_id|>\n\n"
)
# What each model's own template writes for CHAT and the question for an answer, without a BOS.
EXPECTED = {
    "default": "SYSTEM:S\nUSER:U\nASSISTANT:A\nUSER:V\nASSISTANT:",
    "claude": "S\n\nHuman: U\n\nAssistant:A\n\nHuman: V\n\nAssistant:",
    "chatml": _CHATML,
    "chatml-llava": _CHATML,
    "qwen": _CHATML,
    "qwen2-vl": _CHATML,
    "minicpmv": _CHATML,
    "minicpmo": _CHATML,
    "vicuna_v1.1": "S USER: U ASSISTANT:A</s>USER: V ASSISTANT:",
    "llama-2-chat": "[INST] <<SYS>>\nS\n<</SYS>>\n\nU [/INST]A </s><s>[INST] V [/INST]",
    "llama-3-instruct": _LLAMA3,
    "llama-3-instruct-llava": _LLAMA3,
    "llama-4": _LLAMA3.replace("start_header_id", "header_start")
    .replace("end_header_id", "header_end")
    .replace("eot_id", "eot"),
    "janus-pro": (
        "S\n\n<|User|>: U\n\n<|Assistant|>:A<｜end▁of▁sentence｜><|User|>: V\n\n<|Assistant|>:"
    ),
    "yi-1.5": (
        "S<|im_start|>user\nU<|im_end|>\n<|im_start|>assistant\nA<|im_end|>\n"
        "<|im_start|>user\nV<|im_end|>\n<|im_start|>assistant\n"
    ),
    "yi-vl": "S\n\n### Human: U\n### Assistant:A\n### Human: V\n### Assistant:",
    "gemma-it": (
        "<start_of_turn>user\nS\n\nU<end_of_turn>\n<start_of_turn>model\nA<end_of_turn>\n"
        "<start_of_turn>user\nV<end_of_turn>\n<start_of_turn>model\n"
    ),
    "dbrx-instruct": (
        "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nU<|im_end|>\n"
        "<|im_start|>assistant\nA<|im_end|>\n<|im_start|>user\nV<|im_end|>\n"
        "<|im_start|>assistant\n"
    ),
    "c4ai-command-r": (
        "<|START_OF_TURN_TOKEN|><|SYSTEM_TOKEN|>S<|END_OF_TURN_TOKEN|>"
        "<|START_OF_TURN_TOKEN|><|USER_TOKEN|>U<|END_OF_TURN_TOKEN|>"
        "<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>A<|END_OF_TURN_TOKEN|>"
        "<|START_OF_TURN_TOKEN|><|USER_TOKEN|>V<|END_OF_TURN_TOKEN|>"
        "<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>"
    ),
    "granite-3-instruct": (
        "<|start_of_role|>system<|end_of_role|>S<|end_of_text|>\n"
        "<|start_of_role|>user<|end_of_role|>U<|end_of_text|>\n"
        "<|start_of_role|>assistant<|end_of_role|>A<|end_of_text|>\n"
        "<|start_of_role|>user<|end_of_role|>V<|end_of_text|>\n"
        "<|start_of_role|>assistant<|end_of_role|>"
    ),
    "deepseek-v3": "S<｜User｜>U<｜Assistant｜>A<｜end▁of▁sentence｜><｜User｜>V<｜Assistant｜>",
}
# What stands before the first user's message where the chat has no system message.
DEFAULTS = {
    **dict.fromkeys(("chatml-llava", "qwen", "qwen2-vl", "minicpmv", "minicpmo"), HELPFUL),
    "vicuna_v1.1": VICUNA,
}
# Names and the Jinja templates of their families that the tokenizer has for files without one.
JINJA = {
    "chatml": "chatml",
    "llama-3-instruct": "llama3",
    "gemma-it": "gemma",
    "llama-2-chat": "llama-2",
}


def written(template: RoleTemplate, messages: Sequence[Message], then: str | None) -> str:
    """What a program's role blocks put together, up to the answer of the role `then`."""
    parts = []
    for index, message in enumerate(messages):
        history = messages[:index]
        parts.append(template.opening(message["role"], history) + message["content"])
        parts.append(template.closing(message["role"], history))
    if then is not None:
        parts.append(template.opening(then, messages))
    return "".join(parts)


@function
def chat(s: ProgramState, messages: Sequence[Message]) -> None:
    makers = {"system": system, "user": user, "assistant": assistant}
    for message in messages:
        s += makers[message["role"]](message["content"])
    s += assistant_begin() + gen("answer")


@pytest.mark.parametrize("name", [template.name for template in NAMED_TEMPLATES])
def test_t40_each_named_template_writes_what_the_models_own_does(name: str) -> None:
    template = get_chat_template(name)
    expected = EXPECTED[name]
    assert written(template, CHAT, "assistant") == expected
    backend = ScriptedBackend("", template=template)
    assert chat.run(CHAT, backend=backend).text() == expected
    assert backend.calls[0].sampling is not None
    assert backend.calls[0].sampling.stop == template.stop
    # Without a system message: the default one of the model, or none.
    without = written(template, CHAT[1:], "assistant")
    if name in DEFAULTS:
        assert without.startswith(DEFAULTS[name])
        assert without.removeprefix(DEFAULTS[name]) in expected
    elif template.default_system_prompt is None:
        rest = without.removeprefix("[INST] ").removeprefix("<start_of_turn>user\n")
        assert expected.endswith(rest)
    else:
        assert template.default_system_prompt in without
    default = template.default_system_prompt or ""
    messages = [{"role": "system", "content": None}, *CHAT[1:]]
    assert template.get_prompt(messages) == written(template, CHAT[1:], None)
    assert default in template.get_prompt(messages)


@pytest.mark.parametrize("name", JINJA)
def test_t40_named_templates_equal_the_jinja_templates_of_their_family(name: str) -> None:
    source = next(entry.source for entry in FAMILY_TEMPLATES if entry.name == JINJA[name])
    sandbox = TemplateSandbox(datetime(2026, 1, 1))
    for messages in (CHAT, CHAT[1:]):
        variables = {
            "messages": messages,
            "add_generation_prompt": True,
            "bos_token": "<s>" if name == "llama-2-chat" else "",
            "eos_token": "</s>",
        }
        rendered = sandbox.render(sandbox.compiled(source), variables)
        text = written(get_chat_template(name), messages, "assistant")
        if name == "llama-2-chat":  # its BOS is the tokenizer's, its answers begin with a space
            text = "<s>" + text.replace("[/INST]A", "[/INST] A")
        assert text == rendered


@pytest.mark.parametrize(
    ("model", "name"), [("smollm2", "chatml"), ("gemma3", "gemma-it")], ids=["smollm2", "gemma3"]
)
def test_t40_tokens_of_named_templates_equal_those_of_the_models_files(
    model: str, name: str, request: pytest.FixtureRequest
) -> None:
    path: Path = request.getfixturevalue(f"{model}_path")
    metadata: dict[str, Any] = dict(GgufFile(path).metadata)
    tokenizer = tokenizer_from_gguf(metadata)
    own = role_template(tokenizer, source=metadata.get("tokenizer.chat_template"), family=model)
    wanted = tokenizer.encode(own.render(CHAT, add_generation_prompt=True), allow_special=True)
    text = written(get_chat_template(name), CHAT, "assistant")
    assert tokenizer.encode_pieces([(text, True)], at_start=True) == wanted
    # The model's own template is what programs on the engine use.
    blocks = written(own, CHAT, "assistant")
    assert tokenizer.encode_pieces([(blocks, True)], at_start=True) == wanted


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("meta-llama/Meta-Llama-3-8B-Instruct", "llama-3-instruct"),
        ("meta-llama/Llama-2-7b-chat-hf", "llama-2-chat"),
        ("/models/Qwen2.5-7B-Instruct", "qwen"),
        ("Qwen/Qwen2-VL-7B-Instruct", "qwen2-vl"),
        ("google/gemma-2-2b-it", "gemma-it"),
        ("deepseek-ai/DeepSeek-R1", "deepseek-v3"),
        ("lmsys/vicuna-7b-v1.5", "vicuna_v1.1"),
        ("ibm-granite/granite-3.0-8b-instruct", "granite-3-instruct"),
        ("01-ai/Yi-1.5-9B-Chat", "yi-1.5"),
    ],
)
def test_t40_a_template_is_chosen_by_parts_of_the_path(path: str, name: str) -> None:
    assert get_chat_template_by_model_path(path).name == name


def test_t40_a_path_without_a_match_uses_the_models_own_and_warns_once_if_there_is_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(chat_template, "_warned", set())

    class Own:
        stop = ("<own>",)

        def opening(self, role: str, history: Sequence[Message]) -> str:
            return f"<{role}>"

        def closing(self, role: str, history: Sequence[Message]) -> str:
            return "</>"

    def backend(template: RoleTemplate | None, name: str) -> ScriptedBackend:
        return ScriptedBackend("", template=template, model_name=name)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        own = chat.run(CHAT, backend=backend(Own(), "my-Llama-3-instruct"))
        assert own.text().startswith("<system>S</><user>U</>")
        named = chat.run(CHAT, backend=backend(None, "my-Llama-3-instruct"))
        assert named.text() == _LLAMA3
        raw = function(lambda s: s.__iadd__("raw" + gen("x")))
        assert raw.run(backend=backend(None, "base-model-7")).text() == "raw"
    with pytest.warns(UserWarning, match="the model 'base-model-7': this scripted backend has no"):
        state = chat.run(CHAT, backend=backend(None, "base-model-7"))
    assert state.text() == EXPECTED["default"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert chat.run(CHAT, backend=backend(None, "base-model-7")).text() == state.text()
    with pytest.warns(UserWarning, match="'mine-9': no chat template is known for it"):
        assert get_chat_template_by_model_path("mine-9").name == "default"


def test_templates_are_registered_by_name_and_chosen_by_a_function_of_the_path(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(chat_template, "_templates", dict(chat_template._templates))
    monkeypatch.setattr(chat_template, "_matching", [])
    mine = ChatTemplate("mine", "be", {"user": ("<", ">"), "system": ("(", ")")}, stop_str="!")
    register_chat_template(mine)
    assert get_chat_template("mine") is mine
    assert (mine.stop, mine.style, mine.image_token) == (("!",), ChatTemplateStyle.PLAIN, "<image>")

    @register_chat_template_matching_function
    def match(model_path: str) -> ChatTemplate | None:
        return mine if model_path == "qwen-instruct" else None

    assert get_chat_template_by_model_path("qwen-instruct") is mine
    assert get_chat_template_by_model_path("qwen-chat").name == "qwen"
    assert written(mine, [{"role": "user", "content": "x"}], None) == "(be)<x>"
    with pytest.raises(ChatTemplateError, match="no role 'assistant'; it has user, system"):
        mine.get_prefix_and_suffix("assistant", [])
    with pytest.raises(UserInputError, match="'yours'"):
        get_chat_template("yours")
    with pytest.raises(UserInputError, match="a ChatTemplate is allowed"):
        register_chat_template("mine")  # type: ignore[arg-type]
    with pytest.raises(UserInputError, match="the role 'user'"):
        ChatTemplate("bad", None, {"user": ("<",)})  # type: ignore[dict-item]


def test_t41_an_exception_in_a_block_closes_it_and_goes_on() -> None:
    @function
    def program(s: ProgramState) -> None:
        with pytest.raises(KeyError, match="mine"), s.user():  # noqa: PT012
            s += "half"
            raise KeyError("mine")
        with pytest.raises(KeyError), s.var_scope("v"), s.assistant():  # noqa: PT012
            s += "more"
            raise KeyError("mine")

    state = program.run(backend=ScriptedBackend())
    assert state.text() == "USER:half\nASSISTANT:more\n"
    assert state["v"] == "ASSISTANT:more\n"
    assert [message["content"] for message in state.messages()] == ["half", "more"]


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: user(user("x")),
        lambda: assistant_begin() + system("x"),
        user_end,
        lambda: user_begin() + assistant_end(),
    ],
)
def test_t42_role_misuse_raises_where_it_is_written_and_appends_nothing(wrong: Any) -> None:
    @function
    def program(s: ProgramState) -> None:
        with pytest.raises(RoleError):
            s += wrong()
        s += user("fine")

    assert program.run(backend=ScriptedBackend()).text() == "USER:fine\n"


def test_t42_a_role_that_is_opened_twice_by_methods_raises_at_once() -> None:
    @function
    def program(s: ProgramState) -> None:
        s.user_begin()
        with pytest.raises(RoleError, match="Nested roles are not allowed"):
            s.assistant_begin()
        with pytest.raises(RoleError), s.user():
            raise AssertionError("not reached")
        s.user_end()

    program.run(backend=ScriptedBackend())


@function
def prefilled(s: ProgramState) -> None:
    s += user("q")
    s += assistant("Well, " + gen("a", max_tokens=2, temperature=0) + ", so there.")


def check_prefilled(state: ProgramState, prompt: str) -> None:
    """The gen went on from the text before it, and the text after it stands behind it."""
    assert state.text().startswith(prompt + "Well, " + state["a"] + ", so there.")
    (content,) = [m["content"] for m in state.messages() if m["role"] == "assistant"]
    assert content == f"Well, {state['a']}, so there."


class Echo(BaseBackend):
    """A backend in the reference's form that says what it was given."""

    def generate(
        self, s: StreamExecutor, sampling_params: SglSamplingParams
    ) -> tuple[str, dict[str, Any]]:
        assert s.cur_role_begin_pos is not None
        return f"[{s.text_[s.cur_role_begin_pos :]}]", {}


class ChatEcho(Echo):
    is_chat_model = True


class PrefilledChat(ChatEcho):
    supports_prefill = True


def test_t43_text_around_a_gen_in_an_assistant_block_is_sent_on_every_backend() -> None:
    scripted = ScriptedBackend({"ASSISTANT:Well, ": "yes"})
    check_prefilled(prefilled.run(backend=scripted), "USER:q\nASSISTANT:")
    for backend in (Echo(), PrefilledChat()):
        state = prefilled.run(backend=backend)
        assert state["a"] == "[Well, ]"
        check_prefilled(state, "USER:q\nASSISTANT:")
    chat_only = prefilled.run(backend=ChatEcho())
    with pytest.raises(Exception, match="'Well, ' stands before the gen") as raised:
        chat_only.text()
    assert isinstance(raised.value.__cause__, UnsupportedError)


def test_t43_the_engine_goes_on_from_the_text_before_the_gen() -> None:
    backend = toy_backend()
    try:
        in_blocks = prefilled.run(backend=backend)
        raw = function(
            lambda s: s.__iadd__("USER:q\nASSISTANT:Well, " + gen("a", max_tokens=2, temperature=0))
        ).run(backend=backend)
        assert in_blocks["a"] == raw["a"]
        check_prefilled(in_blocks, "USER:q\nASSISTANT:")
    finally:
        backend.shutdown()


@pytest.mark.parametrize("roles", [{"user": "ab"}, {"user": 5}, {"user": ("a",)}, 5, [("a", "b")]])
def test_a_template_of_anything_but_pairs_of_texts_is_refused(roles: Any) -> None:
    with pytest.raises(UserInputError, match="a text before and a text after each message"):
        ChatTemplate("mine", None, roles)


def test_a_model_path_is_a_text_and_a_tiny_llama_that_speaks_zephyr_is_not_told_chatml() -> None:
    with pytest.raises(UserInputError, match="the model path is None; a text is allowed"):
        get_chat_template_by_model_path(None)  # type: ignore[arg-type]
    assert get_chat_template_by_model_path("TinyLlama-1.1B-Chat-v0.4").name == "chatml"
    with pytest.warns(UserWarning, match="TinyLlama-1.1B-Chat-v1.0"):
        found = get_chat_template_by_model_path("TinyLlama-1.1B-Chat-v1.0")
    assert found.name == "default"
