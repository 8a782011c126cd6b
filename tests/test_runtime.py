from __future__ import annotations

import asyncio
import gc
import itertools
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.engine.gate import Gate
from tests.tiny_folder import MAX_CONTEXT, write_tiny_folder

import espalier
from espalier import gen, select, user
from espalier.errors import (
    CapacityError,
    ChatTemplateError,
    EngineClosedError,
    ModelNotFoundError,
    PromptError,
    SamplingError,
    UserInputError,
)
from espalier.lang.config import global_config
from espalier.loaders.model import load_model
from espalier.runtime import Engine, EngineSettings, Runtime, default_num_slots


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_folder(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="module")
def engine(folder: Path) -> Iterator[Engine]:
    with Engine(folder, num_threads=1, max_total_tokens=2048) as engine:
        yield engine


GREEDY = {"temperature": 0.0, "max_new_tokens": 6, "ignore_eos": True}


def test_one_prompt_gives_one_dict_in_the_reference_shape(engine: Engine) -> None:
    answer = engine.generate("Hello", GREEDY)
    assert set(answer) == {"text", "output_ids", "meta_info"}
    assert len(answer["output_ids"]) == 6
    meta = answer["meta_info"]
    assert (meta["prompt_tokens"], meta["completion_tokens"]) == (5, 6)
    assert meta["finish_reason"] == {"type": "length", "length": 6}
    assert "output_token_logprobs" not in meta


def test_text_and_its_ids_give_the_same(engine: Engine) -> None:
    ids = engine.tokenizer.encode("Hello")
    answer = engine.generate(input_ids=ids, sampling_params=GREEDY)
    assert answer["output_ids"] == engine.generate("Hello", GREEDY)["output_ids"]
    assert engine.get_tokenizer() is engine.tokenizer


def test_lists_and_n_give_lists_in_order(engine: Engine) -> None:
    single = [engine.generate(text, GREEDY)["text"] for text in ("Hello", "World")]
    assert [one["text"] for one in engine.generate(["Hello", "World"], GREEDY)] == single
    assert [one["text"] for one in engine.generate(["Hello"], GREEDY)] == single[:1]
    ids = [engine.tokenizer.encode(text) for text in ("Hello", "World")]
    assert [one["text"] for one in engine.generate(input_ids=ids, sampling_params=GREEDY)] == single
    params = [GREEDY, {**GREEDY, "max_new_tokens": 2}]
    assert [len(one["output_ids"]) for one in engine.generate(["a", "b"], params)] == [6, 2]
    sampled = engine.generate("Hello", {**GREEDY, "temperature": 1.0, "n": 3, "sampling_seed": 4})
    assert len(sampled) == 3
    assert len({one["text"] for one in sampled}) > 1
    assert len(engine.generate(["a", "b"], {**GREEDY, "n": 2})) == 4


def test_logprobs_come_where_they_are_asked_for(engine: Engine) -> None:
    answer = engine.generate(
        "Hello",
        GREEDY,
        return_logprob=True,
        logprob_start_len=0,
        top_logprobs_num=3,
        return_text_in_logprobs=True,
    )
    meta = answer["meta_info"]
    assert meta["input_token_logprobs"][0] == (None, engine.tokenizer.encode("H")[0], "H")
    assert len(meta["input_token_logprobs"]) == 5
    assert [entry[1] for entry in meta["output_token_logprobs"]] == answer["output_ids"]
    assert [len(row) for row in meta["output_top_logprobs"]] == [3] * 6
    top, chosen = meta["output_top_logprobs"][0][0], meta["output_token_logprobs"][0]
    assert top == chosen  # greedy


def test_a_stream_gives_the_text_so_far(engine: Engine) -> None:
    answers = list(engine.generate("Hello", GREEDY, stream=True))
    assert answers[-1] == {
        **engine.generate("Hello", GREEDY),
        "meta_info": answers[-1]["meta_info"],
    }
    texts = [answer["text"] for answer in answers]
    assert all(later.startswith(earlier) for earlier, later in itertools.pairwise(texts))
    assert answers[-1]["meta_info"]["finish_reason"]["type"] == "length"
    several = list(engine.generate(["a", "b"], GREEDY, stream=True))
    assert {answer["index"] for answer in several} == {0, 1}


def test_closing_a_stream_cancels_its_request(engine: Engine) -> None:
    gate = Gate(engine._engine._core, num_free=2)
    answers = engine.generate("Hello", {**GREEDY, "max_new_tokens": 400}, stream=True)
    next(answers)
    answers.close()
    gate.opened.set()
    engine.generate("Hello", GREEDY)
    assert engine.get_server_info()["stats"]["running"] == 0
    assert engine.get_server_info()["stats"]["totals"]["requests_cancelled"] >= 1


def test_async_generate_and_its_stream(engine: Engine) -> None:
    async def main() -> None:
        answer = await engine.async_generate("Hello", GREEDY)
        assert answer["text"] == engine.generate("Hello", GREEDY)["text"]
        several = await engine.async_generate(["Hello", "World"], GREEDY)
        assert several[0]["text"] == answer["text"]
        last = None
        async for part in await engine.async_generate("Hello", GREEDY, stream=True):
            last = part
        assert last is not None
        assert last["text"] == answer["text"]

    asyncio.run(main())


def test_a_long_list_goes_through_a_short_queue(folder: Path) -> None:
    with Engine(folder, num_threads=1, max_total_tokens=1024, max_running_requests=4) as engine:
        answers = engine.generate(["ab"] * 1500, {"max_new_tokens": 1, "temperature": 0.0})
        assert len({answer["text"] for answer in answers}) == 1
        assert len(answers) == 1500


def test_calls_without_a_seed_are_the_same_in_each_engine_of_a_random_seed(folder: Path) -> None:
    def texts(random_seed: int) -> list[str]:
        with Engine(folder, num_threads=1, max_total_tokens=512, random_seed=random_seed) as engine:
            sampling = {"max_new_tokens": 8, "ignore_eos": True}
            return [engine.generate("Hello", sampling)["text"] for _ in range(2)]

    first = texts(0)
    assert first == texts(0)
    assert first[0] != first[1]
    assert first != texts(1)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({}, UserInputError, "one of prompt and input_ids"),
        ({"prompt": "a", "input_ids": [1]}, UserInputError, "one of prompt and input_ids"),
        ({"prompt": ""}, PromptError, "empty"),
        ({"input_ids": []}, PromptError, "empty"),
        ({"prompt": [""]}, PromptError, "empty"),
        ({"prompt": 3}, PromptError, "text or a list"),
        ({"prompt": ["a", 3]}, PromptError, "text or a list"),
        ({"input_ids": [1, 2.5]}, PromptError, "2.5"),
        ({"input_ids": [100_000]}, PromptError, "vocabulary"),
        ({"input_ids": [-1]}, PromptError, "vocabulary"),
        ({"prompt": "a" * 600}, PromptError, f"context holds {MAX_CONTEXT}"),
        ({"prompt": "a", "sampling_params": {"temperature": -1}}, SamplingError, "temperature"),
        ({"prompt": "a", "sampling_params": {"heat": 1}}, SamplingError, "heat"),
        ({"prompt": "a", "sampling_params": {"stop": ""}}, SamplingError, "stop"),
        ({"prompt": "a", "sampling_params": [{}, {}]}, UserInputError, "each of the 1"),
        ({"prompt": "a", "logprob_start_len": 9, "return_logprob": True}, SamplingError, "start"),
    ],
)
def test_bad_input_raises_and_harms_nobody(
    engine: Engine, arguments: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        engine.generate(**arguments)
    assert len(engine.generate("Hello", GREEDY)["output_ids"]) == 6


def test_unknown_keywords_name_what_is_allowed(engine: Engine, folder: Path) -> None:
    with pytest.raises(TypeError, match=r"image_data.*return_logprob"):
        engine.generate("a", image_data="x")
    with pytest.raises(TypeError, match=r"tp_size.*context_length"):
        Engine(folder, tp_size=2)
    with pytest.raises(TypeError, match="both model and model_path"):
        Engine(folder, model_path=folder)
    with pytest.raises(TypeError, match="launch_timeout"):
        Runtime(folder, launch_timeout=3.0)


def test_settings_that_make_no_sense_raise(folder: Path, tmp_path: Path) -> None:
    for settings in (
        {"context_length": MAX_CONTEXT + 1},
        {"weights": "int3"},
        {"kv_dtype": "f8"},
        {"executor": "quantum"},
        {"schedule_policy": "best"},
        {"max_running_requests": 0},
        {"max_total_tokens": -1},
        {"num_threads": 0},
        {"random_seed": -1},
        {"max_total_tokens": "100"},
        {"max_total_tokens": 1 << 80},
        {"context_length": "a"},
        {"context_length": True},
        {"chunked_prefill_size": 1.5},
        {"num_threads": "2"},
    ):
        with pytest.raises(UserInputError, match=next(iter(settings))):
            Engine(folder, **settings)
    with pytest.raises(ModelNotFoundError):
        Engine(tmp_path / "missing.gguf")


def test_a_pool_that_does_not_fit_into_memory_raises(folder: Path) -> None:
    with pytest.raises(CapacityError, match="memory"):
        Engine(folder, max_total_tokens=2_000_000_000)


def test_the_default_pool_is_a_quarter_of_free_memory_within_bounds(folder: Path) -> None:
    model = load_model(folder)
    slot_bytes = 2 * 2 * 2 * 16 * 2  # layers, k and v, heads, width, bf16
    settings = EngineSettings()
    assert default_num_slots(model, settings, slot_bytes * 4 * 5000) == 5000
    assert default_num_slots(model, settings, 0) == 2048
    assert default_num_slots(model, settings, None) == 65_536
    assert default_num_slots(model, settings, 1 << 50) == 65_536
    f32 = EngineSettings(weights="f32")
    assert default_num_slots(model, f32, slot_bytes * 4 * 5000) == 2500
    int8 = EngineSettings(kv_dtype="int8")  # a byte per element and 4 for each head's scale
    assert default_num_slots(model, int8, slot_bytes * 4 * 5000) == 5000 * 32 // 20
    reference = EngineSettings(executor="reference")  # float32, whatever it rounds
    assert default_num_slots(model, reference, slot_bytes * 4 * 5000) == 2500
    with pytest.raises(UserInputError, match="'torch' is unknown"):
        default_num_slots(model, EngineSettings(executor="torch"), None)


def test_the_reference_executor_runs_too(folder: Path) -> None:
    with Engine(folder, executor="reference", max_total_tokens=256) as engine:
        assert len(engine.generate("Hello", GREEDY)["output_ids"]) == 6


def test_an_engine_is_the_backend_of_programs(engine: Engine) -> None:
    @espalier.function
    def program(s: espalier.ProgramState) -> None:
        s += user("Hello")
        s += espalier.assistant(gen("a", max_tokens=4) + select("c", ["x", "yy"]))

    state = program.run(backend=engine)
    assert state.messages()[1]["content"].endswith(state["c"])
    assert state.text().startswith("<|user|>Hello<|end|><|assistant|>")
    try:
        espalier.set_default_backend(engine)
        assert program.run()["c"] in ("x", "yy")
        assert espalier.get_server_info() == engine.get_server_info()
        assert espalier.flush_cache() is True
    finally:
        global_config.default_backend = None
    assert espalier.flush_cache() is False
    assert espalier.get_server_info() is None


def test_two_engines_live_side_by_side(folder: Path, engine: Engine) -> None:
    other_folder = write_tiny_folder(folder.parent / "other", chat_template=False, seed=1)
    with Engine(other_folder, num_threads=1, max_total_tokens=512) as other:
        first, second = (one.generate("Hello", GREEDY)["text"] for one in (engine, other))
        assert first != second
        assert other.endpoint.model_name == "other"
        with pytest.raises(ChatTemplateError):
            other.endpoint.role_template()
    assert engine.generate("Hello", GREEDY)["text"] == first


def test_after_shutdown_calls_raise_and_the_thread_is_gone(folder: Path) -> None:
    before = set(threading.enumerate())
    engine = Engine(folder, num_threads=1, max_total_tokens=256)
    engine.generate("Hello", GREEDY)
    engine.shutdown()
    engine.shutdown()
    with pytest.raises(EngineClosedError):
        engine.generate("Hello", GREEDY)
    assert set(threading.enumerate()) <= before
    dropped = Engine(folder, num_threads=1, max_total_tokens=256)
    del dropped
    gc.collect()
    assert set(threading.enumerate()) <= before


def test_runtime_is_an_engine_by_the_reference_names(folder: Path) -> None:
    runtime = Runtime(model_path=str(folder), num_threads=1, max_total_tokens=512)
    try:
        runtime.cache_prefix("Hello")
        answer = runtime.generate("Hello", GREEDY)
        assert answer["meta_info"]["cached_tokens"] == 4
        assert runtime.endpoint.model_name == "tiny"

        async def text() -> str:
            return "".join([piece async for piece in runtime.async_generate("Hello", GREEDY)])

        assert asyncio.run(text()) == answer["text"]
        assert runtime.get_tokenizer().encode("Hello")
        assert runtime.flush_cache() is True

        @espalier.function
        def program(s: espalier.ProgramState) -> None:
            s += "Hello" + gen("a", max_tokens=2)

        assert program.run(backend=runtime).get_meta_info("a")["completion_tokens"] <= 2
    finally:
        runtime.shutdown()


def test_the_default_model_answers(smollm2_path: Path) -> None:
    with Engine(str(smollm2_path), max_total_tokens=2048) as engine:
        assert engine.endpoint.model_name == "SmolLM2-135M-Instruct.Q4_1"

        @espalier.function
        def program(s: espalier.ProgramState, country: str) -> None:
            s += user(f"What is the capital of {country}? Answer with one word.")
            s += espalier.assistant(gen("city", max_tokens=16, temperature=0.0))

        states = program.run_batch([("France",), ("Italy",)], backend=engine)
        assert "Paris" in states[0]["city"]
        assert "Rome" in states[1]["city"]
        assert engine.get_server_info()["stats"]["totals"]["cached_tokens"] > 0


ODD_CALLS: list[dict[str, Any]] = [
    {"return_logprob": "x"},
    {"return_logprob": 1},
    {"return_logprob": True, "logprob_start_len": 1.5},
    {"return_logprob": True, "logprob_start_len": "a"},
    {"return_logprob": True, "top_logprobs_num": True},
    {"return_logprob": True, "top_logprobs_num": 2.5},
    {"top_logprobs_num": 2},
    {"return_text_in_logprobs": True},
    {"sampling_params": 5},
    {"sampling_params": {5: 1}},
    {"sampling_params": {"logit_bias": [5]}},
    {"sampling_params": {"temperature": 10**400}},
    {"sampling_params": {"stop": {"a"}}},
    {"prompt": ["Hello"], "sampling_params": [5]},
    {"prompt": {"text": "Hello"}},
    {"prompt": None, "input_ids": [1, 1 << 70]},
    {"prompt": None, "input_ids": [[1], 2]},
    {"prompt": None, "input_ids": {1}},
]


@pytest.mark.parametrize("call", ODD_CALLS, ids=str)
def test_an_odd_call_is_refused_and_the_engine_goes_on(
    engine: Engine, call: dict[str, Any]
) -> None:
    with pytest.raises(UserInputError):
        engine.generate(**{"prompt": "Hello", **call})
    assert len(engine.generate("Hello", GREEDY)["output_ids"]) == 6


def test_numpy_values_are_as_good_as_pythons(engine: Engine) -> None:
    ids = engine.tokenizer.encode("Hello")
    params = {"temperature": np.float64(0.5), "max_new_tokens": np.int64(4), "sampling_seed": 3}
    expected = engine.generate(input_ids=ids, sampling_params={**params, "temperature": 0.5})
    array: Any = np.array(ids)
    for given in (array, list(array), array.tolist()):
        answer = engine.generate(input_ids=given, sampling_params=params)
        assert answer["output_ids"] == expected["output_ids"]
    many = engine.generate(input_ids=[array, array[:2]], sampling_params=params)
    assert many[0]["output_ids"] == expected["output_ids"]
    assert many[1]["meta_info"]["prompt_tokens"] == 2
    logprobs = {"return_logprob": True, "top_logprobs_num": np.int64(2)}
    answer = engine.generate(input_ids=ids, sampling_params=params, **logprobs)
    assert len(answer["meta_info"]["output_top_logprobs"][0]) == 2


@pytest.mark.parametrize("executor", ["native", "reference"])
def test_a_forced_instruction_set_holds_for_the_sampler_too(
    folder: Path, monkeypatch: pytest.MonkeyPatch, executor: str
) -> None:
    monkeypatch.setenv("ESPALIER_ISA", "portable")
    with Engine(folder, executor=executor, num_threads=1, max_total_tokens=256) as engine:
        core = engine._engine._core
        assert core.executor.isa in ("portable", "auto")
        assert core._sampler.isa == "portable"  # type: ignore[attr-defined]
