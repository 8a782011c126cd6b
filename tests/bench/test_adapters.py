"""Adapters of peers, with stand-ins for the peers' libraries."""

from __future__ import annotations

import os
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from bench.engine.workloads import WORKLOADS, groups, joint_setup
from bench.peers.llamacpp_peer import LlamaCppPeer
from bench.peers.protocol import Form, RefusedError, Setup
from bench.peers.vllm_peer import VllmPeer
from bench.peers.xllamacpp_peer import XllamaCppPeer, context_cells
from tests.bench.fake_llama import END, VOCAB, FakeLlama, continuation


def test_every_slot_of_the_server_has_room_for_the_longest_sequence() -> None:
    for group in groups(WORKLOADS):
        setup = joint_setup([work.setup("m", 2) for work in group])
        cells_of_a_slot, rest = divmod(context_cells(setup), setup.max_rows)
        assert rest == 0
        assert cells_of_a_slot % 256 == 0
        for work in group:
            assert cells_of_a_slot >= work.context + work.num_tokens + 1


def test_vllm_computes_with_the_threads_of_the_setup(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, Any] = {}

    def make(**_: Any) -> None:
        seen["threads"] = os.environ["OMP_NUM_THREADS"]

    def num_threads() -> int:
        return int(os.environ["OMP_NUM_THREADS"])

    monkeypatch.setenv("OMP_NUM_THREADS", "64")
    monkeypatch.setitem(sys.modules, "vllm", SimpleNamespace(LLM=make, __version__="1"))
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(get_num_threads=num_threads))
    facts = VllmPeer().start(Setup("m", num_threads=3))
    assert seen["threads"] == "3"
    assert facts["threads"] == 3


def llama(monkeypatch: pytest.MonkeyPatch, setup: Setup) -> tuple[LlamaCppPeer, FakeLlama]:
    library = FakeLlama()
    monkeypatch.setitem(sys.modules, "llama_cpp", library)
    peer = LlamaCppPeer()
    peer.start(setup)
    return peer, library


def prompts_of(rows: int, shared: int, own: int, seed: int) -> list[list[int]]:
    prefix = [(seed * 31 + place * 7) % 97 for place in range(shared)]
    return [
        prefix + [(seed + row * 13 + place * 5) % 97 for place in range(own)] for row in range(rows)
    ]


@pytest.mark.parametrize("shared", [0, 40])
@pytest.mark.parametrize("prefix_cache", [True, False])
def test_llama_decodes_what_its_cells_say(
    shared: int, prefix_cache: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    setup = Setup("m", 2, 8, 64, 400, prefix_cache=prefix_cache, shares_prefix=shared > 0)
    peer, _ = llama(monkeypatch, setup)
    for rows, seed in ((3, 1), (8, 2), (3, 2), (3, 3), (8, 3)):
        prompts = prompts_of(rows, shared, 6, seed)
        for num_tokens in (1, 1, 5):
            outputs = peer.generate(prompts, num_tokens)
            assert outputs == [continuation(prompt, num_tokens) for prompt in prompts]


@pytest.mark.parametrize("shared", [0, 40])
def test_llama_keeps_no_cells_of_earlier_work(shared: int, monkeypatch: pytest.MonkeyPatch) -> None:
    setup = Setup("m", 2, 8, 64, 400, prefix_cache=True, shares_prefix=shared > 0)
    alone, fresh = llama(monkeypatch, setup)
    alone.generate(prompts_of(3, shared, 6, seed=2), 5)
    peer, library = llama(monkeypatch, setup)
    peer.generate(prompts_of(8, shared, 6, seed=1), 5)
    library.most_cells = 0
    peer.generate(prompts_of(3, shared, 6, seed=2), 5)
    if shared:
        assert library.most_cells == fresh.most_cells == shared + 3 * 10
    assert len(library.cells) == len(fresh.cells)


def test_llama_holds_a_form_of_each_row(monkeypatch: pytest.MonkeyPatch) -> None:
    peer, library = llama(monkeypatch, Setup("m", 2, 3, 64, 400, prefix_cache=True))
    prompts = prompts_of(3, 0, 6, seed=1)
    free = continuation(prompts[1], 1)[0]
    forms: list[Form] = [{"gbnf": "5 9 5"}, {"gbnf": str(free)}, {"gbnf": " ".join(["7"] * 30)}]
    for _ in range(2):
        library.sizes.clear()
        outputs = peer.generate(prompts, 8, forms)
        assert outputs == [[5, 9, 5, END], [free, END], [7] * 8]
        assert library.num_grammars == 0
    # What the model wants is asked about alone; all tokens only where the grammar refuses it.
    assert set(library.sizes) == {1, VOCAB}
    assert library.sizes.count(1) > library.sizes.count(VOCAB)
    assert peer.generate(prompts, 4) == [continuation(prompt, 4) for prompt in prompts]


def test_llama_refuses_what_it_cannot_read(monkeypatch: pytest.MonkeyPatch) -> None:
    peer, library = llama(monkeypatch, Setup("m", 2, 3, 64, 400))
    with pytest.raises(RefusedError, match="takes gbnf or json_schema"):
        peer.generate([[1]], 4, [{"regex": "a"}])
    with pytest.raises(RefusedError, match="cannot read this grammar"):
        peer.generate([[1], [2]], 4, [{"gbnf": "5"}, {"gbnf": "no grammar"}])
    assert library.num_grammars == 0


def test_server_gets_a_request_for_each_form(monkeypatch: pytest.MonkeyPatch) -> None:
    peer = XllamaCppPeer()
    asked: dict[int, dict[str, Any]] = {}

    def complete(prompt: list[int], _: int, settings: dict[str, Any]) -> list[list[int]]:
        asked[prompt[0]] = settings
        return [[prompt[0] + 1]]

    monkeypatch.setattr(peer, "_complete", complete)
    forms: list[Form] = [{"regex": "a", "gbnf": "g"}, {"json_schema": {"type": "null"}}]
    assert peer.generate([[4], [8]], 5, forms) == [[5], [9]]
    assert asked == {4: {"grammar": "g"}, 8: {"json_schema": {"type": "null"}}}
    with pytest.raises(RefusedError, match="takes gbnf or json_schema"):
        peer.generate([[4]], 5, [{"regex": "a"}])


def test_vllm_names_the_backend_and_asks_for_compact_json(monkeypatch: pytest.MonkeyPatch) -> None:
    made: dict[str, Any] = {}

    def make(**settings: Any) -> None:
        made.update(settings)

    monkeypatch.setitem(sys.modules, "vllm", SimpleNamespace(LLM=make, __version__="1"))
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(get_num_threads=lambda: 2))
    for backend, is_compact in (("guidance", True), ("outlines", False)):
        VllmPeer().start(Setup("m", options={"backend": backend}))
        expected = {"backend": backend, "disable_any_whitespace": is_compact}
        assert made.pop("structured_outputs_config") == expected
    VllmPeer().start(Setup("m"))
    assert "structured_outputs_config" not in made
