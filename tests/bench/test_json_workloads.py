"""The workloads of bench/constrain on the real model: same bits by any way, valid, canonical."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from bench.constrain.json_decoding import is_canonical
from bench.constrain.judgement import is_valid
from bench.constrain.workloads import KINDS, works

from espalier.runtime import Engine

COUNTS = {"character": 4, "city": 2, "schemas": 20}  # every schema


@pytest.fixture(scope="module")
def engines(smollm2_path: Path) -> Iterator[tuple[Engine, Engine]]:
    """With jumps and without."""
    settings: dict[str, Any] = {"max_total_tokens": 16_384}
    with Engine(smollm2_path, **settings) as jumping:
        with Engine(smollm2_path, jump_forward=False, **settings) as stepping:
            yield jumping, stepping


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("kind", KINDS)
def test_tokens_are_the_same_with_and_without_jumps(
    engines: tuple[Engine, Engine], kind: str, temperature: float
) -> None:
    jumping, stepping = engines
    todo = works(kind, COUNTS[kind])
    params = [
        {"temperature": temperature, "sampling_seed": seed, "max_new_tokens": 512, **work.form}
        for seed, work in enumerate(todo)
    ]
    prompts = [work.prompt for work in todo]
    answers = jumping.generate(prompts, params)
    one_by_one = stepping.generate(prompts, params)
    for work, answer, other in zip(todo, answers, one_by_one, strict=True):
        assert answer["output_ids"] == other["output_ids"]
        assert answer["text"] == other["text"]
        assert answer["meta_info"]["forced_tokens"] == other["meta_info"]["forced_tokens"] > 0
        assert is_canonical(jumping, answer)
        if answer["meta_info"]["finish_reason"]["type"] == "stop":
            assert is_valid(work, answer["text"])
