"""Configurations that make a Plan, and those that are refused with what was found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from espalier.errors import EspalierError, ModelFileError, UnsupportedError
from espalier.exec.plan import Attention, LmHead, Plan
from espalier.models.architectures import plan_from_gguf, plan_from_hf

NAME = "small.gguf"
HF = {
    "model_type": "llama",
    "vocab_size": 11,
    "hidden_size": 8,
    "intermediate_size": 12,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "max_position_embeddings": 32,
    "rms_norm_eps": 1e-5,
}
GGUF = {
    "general.architecture": "llama",
    "llama.block_count": 2,
    "llama.context_length": 32,
    "llama.embedding_length": 8,
    "llama.feed_forward_length": 12,
    "llama.attention.head_count": 2,
    "llama.attention.layer_norm_rms_epsilon": 1e-5,
    "tokenizer.ggml.model": "gpt2",
}


def hf_shapes(**changes: tuple[int, ...] | None) -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...] | None] = {
        "model.embed_tokens.weight": (11, 8),
        "model.norm.weight": (8,),
        "lm_head.weight": (11, 8),
    }
    for layer in range(2):
        prefix = f"model.layers.{layer}."
        for name in "qkvo":
            shapes[f"{prefix}self_attn.{name}_proj.weight"] = (8, 8)
        shapes[f"{prefix}mlp.gate_proj.weight"] = (12, 8)
        shapes[f"{prefix}mlp.up_proj.weight"] = (12, 8)
        shapes[f"{prefix}mlp.down_proj.weight"] = (8, 12)
        shapes[f"{prefix}input_layernorm.weight"] = (8,)
        shapes[f"{prefix}post_attention_layernorm.weight"] = (8,)
    return {name: shape for name, shape in {**shapes, **changes}.items() if shape is not None}


def gguf_shapes(**changes: tuple[int, ...] | None) -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...] | None] = {
        "token_embd.weight": (11, 8),
        "output_norm.weight": (8,),
    }
    for layer in range(2):
        for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
            shapes[f"blk.{layer}.{name}.weight"] = (8, 8)
        shapes[f"blk.{layer}.ffn_gate.weight"] = (12, 8)
        shapes[f"blk.{layer}.ffn_up.weight"] = (12, 8)
        shapes[f"blk.{layer}.ffn_down.weight"] = (8, 12)
        shapes[f"blk.{layer}.attn_norm.weight"] = (8,)
        shapes[f"blk.{layer}.ffn_norm.weight"] = (8,)
    return {name: shape for name, shape in {**shapes, **changes}.items() if shape is not None}


def windows(plan: Plan) -> list[int]:
    return [op.window for op in plan.ops if isinstance(op, Attention)]


def head_weight(plan: Plan) -> str:
    (head,) = (op for op in plan.ops if isinstance(op, LmHead))
    return head.weight


def test_folder_makes_a_plan_of_the_right_sizes() -> None:
    plan = plan_from_hf(NAME, HF, hf_shapes())
    geometry = plan.geometry
    assert (geometry.num_layers, geometry.hidden_size, geometry.vocab_size) == (2, 8, 11)
    assert (geometry.num_heads, geometry.num_kv_heads, geometry.head_dim) == (2, 2, 4)
    assert geometry.max_context == 32
    assert head_weight(plan) == "lm_head"
    assert windows(plan) == [0, 0]
    names = {buffer.name for buffer in plan.buffers}
    assert len(names) == len(plan.buffers)
    assert {slot.tensor for slot in plan.weights} == set(hf_shapes())


def test_head_is_the_embedding_where_they_are_tied() -> None:
    tied = {**HF, "tie_word_embeddings": True}
    without = hf_shapes(**{"lm_head.weight": None})
    for shapes in (hf_shapes(), without):  # a copy of the embedding may be there
        assert head_weight(plan_from_hf(NAME, tied, shapes)) == "embedding"
    assert head_weight(plan_from_gguf(NAME, GGUF, gguf_shapes())) == "embedding"
    with_head = gguf_shapes(**{"output.weight": (11, 8)})
    assert head_weight(plan_from_gguf(NAME, GGUF, with_head)) == "lm_head"


def test_old_rotary_tables_in_a_folder_are_passed_over() -> None:
    table = {"model.layers.0.self_attn.rotary_emb.inv_freq": (2,)}
    assert plan_from_hf(NAME, HF, hf_shapes(**table)).geometry.num_layers == 2


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, [4096, 4096]),
        ({"sliding_window": None}, [0, 0]),
        ({"sliding_window": 7}, [7, 7]),
    ],
)
def test_mistral_window_is_absent_only_where_it_is_null(
    given: dict[str, Any], expected: list[int]
) -> None:
    config = {**HF, "model_type": "mistral", **given}
    assert windows(plan_from_hf(NAME, config, hf_shapes())) == expected


def test_gguf_settings_that_change_nothing_are_accepted() -> None:
    metadata = {
        **GGUF,
        "llama.vocab_size": 11,
        "llama.expert_count": 0,
        "llama.rope.scaling.type": "none",
        "llama.rope.scaling.finetuned": True,
        "llama.attention.head_count_kv": [2, 2],
        "general.type": "model",
    }
    assert plan_from_gguf(NAME, metadata, gguf_shapes()).geometry.num_kv_heads == 2


def test_frequency_factors_are_honoured_and_their_tensor_is_used() -> None:
    shapes = gguf_shapes(**{"rope_freqs.weight": (2,)})
    (rope,) = plan_from_gguf(NAME, GGUF, shapes, [1.0, 8.0]).ropes
    assert rope.inv_freq == pytest.approx([1.0, 0.01 / 8])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": None}, "has no model_type"),
        ({"model_type": "mixtral"}, "model_type 'mixtral'; supported are gemma3_text, llama, mi"),
        ({"hidden_size": None}, "has no hidden_size"),
        ({"hidden_size": "8"}, "hidden_size of config.json.* must be a whole number"),
        ({"hidden_size": -8}, "must be a whole number of 0 or more"),
        ({"num_hidden_layers": 4_000_000_000}, "num_layers is 4,000,000,000; 1 to 1,000"),
        ({"num_attention_heads": 0}, "num_heads is 0"),
        ({"num_key_value_heads": 3}, "2 attention heads cannot share 3"),
        ({"head_dim": 5}, "5 elements of a head are rotated; an even number"),
        ({"rms_norm_eps": 2.0}, "epsilon is 2.0"),
        ({"rms_norm_eps": float("nan")}, "must be a finite number"),
        ({"rope_theta": 0.5}, "rotary base is 0.5"),
        ({"hidden_act": "gelu"}, "hidden_act 'gelu'; silu, swish"),
        ({"tie_word_embeddings": 1}, "must be true or false"),
        ({"quantization_config": {"quant_method": "gptq"}}, "quantised \\('gptq'\\)"),
        ({"auto_map": {"AutoModelForCausalLM": "x.Model"}}, "code of its own"),
        ({"attention_bias": True}, "lacks tensors .* model.layers.0.self_attn.q_proj.bias"),
        ({"intermediate_size": 16}, r"shape \(12, 8\), but \(16, 8\) follows"),
    ],
)
def test_folder_that_is_not_supported_raises(changes: dict[str, Any], message: str) -> None:
    with pytest.raises((ModelFileError, UnsupportedError), match=message):
        plan_from_hf(NAME, {**HF, **changes}, hf_shapes())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"general.architecture": "mamba"}, "architecture 'mamba'; supported are gemma3, llama, q"),
        ({"general.architecture": None}, "has no general.architecture"),
        ({"general.type": "adapter"}, "of the type 'adapter'; only whole models"),
        ({"llama.block_count": None}, "has no llama.block_count"),
        ({"llama.expert_count": 8}, "not supported: llama.expert_count = 8"),
        ({"llama.attention.clamp_kqv": 3.0}, "not supported: llama.attention.clamp_kqv = 3.0"),
        ({"llama.attention.head_count_kv": [2, 1]}, "differs between layers"),
        ({"llama.attention.value_length": 6}, "another length than its keys"),
        ({"llama.rope.scaling.type": "longrope"}, "'longrope'; none, linear and yarn"),
        (
            {"llama.rope.scaling.type": "yarn", "llama.rope.scaling.yarn_ext_factor": 0.5},
            "yarn_ext_factor 0.5",
        ),
        ({"llama.rope.dimension_count": 3}, "3 elements of a head are rotated"),
    ],
)
def test_gguf_file_that_is_not_supported_raises(changes: dict[str, Any], message: str) -> None:
    with pytest.raises((ModelFileError, UnsupportedError), match=message):
        plan_from_gguf(NAME, {**GGUF, **changes}, gguf_shapes())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"blk.1.ffn_up.weight": None}, "lacks tensors .*: blk.1.ffn_up.weight"),
        ({"blk.1.ffn_gate_exps.weight": (2, 12, 8)}, "no use for: blk.1.ffn_gate_exps.weight"),
        ({"rope_freqs.weight": (2,)}, "no use for: rope_freqs.weight"),
        ({"blk.0.attn_norm.weight": (8, 1)}, r"shape \(8, 1\), but \(8,\) follows"),
        ({f"extra.{i}": (1,) for i in range(9)}, "extra.3 and 5 more"),
    ],
)
def test_tensors_that_do_not_fit_raise(
    changes: dict[str, tuple[int, ...] | None], message: str
) -> None:
    with pytest.raises((ModelFileError, UnsupportedError), match=message):
        plan_from_gguf(NAME, GGUF, gguf_shapes(**changes))


@pytest.mark.parametrize("factors", [[1.0], [1.0, 0.0], [1.0, 1.0, 1.0]])
def test_frequency_factors_that_do_not_fit_raise(factors: list[float]) -> None:
    shapes = gguf_shapes(**{"rope_freqs.weight": (len(factors),)})
    with pytest.raises(ModelFileError, match="rotary frequency factors"):
        plan_from_gguf(NAME, GGUF, shapes, factors)


def test_frequency_factors_beside_scaling_raise() -> None:
    metadata = {**GGUF, "llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 2.0}
    with pytest.raises(UnsupportedError, match="one of them is supported"):
        plan_from_gguf(NAME, metadata, gguf_shapes(), [1.0, 1.0])


ODD_VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.text(max_size=3),
    st.lists(st.integers(0, 3), max_size=3),
    st.dictionaries(st.sampled_from(["rope_type", "factor", "full_attention"]), st.integers(0, 3)),
)
HF_KEYS = [
    *HF,
    *("num_key_value_heads", "head_dim", "rope_theta", "rope_scaling", "rope_parameters"),
    *("sliding_window", "layer_types", "use_sliding_window", "max_window_layers", "hidden_act"),
    *("tie_word_embeddings", "attention_bias", "mlp_bias", "sliding_window_pattern"),
    *("query_pre_attn_scalar", "final_logit_softcapping", "quantization_config", "auto_map"),
]
GGUF_KEYS = [
    *GGUF,
    *("llama.attention.key_length", "llama.rope.dimension_count", "llama.rope.freq_base"),
    *("llama.rope.scaling.type", "llama.rope.scaling.factor", "llama.attention.sliding_window"),
]


def outcome(make: Callable[[], Plan]) -> Plan | EspalierError:
    """A Plan, or the error that says why not; any other exception fails the test."""
    try:
        return make()
    except EspalierError as error:
        return error


@settings(max_examples=150, deadline=None)
@given(
    family=st.sampled_from(["llama", "mistral", "qwen2", "qwen3", "gemma3_text"]),
    changes=st.dictionaries(st.sampled_from(HF_KEYS), ODD_VALUES, max_size=4),
)
def test_odd_folder_gives_a_plan_or_a_clear_error(family: str, changes: dict[str, Any]) -> None:
    config = {**HF, "model_type": family, **changes}
    result = outcome(lambda: plan_from_hf(NAME, config, hf_shapes()))
    assert isinstance(result, Plan) or NAME in str(result)


@settings(max_examples=150, deadline=None)
@given(changes=st.dictionaries(st.sampled_from(GGUF_KEYS), ODD_VALUES, max_size=4))
def test_odd_gguf_file_gives_a_plan_or_a_clear_error(changes: dict[str, Any]) -> None:
    result = outcome(lambda: plan_from_gguf(NAME, {**GGUF, **changes}, gguf_shapes()))
    assert isinstance(result, Plan) or NAME in str(result)
