"""Section 1 of the reference: names, settings, and what importing them costs."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

import espalier as sgl
from espalier.errors import DownloadError, UnsupportedError, UserInputError
from espalier.lang.config import global_config
from espalier.loaders import data_file
from espalier.test.test_utils import add_common_sglang_args_and_parse, select_sglang_backend
from espalier.utils import download_and_cache_file, dump_state_text, read_jsonl

SERVERS = ("torch", "fastapi", "uvicorn", "zmq", "ray", "transformers", "openai", "aiohttp", "vllm")
ON_AN_API = """
import sys
import espalier as sgl
from espalier.lang.backend.base_backend import BaseBackend

class Service(BaseBackend):
    is_chat_model = True

    def generate(self, s, sampling_params):
        return s.messages_[-1]["content"].upper(), {}

@sgl.function
def ask(s, question):
    s += sgl.user(question)
    s += sgl.assistant(sgl.gen("answer"))

print(ask.run("hello", backend=Service())["answer"])
print(sorted({name.partition(".")[0] for name in sys.modules}))
"""


def test_t01_importing_and_an_api_backend_need_no_torch_cuda_or_server() -> None:
    done = subprocess.run(
        [sys.executable, "-c", ON_AN_API], capture_output=True, text=True, check=True, timeout=60
    )
    answer, modules = done.stdout.splitlines()
    assert answer == "HELLO"
    loaded = set(json.loads(modules.replace("'", '"')))
    assert not loaded.intersection(SERVERS)
    assert not [name for name in loaded if "cuda" in name.lower() or name in ("numpy", "pydantic")]


SUBMODULES = {
    "lang.ir": (
        "REGEX_INT REGEX_FLOAT REGEX_BOOL REGEX_STR SglGen SglSelect SglExprList "
        "SglSeparateReasoning SglSamplingParams"
    ),
    "lang.choices": (
        "token_length_normalized greedy_token_selection ChoicesDecision ChoicesSamplingMethod"
    ),
    "lang.chat_template": "get_chat_template ChatTemplate register_chat_template",
    "lang.backend.base_backend": "BaseBackend",
    "lang.interpreter": "StreamExecutor ProgramState",
    "utils": "download_and_cache_file read_jsonl dump_state_text",
    "test.test_utils": "add_common_sglang_args_and_parse select_sglang_backend",
}
TOP_LEVEL = (
    "function gen gen_int gen_string select image video system user assistant system_begin "
    "system_end user_begin user_end assistant_begin assistant_end separate_reasoning "
    "set_default_backend flush_cache get_server_info Runtime Engine token_length_normalized "
    "greedy_token_selection unconditional_likelihood_normalized global_config __version__"
)


@pytest.mark.parametrize("module", SUBMODULES)
def test_names_of_submodules_are_there_under_the_same_path(module: str) -> None:
    import importlib

    found = importlib.import_module(f"espalier.{module}")
    for name in SUBMODULES[module].split():
        assert getattr(found, name) is not None


def test_top_level_names_are_there_and_backends_to_come_say_so() -> None:
    for name in TOP_LEVEL.split():
        assert getattr(sgl, name) is not None
    for name in ("OpenAI", "Anthropic", "LiteLLM", "VertexAI", "RuntimeEndpoint"):
        with pytest.raises(ImportError, match=f"espalier.{name}: backends of remote services"):
            exec(f"from espalier import {name}")


def test_images_and_videos_raise_at_the_call() -> None:
    with pytest.raises(UnsupportedError, match=r"image\('cat.png'\)"):
        sgl.image("cat.png")
    with pytest.raises(UnsupportedError, match=r"video\('cat.mp4', 3\)"):
        sgl.video("cat.mp4", 3)


def test_a_hint_for_api_backends_is_kept_by_bind() -> None:
    @sgl.function(num_api_spec_tokens=64)
    def program(s: Any, word: str) -> None:
        s += word + sgl.gen("x")

    assert program.num_api_spec_tokens == 64
    bound = program.bind(word="hi ")
    assert bound.num_api_spec_tokens == 64
    assert bound.run(backend=sgl.ScriptedBackend("you")).text() == "hi you"
    for wrong in (0, True, "many", 1.5):
        with pytest.raises(UserInputError, match="num_api_spec_tokens"):
            sgl.function(num_api_spec_tokens=wrong)  # type: ignore[arg-type]


@pytest.fixture
def settings() -> Iterator[Any]:
    names = (
        "verbosity",
        "skip_special_tokens_in_output",
        "enable_precache_with_tracing",
        "enable_parallel_encoding",
    )
    before = {name: getattr(global_config, name) for name in names}
    yield global_config
    for name, value in before.items():
        setattr(global_config, name, value)


def test_settings_have_the_reference_defaults_and_refuse_what_has_no_effect(settings: Any) -> None:
    assert (settings.default_backend, settings.verbosity) == (None, 0)
    assert settings.skip_special_tokens_in_output is True
    assert settings.spaces_between_special_tokens_in_out is True
    assert settings.enable_precache_with_tracing is True
    assert settings.enable_parallel_encoding is True
    with pytest.raises(UnsupportedError, match="without added spaces"):
        settings.spaces_between_special_tokens_in_out = False
    settings.spaces_between_special_tokens_in_out = True
    settings.enable_precache_with_tracing = settings.enable_parallel_encoding = False
    for name in ("skip_special_tokens_in_output", "enable_parallel_encoding"):
        with pytest.raises(UserInputError, match=name):
            setattr(settings, name, "no")
    with pytest.raises(UserInputError, match="verbosity"):
        settings.verbosity = "loud"
    with pytest.raises(AttributeError):
        settings.enable_magic = True


def test_a_setting_shows_control_tokens_in_each_gen(settings: Any) -> None:
    @sgl.function
    def program(s: Any) -> None:
        s += "a" + sgl.gen("x")

    shown = []
    for value in (True, False):
        settings.skip_special_tokens_in_output = value
        backend = sgl.ScriptedBackend()
        program.run(backend=backend).sync()
        assert backend.calls[0].sampling is not None
        shown.append(backend.calls[0].sampling.skip_special_tokens)
    assert shown == [True, False]


def test_a_setting_has_the_prefix_of_a_compiled_batch_computed_first(settings: Any) -> None:
    @sgl.function
    def program(s: Any, word: str) -> None:
        s += "the same beginning " + word + sgl.gen("x")

    kinds = []
    for value in (True, False):
        settings.enable_precache_with_tracing = value
        backend = sgl.ScriptedBackend()
        program.compile().run_batch([{"word": "a"}, {"word": "b"}], backend=backend)
        kinds.append([call.kind for call in backend.calls])
    assert kinds == [["prefill", "generate", "generate"], ["generate", "generate"]]


def test_lines_of_json_are_read_and_a_broken_one_is_named(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('# a remark\n{"a": 1}\n\n["é"]\n{oops\n', encoding="utf-8")
    rows = read_jsonl(path)
    assert next(rows) == {"a": 1}
    assert next(rows) == ["é"]
    with pytest.raises(UserInputError, match="line 5"):
        next(rows)


def test_states_are_dumped_for_people_to_read(tmp_path: Path) -> None:
    @sgl.function
    def program(s: Any, word: str) -> None:
        s += word + sgl.gen("x")

    states = program.run_batch([{"word": "a"}, {"word": "é"}], backend=sgl.ScriptedBackend("!"))
    path = tmp_path / "states.txt"
    dump_state_text(path, states)
    dump_state_text(path, ["plain"], mode="a")
    text = path.read_text(encoding="utf-8")
    assert [line for line in text.splitlines() if line and "=" not in line] == ["a!", "é!", "plain"]
    assert "= 1 =" in text


class Files(BaseHTTPRequestHandler):
    """Serves one file, and one that breaks off."""

    num_requests = 0

    def do_GET(self) -> None:
        Files.num_requests += 1
        if self.path == "/missing":
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", "3" if self.path == "/rows.jsonl" else "9")
        self.end_headers()
        self.wfile.write(b"[1]")

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        pass


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("ESPALIER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "*")
    server = HTTPServer(("127.0.0.1", 0), Files)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_file_is_fetched_once_and_appears_whole(server: str, tmp_path: Path) -> None:
    Files.num_requests = 0
    paths = {download_and_cache_file(f"{server}/rows.jsonl") for _ in range(2)}
    assert len(paths) == Files.num_requests == 1
    assert list(read_jsonl(paths.pop())) == [[1]]
    mine = tmp_path / "deep" / "mine.jsonl"
    assert download_and_cache_file(f"{server}/rows.jsonl", str(mine)) == str(mine)
    for name in ("missing", "cut"):
        with pytest.raises(DownloadError, match=name):
            download_and_cache_file(f"{server}/{name}", str(mine.with_name(name)))
    assert [path.name for path in mine.parent.iterdir()] == ["mine.jsonl"]
    for wrong in ("file:///etc/passwd", "rows.jsonl", None):
        with pytest.raises(UserInputError, match="http"):
            download_and_cache_file(wrong)  # type: ignore[arg-type]
    assert data_file.MAX_BYTES > 1 << 30


def test_benchmark_options_choose_the_engine_and_refuse_servers(
    monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    def chosen(*words: str) -> Any:
        monkeypatch.setattr(sys, "argv", ["bench.py", *words])
        parser = argparse.ArgumentParser()
        parser.add_argument("--num-questions", type=int, default=200)
        args = add_common_sglang_args_and_parse(parser)
        assert (args.parallel, args.num_questions) == (64, 5)
        return select_sglang_backend(args)

    monkeypatch.setattr("espalier.runtime.Engine", lambda: "the engine")
    assert chosen("--num-questions", "5") == "the engine"
    assert chosen("--num-questions", "5", "--backend", "srt-no-parallel") == "the engine"
    assert settings.enable_parallel_encoding is False
    with pytest.raises(UnsupportedError, match="gpt-4"):
        chosen("--num-questions", "5", "--backend", "gpt-4")
    with pytest.raises(UnsupportedError, match="--host"):
        chosen("--num-questions", "5", "--host", "http://10.0.0.1")
