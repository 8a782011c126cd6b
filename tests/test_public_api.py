"""The public names are frozen here; adding one is a decision, and so is taking one away."""

from __future__ import annotations

import inspect
import subprocess
import sys

import pytest

import espalier

NAMES = [
    "BackendError",
    "BatchError",
    "CapacityError",
    "Engine",
    "EspalierError",
    "GenerationError",
    "ProgramError",
    "ProgramState",
    "Runtime",
    "ScriptedBackend",
    "TraceError",
    "Usage",
    "UserInputError",
    "__version__",
    "assistant",
    "assistant_begin",
    "assistant_end",
    "flush_cache",
    "function",
    "gen",
    "gen_int",
    "gen_string",
    "get_server_info",
    "global_config",
    "greedy_token_selection",
    "image",
    "record_run",
    "record_usage",
    "select",
    "separate_reasoning",
    "set_default_backend",
    "system",
    "system_begin",
    "system_end",
    "token_length_normalized",
    "unconditional_likelihood_normalized",
    "usage_of",
    "user",
    "user_begin",
    "user_end",
    "video",
]
HEAVY = {"numpy", "tokenizers", "jinja2", "rich", "typer", "llguidance", "gguf", "asyncio"}
_MEASURE = """
import sys, time
start = time.perf_counter()
import espalier
took_s = time.perf_counter() - start
print(took_s, *(name for name in {heavy!r} if name in sys.modules))
{more}
"""


def test_the_public_names_are_these() -> None:
    assert sorted(espalier.__all__) == NAMES
    assert set(NAMES) <= set(dir(espalier))


@pytest.mark.parametrize("name", NAMES)
def test_every_public_name_is_there_and_documented(name: str) -> None:
    value = getattr(espalier, name)
    if inspect.isclass(value) or inspect.isfunction(value):
        assert value.__doc__


def test_an_unknown_name_raises_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'audio'"):
        _ = espalier.audio


def run(more: str = "") -> list[str]:
    script = _MEASURE.format(heavy=sorted(HEAVY), more=more)
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    return done.stdout.split()


def test_importing_is_quick_and_loads_nothing_heavy() -> None:
    # The least of three: other processes may hold the machine up.
    measured = [run() for _ in range(3)]
    assert all(len(words) == 1 for words in measured), measured
    assert min(float(words[0]) for words in measured) < 0.150


def test_a_program_on_the_scripted_backend_needs_no_numpy() -> None:
    words = run(
        "from espalier import ScriptedBackend, function, gen\n"
        "program = function(lambda s: s.__iadd__('a' + gen('x')))\n"
        "print(program.run(backend=ScriptedBackend('!'))['x'], 'numpy' in sys.modules)"
    )
    assert words[-2:] == ["!", "False"]
