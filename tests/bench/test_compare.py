"""Medians, ratios, prompts and groups of the comparison; no peer is started."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench.engine.compare import chosen_peers, chosen_work, parse_options, prompts_of
from bench.engine.prompts import Prompts, bench_text, fallback_text
from bench.engine.summary import Comparison, Figure, Round, decode_rate, table
from bench.engine.workloads import WORKLOADS, Workload, groups, joint_setup
from bench.peers.catalog import GEMMA3, SMOLLM2

WORK = Workload("decode-2", SMOLLM2, 2, 128, 16, 2.0)


def figure_of(*rates: float) -> Figure:
    return Figure(tuple(Round(rate) for rate in rates))


def test_decode_rate_leaves_the_first_token_out() -> None:
    assert decode_rate(rows=4, num_tokens=10, first_s=1.0, all_s=1.5) == pytest.approx(80)
    with pytest.raises(ValueError, match=r"took 1\.0000 s and 1 token 1\.0000 s"):
        decode_rate(4, 10, 1.0, 1.0)


def test_figure_is_the_median_with_its_spread() -> None:
    figure = figure_of(90, 110, 100, 130)
    assert figure.median == 105
    assert figure.spread == pytest.approx(40 / 105)
    assert Figure(problem="died").as_json() == {"problem": "died"}


def test_disturbed_rounds_count_only_where_there_are_no_others() -> None:
    figure = Figure((Round(100.0), Round(10.0, others=0.5), Round(102.0, others=0.05)))
    assert figure.median == 101
    assert figure.num_disturbed == 1
    assert figure.as_json()["rounds"] == [100.0, 10.0, 102.0]
    assert figure.as_json()["others"] == [0.0, 0.5, 0.05]
    lost = Figure((Round(10.0, others=0.5), Round(12.0, others=0.5)))
    assert lost.median == 11
    text = table([Comparison(WORK, {"espalier": figure, "vllm": lost})], ["espalier", "vllm"])
    assert "101 ±1%  " in text
    assert "11 ±9%!" in text
    assert "In 3 of 5 rounds other processes took over 10% of the processors." in text
    assert "but for 1 figures" in text


def test_ratio_is_to_the_fastest_peer_that_counts() -> None:
    figures = {
        "espalier": figure_of(300, 310, 290),
        "vllm": figure_of(200),
        "llamacpp": figure_of(150),
        "openvino": Figure(problem="died"),
    }
    one = Comparison(WORK, figures)
    assert one.best_peer == "vllm"
    assert one.ratio == pytest.approx(1.5)
    against = Comparison(Workload("w", GEMMA3, 1, 8, 4, 2.0, against=("llamacpp",)), figures)
    assert against.best_peer == "llamacpp"
    assert against.ratio == pytest.approx(2.0)
    assert Comparison(WORK, {"espalier": figures["espalier"]}).ratio is None
    assert Comparison(WORK, {"vllm": figures["vllm"]}).ratio is None
    report = one.as_json()
    assert (report["ratio"], report["reached"]) == (1.5, False)
    text = table([one, against], ["espalier", "vllm", "openvino"])
    assert "300 ±3%" in text
    assert "below" in text
    assert " ok" in text
    assert "decode-2, openvino: died" in text


def test_prompts_share_exactly_their_prefix() -> None:
    prompts = Prompts(list(range(5000)))
    cut = prompts.cut("w", 1, rows=16, length=120, shared=100)
    assert len(cut) == 16
    assert {len(prompt) for prompt in cut} == {120}
    assert len({tuple(prompt[:100]) for prompt in cut}) == 1
    assert len({prompt[100] for prompt in cut}) == 16
    assert cut == prompts.cut("w", 1, 16, 120, 100)
    assert cut != prompts.cut("w", 2, 16, 120, 100)
    with pytest.raises(ValueError, match="5000 tokens; over 5000 are needed"):
        prompts.cut("w", 1, 1, 5000, 0)


def test_fallback_text_is_long_and_always_the_same(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("ESPALIER_TEST_DATA", str(tmp_path))
    text, name = bench_text(None)
    assert text == fallback_text()
    assert name == "generated sentences"
    assert len(text) > 400_000


def test_groups_serve_work_of_one_kind_and_setups_are_large_enough() -> None:
    found = groups(WORKLOADS)
    assert sorted(work.name for group in found for work in group) == sorted(
        work.name for work in WORKLOADS
    )
    for group in found:
        setup = joint_setup([work.setup("m", 2) for work in group])
        for work in group:
            length = work.context + work.num_tokens + 1
            assert setup.max_rows >= work.rows
            assert setup.max_context >= length
            assert setup.kv_tokens >= work.shared + work.rows * (length - work.shared)
            assert setup.prefix_cache is not work.is_prefill
            assert setup.shares_prefix is (work.shared > 0)


def test_work_is_chosen_by_name_or_beginning() -> None:
    assert [work.name for work in chosen_work("decode-1", False)] == ["decode-1"]
    assert [work.name for work in chosen_work("shared,prefill-5", False)] == [
        "prefill-512",
        "shared-16",
        "shared-64",
    ]
    assert len(chosen_work(None, False)) == len(WORKLOADS)
    assert all(work.num_tokens <= 12 for work in chosen_work(None, True))
    with pytest.raises(SystemExit, match="'speed' fits none of prefill-512"):
        chosen_work("speed", False)


def test_peers_are_those_that_are_installed(tmp_path: Path) -> None:
    assert chosen_peers(None, tmp_path) == ["espalier"]
    python = tmp_path / "vllm" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.touch()
    assert chosen_peers(None, tmp_path) == ["espalier"]  # its installation did not end
    (tmp_path / "vllm" / "ready").touch()
    assert chosen_peers(None, tmp_path) == ["espalier", "vllm"]
    assert chosen_peers("vllm,espalier,vllm", tmp_path) == ["espalier", "vllm"]
    with pytest.raises(SystemExit, match="scripts/bench-peers openvino"):
        chosen_peers("vllm,openvino", tmp_path)
    with pytest.raises(SystemExit, match="'nobody' is unknown"):
        chosen_peers("nobody", tmp_path)


@pytest.mark.parametrize("option", ["--rounds", "--threads"])
@pytest.mark.parametrize("given", ["0", "-1", "two", "1.5"])
def test_counts_are_whole_numbers_from_1(
    option: str, given: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        parse_options([f"{option}={given}"])
    assert f"{option}: {given!r} is given; a whole number from 1" in capsys.readouterr().err


def test_model_that_cannot_be_read_gives_no_prompts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("ESPALIER_TEST_SMOLLM2", str(tmp_path / "missing.gguf"))
    source = prompts_of(SMOLLM2, "text", tmp_path)
    with pytest.raises(ValueError, match=r"the tokenizer of smollm2 cannot be read: .*missing"):
        source.cut("w", 0, 1, 1, 0)
