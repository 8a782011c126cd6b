"""Backends that a user wrote in the reference's form."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from espalier.backends.base import GenerateCall, LogprobOptions
from espalier.constraint import Constraint, ConstraintKind
from espalier.errors import BackendError, GenerationError, UnsupportedError
from espalier.lang.api import assistant, gen, select, system, user
from espalier.lang.backend.base_backend import BaseBackend
from espalier.lang.backend.reference_backend import (
    MAX_THREADS,
    as_reference_backend,
    reference_params,
)
from espalier.lang.chat_template import get_chat_template
from espalier.lang.choices import ChoicesDecision, token_length_normalized
from espalier.lang.config import flush_cache, get_server_info, set_default_backend
from espalier.lang.executor import StreamExecutor
from espalier.lang.function import function
from espalier.lang.reference_sampling import SglSamplingParams
from espalier.lang.state import ProgramState
from espalier.types import SamplingParams, TextSegment


class Mine(BaseBackend):
    """Answers in capitals with the last word of the prompt, and notes what it was told."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, Any]] = []

    def get_model_name(self) -> str:
        return "mine"

    def generate(
        self, s: StreamExecutor, sampling_params: SglSamplingParams
    ) -> tuple[Any, dict[str, Any]]:
        self.seen.append(("generate", (s, sampling_params)))
        word = s.text_.split()[-1].upper()
        meta = {"prompt_tokens": 5, "completion_tokens": sampling_params.n, "cached_tokens": 2}
        if sampling_params.n > 1:
            return [f"{word}{i}" for i in range(sampling_params.n)], meta
        return word, meta

    def generate_stream(
        self, s: StreamExecutor, sampling_params: SglSamplingParams
    ) -> Iterator[tuple[str, Any]]:
        self.seen.append(("generate_stream", (s, sampling_params)))
        for count, letter in enumerate(s.text_.split()[-1].upper(), start=1):
            yield letter, {"completion_tokens": count}

    def select(
        self,
        s: StreamExecutor,
        choices: Sequence[str],
        temperature: float,
        choices_method: Any = None,
    ) -> ChoicesDecision:
        self.seen.append(("select", (s.text_, choices, temperature, choices_method)))
        return ChoicesDecision(choices[-1], {"why": "last"})

    def commit_lazy_operations(self, s: StreamExecutor) -> None:
        self.seen.append(("commit", s.text_))

    def begin_program(self, s: StreamExecutor) -> None:
        self.seen.append(("begin", s.sid))

    def end_program(self, s: StreamExecutor) -> None:
        self.seen.append(("end", s.sid))

    def flush_cache(self) -> Any:
        return False

    def get_server_info(self) -> Any:
        return {"version": 3}

    def named(self, name: str) -> list[Any]:
        return [what for found, what in self.seen if found == name]


def test_a_program_runs_on_it_and_its_meta_info_and_usage_are_told() -> None:
    backend = Mine()

    @function
    def program(s: ProgramState) -> None:
        s += "say hello " + gen("x", max_tokens=7, stop="!") + " then bye " + gen("y", n=2)
        s += select("z", ["a", "b"], temperature=0.5)

    set_default_backend(backend)
    state = program.run()
    assert state.text() == "say hello HELLO then bye BYE0b"
    assert (state["y"], state["z"]) == (["BYE0", "BYE1"], "b")
    meta = state.get_meta_info("x")
    assert (meta["prompt_tokens"], meta["cached_tokens"], meta["finish_reason"]) == (5, 2, None)
    assert state.get_meta_info("z")["why"] == "last"
    usage = state.usage()
    assert (usage.calls, usage.prompt_tokens, usage.cached_tokens) == (3, 10, 4)
    assert (usage.computed_tokens, usage.generated_tokens) == (6, 5)
    view, params = backend.named("generate")[0]
    assert (params.max_new_tokens, params.stop, params.temperature) == (7, ("!",), 1.0)
    assert (view.text_, view.messages_, view.cur_role, view.images_) == ("say hello ", [], None, [])
    asked = ("say hello HELLO then bye BYE0", ["a", "b"], 0.5, token_length_normalized)
    assert backend.named("select") == [asked]
    assert backend.named("begin") == backend.named("end") == [view.sid]
    assert get_server_info() == {"model": "mine", "version": 3}
    assert flush_cache() is False


def test_messages_hold_the_default_system_message_and_the_open_role_is_told() -> None:
    backend = Mine()
    backend.chat_template = get_chat_template("qwen")

    @function
    def program(s: ProgramState) -> None:
        s += user("the question") + assistant("So " + gen("x"))
        s += user("and?") + assistant(gen("y"))

    state = program.run(backend=backend)
    assert state.text().startswith("<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n")
    (first, params), (second, _) = backend.named("generate")
    assert first.messages_ == [
        {"role": "system", "content": "You are a helpful assistant."},
        {"role": "user", "content": "the question"},
    ]
    assert first.cur_role == "assistant"
    assert first.text_[first.cur_role_begin_pos :] == "So "
    assert first.chat_template is backend.chat_template
    assert params.stop == ("<|im_end|>",)
    assert second.messages_[-2:] == [
        {"role": "assistant", "content": "So SO"},
        {"role": "user", "content": "and?"},
    ]
    assert first.sid == second.sid


@function
def answers(s: ProgramState) -> None:
    s += "say hello " + gen("x")


def test_it_streams_where_it_can() -> None:
    backend = Mine()
    state = answers.run(backend=backend, stream=True)
    assert "".join(state.text_iter("x")) == "HELLO"
    assert state["x"] == "HELLO"
    ((view, _),) = backend.named("generate_stream")
    assert view.stream is True
    assert not backend.named("generate")
    # n > 1 and backends without generate_stream come as a whole.
    state = answers.run(backend=backend, stream=True, n=2)
    assert "".join(state.text_iter("x", sample=1)) == "HELLO1"


class Blocking(Mine):
    """Counts the threads that are in it at once."""

    def __init__(self) -> None:
        super().__init__()
        self.inside = self.most = 0
        self.lock = threading.Lock()
        self.many = threading.Event()

    def generate(
        self, s: StreamExecutor, sampling_params: SglSamplingParams
    ) -> tuple[Any, dict[str, Any]]:
        with self.lock:
            self.inside += 1
            self.most = max(self.most, self.inside)
            if self.inside >= MAX_THREADS:
                self.many.set()
        assert self.many.wait(20)
        with self.lock:
            self.inside -= 1
        return "ok", {}


def test_calls_run_side_by_side_on_a_bounded_number_of_threads() -> None:
    backend = Blocking()
    states = answers.run_batch([{}] * (3 * MAX_THREADS), backend=backend)
    assert [state["x"] for state in states] == ["ok"] * (3 * MAX_THREADS)
    assert backend.most == MAX_THREADS
    assert as_reference_backend(backend) is as_reference_backend(backend)


def test_forks_have_their_prompt_announced_once() -> None:
    class Caching(Mine):
        def cache_prefix(self, prefix_str: str) -> None:
            self.seen.append(("cache", prefix_str))

    @function
    def program(s: ProgramState) -> None:
        s += "say hello "
        forks = s.fork(3)
        forks += gen("x")
        forks.join()

    backend, caching = Mine(), Caching()
    assert program.run(backend=backend)["x"] == ["HELLO"] * 3
    assert backend.named("commit") == ["say hello "]
    program.run(backend=caching).sync()
    assert (caching.named("cache"), caching.named("commit")) == (["say hello "], [])


def cause_of(state: ProgramState) -> BaseException | None:
    with pytest.raises(GenerationError) as raised:
        state.sync()
    return raised.value.__cause__


def test_what_it_cannot_do_or_be_told_raises_before_the_call() -> None:
    bare = BaseBackend()
    assert bare.get_chat_template().name == "default"
    assert "has no generate; override it" in str(cause_of(answers.run(backend=bare)))
    picks = function(lambda s: s.__iadd__("a" + select("x", ["b", "c"])))
    assert "has no select; override it" in str(cause_of(picks.run(backend=bare)))
    told = Mine()
    for option in ({"seed": 3}, {"repetition_penalty": 1.1}, {"logit_bias": {3: 1.0}}):
        cause = cause_of(answers.run(backend=told, **option))
        assert isinstance(cause, UnsupportedError)
        assert "cannot be told" in str(cause)
    for given in ({"include_stop": True, "stop": "a"}, {"ebnf": 'root ::= "a"'}):
        program = function(lambda s, given=given: s.__iadd__("a" + gen("x", **given)))
        assert isinstance(cause_of(program.run(backend=told)), UnsupportedError)
    assert not told.named("generate")


def test_a_chat_model_wants_the_gen_in_an_assistant_block() -> None:
    class Chat(Mine):
        is_chat_model = True

    assert "put the gen into an assistant block" in str(cause_of(answers.run(backend=Chat())))

    @function
    def program(s: ProgramState) -> None:
        s += system("be kind") + user("hello") + assistant(gen("x"))

    assert program.run(backend=Chat())["x"] == "ASSISTANT:"


def test_answers_of_the_wrong_kind_are_refused() -> None:
    class Wrong(Mine):
        def generate(
            self, s: StreamExecutor, sampling_params: SglSamplingParams
        ) -> tuple[Any, dict[str, Any]]:
            return ["a", "b"], {}

        def select(self, s: StreamExecutor, *_: Any) -> Any:
            return "none of these", [0.0]

    assert isinstance(cause_of(answers.run(backend=Wrong())), BackendError)
    picks = function(lambda s: s.__iadd__("a" + select("x", ["b", "c"])))
    assert "'none of these', which is none of" in str(cause_of(picks.run(backend=Wrong())))


def test_an_error_of_its_own_is_chained() -> None:
    class Failing(Mine):
        def generate(
            self, s: StreamExecutor, sampling_params: SglSamplingParams
        ) -> tuple[Any, dict[str, Any]]:
            raise ConnectionError("no network")

    assert isinstance(cause_of(answers.run(backend=Failing())), ConnectionError)


def test_sampling_values_keep_their_names_and_change_them_for_services() -> None:
    sampling = SamplingParams(max_new_tokens=9, stop=("a",), temperature=0.5, top_k=4)
    constraint = Constraint(ConstraintKind.REGEX, "a+")
    logprobs = LogprobOptions(True, 0, 2, True)
    call = GenerateCall((TextSegment("p"),), sampling, logprobs, constraint)
    params = reference_params(call)
    assert (params.regex, params.json_schema, params.dtype) == ("a+", None, None)
    assert (params.return_logprob, params.logprob_start_len) == (True, 0)
    assert (params.top_logprobs_num, params.return_text_in_logprobs) == (2, True)
    assert params.to_srt_kwargs()["max_new_tokens"] == 9
    assert params.to_openai_kwargs()["max_tokens"] == 9
    assert "top_k" not in params.to_openai_kwargs()
    assert params.to_anthropic_kwargs()["stop_sequences"] == ("a",)
    assert "n" not in params.to_litellm_kwargs()
    assert params.to_vertexai_kwargs()["max_output_tokens"] == 9
    assert "stop_sequences" not in SglSamplingParams().to_vertexai_kwargs()
    copy = params.clone()
    copy.max_new_tokens = 1
    assert (params.max_new_tokens, SglSamplingParams().max_new_tokens) == (9, 128)


def test_an_executor_made_by_hand_takes_nothing_in() -> None:
    executor = StreamExecutor(BaseBackend(), {}, {}, use_thread=False)
    executor.set_var("a", 1)
    executor.sync()
    assert (executor.get_var("a"), executor.get_meta_info("a")) == (1, None)
    assert (executor.text(), executor.messages()) == ("", [])
    with pytest.raises(UnsupportedError, match="append to the program's state"):
        executor.submit(gen("x"))
    with pytest.raises(ValueError, match="use_thread"):
        StreamExecutor(BaseBackend(), {}, {})


def test_a_program_with_roles_is_traced_and_compiled_on_a_bare_backend() -> None:
    @function
    def roles(s: ProgramState) -> None:
        s += system("Be kind.") + user("Who are you?") + assistant(gen("name"))

    bare = BaseBackend()
    bare.chat_template = get_chat_template("llama-2-chat")
    assert "RoleBegin(user)" in map(repr, roles.trace(backend=bare).nodes)
    compiled = roles.compile(backend=bare)
    answering = Mine()
    answering.chat_template = bare.chat_template
    state = compiled.run(backend=answering)
    assert state.text() == roles.run(backend=answering).text()
    assert state.text().startswith("[INST] <<SYS>>\nBe kind.\n<</SYS>>\n\nWho are you? [/INST]")
    assert cause_of(compiled.run()) is not None


class Answers(BaseBackend):
    """Answers with what a function returns; its __init__ does not call the base's."""

    def __init__(self, answer: Callable[[], Any]) -> None:
        self.answer = answer

    def generate(self, s: StreamExecutor, sampling_params: SglSamplingParams) -> Any:
        return self.answer()


@function
def ask(s: ProgramState) -> None:
    s += "Q" + gen("x")


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (None, "generate of the backend gave None; a pair of a text and its meta_info"),
        ("ab", "gave 'ab'; a pair"),
        ((None, {}), "gave None as the text; a str"),
        ((b"ab", {}), "gave b'ab' as the text; a str"),
        (("a", "meta"), "meta_info is 'meta'; a dict"),
        (("a", {"completion_tokens": -5}), "completion_tokens=-5; a whole number from 0"),
        (("a", {"prompt_tokens": "7"}), "prompt_tokens='7'; a whole number from 0"),
    ],
)
def test_an_answer_of_another_form_is_an_error_that_says_so(answer: Any, message: str) -> None:
    error = ask.run(backend=Answers(lambda: answer)).error()
    assert isinstance(error, GenerationError)
    assert isinstance(error.__cause__, BackendError)
    assert message in str(error)


@pytest.mark.parametrize("piece", [(None, {}), (5, {}), "ab"])
def test_a_piece_of_a_stream_of_another_form_is_an_error_in_the_iterator(piece: Any) -> None:
    class Streams(BaseBackend):
        def generate_stream(self, s: StreamExecutor, params: SglSamplingParams) -> Any:
            return iter([piece])

    state = ask.run(backend=Streams(), stream=True, timeout=20)
    with pytest.raises(GenerationError, match="generate_stream"):
        list(state.text_iter("x"))


@pytest.mark.parametrize(
    "error", [SystemExit(3), KeyboardInterrupt(), StopIteration(), GeneratorExit()]
)
def test_whatever_a_backend_raises_fails_its_call_alone(error: BaseException) -> None:
    def raises() -> None:
        raise error

    told = ask.run(backend=Answers(raises), timeout=20).error()
    assert f"the backend raised {type(error).__name__}" in str(told)
    assert ask.run(backend=Answers(lambda: ("fine", {})), timeout=20)["x"] == "fine"


def test_a_finish_reason_that_is_a_text_is_recorded_too() -> None:
    backend = Answers(lambda: ("a", {"finish_reason": "length"}))
    state = ask.run(backend=backend, trace=True)
    assert state["x"] == "a"
    assert "ended by length" not in state.show().html  # it tells no count of tokens
    assert state.get_meta_info("x")["finish_reason"] == "length"


def test_a_stream_that_takes_long_to_begin_holds_up_no_other_program() -> None:
    begun, go_on = threading.Event(), threading.Event()

    class Slow(BaseBackend):
        def generate_stream(self, s: StreamExecutor, params: SglSamplingParams) -> Any:
            begun.set()
            go_on.wait(20)
            return iter([("slow", {})])

    slow = ask.run(backend=Slow(), stream=True)
    assert begun.wait(20)
    assert ask.run(backend=Answers(lambda: ("fast", {})), timeout=20)["x"] == "fast"
    assert not go_on.is_set()
    go_on.set()
    assert slow["x"] == "slow"


def test_a_call_that_is_cancelled_before_its_thread_is_free_is_not_made() -> None:
    made, lock, go_on = [0], threading.Lock(), threading.Event()

    def answer() -> Any:
        with lock:
            made[0] += 1
        go_on.wait(20)
        return "x", {}

    @function
    def many(s: ProgramState) -> None:
        forks = s.fork(MAX_THREADS + 20)
        forks += "Q" + gen("x")
        forks.join()

    with pytest.raises(TimeoutError):
        many.run(backend=Answers(answer), timeout=0.5)
    go_on.set()
    assert ask.run(backend=Answers(lambda: ("after", {})), timeout=20)["x"] == "after"
    time.sleep(0.05)
    assert made[0] <= MAX_THREADS


def test_a_backend_may_run_programs_on_another_one_in_all_of_its_threads() -> None:
    inner = Answers(lambda: ("in", {}))
    outer = Answers(lambda: (ask.run(backend=inner)["x"], {}))
    states = ask.run_batch([{}] * (MAX_THREADS + 10), backend=outer, num_threads=96, timeout=30)
    assert {state["x"] for state in states} == {"in"}


def test_a_chat_template_of_another_form_is_an_error_that_says_so() -> None:
    class Named(Mine):
        def get_chat_template(self) -> Any:
            return "chatml"

    with pytest.raises(BackendError, match=r"returned 'chatml'; a ChatTemplate is allowed"):
        ask.run(backend=Named())
