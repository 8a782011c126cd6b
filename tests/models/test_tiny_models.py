"""Tiny random models of every architecture: our logits against those of transformers.

Expected logits are in tests/golden/data, made by tests/golden/make_tiny_models.py. Each model runs
from a Hugging Face folder, and again from a GGUF file whose tensor names the `gguf` package maps.
"""

from __future__ import annotations

import json
import runpy
import struct
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from espalier import _native
from espalier.exec.executor import ExecutorOptions, Float32Array, StepBatch, WeightSource
from espalier.exec.factory import make_executor
from espalier.exec.plan import Attention, Plan, Rope
from espalier.loaders.gguf import GgufFile
from espalier.loaders.hf_folder import HfFolder
from espalier.models.architectures import plan_from_gguf, plan_from_hf

GOLDEN = Path(__file__).parents[1] / "golden"
random_weight = runpy.run_path(str(GOLDEN / "make_tiny_models.py"))["random_weight"]
CASES: dict[str, dict[str, Any]] = json.loads((GOLDEN / "data" / "tiny_models.json").read_text())
LOGITS: Mapping[str, Float32Array] = np.load(GOLDEN / "data" / "tiny_logits.npz")
TOLERANCE = 1e-4  # both sides compute in float32; logits reach 23

# What a GGUF file has no keys for: windows in late layers, a query scale of its own.
WITHOUT_GGUF = {"qwen2_late_window", "gemma3"}


def shapes_of(config: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """Shapes of the tensors that transformers saves for a configuration."""
    kinds: dict[str, tuple[int, ...]] = {}
    hidden, mlp, vocab = config["hidden_size"], config["intermediate_size"], config["vocab_size"]
    head_dim = config.get("head_dim") or hidden // config["num_attention_heads"]
    q, kv = (config[f"num_{kind}_heads"] * head_dim for kind in ("attention", "key_value"))
    family = config["model_type"]
    linear = {
        "self_attn.q_proj": (q, hidden),
        "self_attn.k_proj": (kv, hidden),
        "self_attn.v_proj": (kv, hidden),
        "self_attn.o_proj": (hidden, q),
        "mlp.gate_proj": (mlp, hidden),
        "mlp.up_proj": (mlp, hidden),
        "mlp.down_proj": (hidden, mlp),
    }
    norms = {"input_layernorm": hidden, "post_attention_layernorm": hidden}
    if family in ("qwen3", "gemma3_text"):
        norms |= {"self_attn.q_norm": head_dim, "self_attn.k_norm": head_dim}
    if family == "gemma3_text":
        norms |= {"pre_feedforward_layernorm": hidden, "post_feedforward_layernorm": hidden}
    biased = [name for name in linear if config.get("mlp_bias") and name.startswith("mlp")]
    biased += [name for name in linear if config.get("attention_bias") and name[0] == "s"]
    if family == "qwen2":
        biased = ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"]
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        kinds |= {f"{prefix}{name}.weight": shape for name, shape in linear.items()}
        kinds |= {f"{prefix}{name}.bias": linear[name][:1] for name in biased}
        kinds |= {f"{prefix}{name}.weight": (width,) for name, width in norms.items()}
    kinds |= {"model.embed_tokens.weight": (vocab, hidden), "model.norm.weight": (hidden,)}
    if not config["tie_word_embeddings"]:
        kinds["lm_head.weight"] = (vocab, hidden)
    return kinds


def weights_of(config: dict[str, Any]) -> dict[str, Float32Array]:
    is_gemma = config["model_type"] == "gemma3_text"
    return {name: random_weight(name, shape, is_gemma) for name, shape in shapes_of(config).items()}


def write_folder(path: Path, config: dict[str, Any]) -> Path:
    header, data = {}, b""
    for name, values in weights_of(config).items():
        end = len(data) + values.nbytes
        header[name] = {"dtype": "F32", "shape": values.shape, "data_offsets": [len(data), end]}
        data += values.tobytes()
    text = json.dumps(header).encode()
    path.mkdir()
    (path / "config.json").write_text(json.dumps(config))
    (path / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
    return path


def permuted(values: Float32Array, num_heads: int) -> Float32Array:
    """Rows of a Llama's q or k as GGUF files hold them: halves of a head interleaved."""
    halves = values.reshape(num_heads, 2, -1, *values.shape[1:])
    return np.ascontiguousarray(halves.swapaxes(1, 2)).reshape(values.shape)


def write_gguf(
    path: Path,
    config: dict[str, Any],
    hf_plan: Plan,
    add_more: Callable[[gguf.GGUFWriter], None] | None = None,
) -> Path:
    family = {"mistral": "llama", "gemma3_text": "gemma3"}.get(
        config["model_type"], config["model_type"]
    )
    writer = gguf.GGUFWriter(path, family)
    add_metadata(writer, config, hf_plan)
    if add_more is not None:
        add_more(writer)
    arch = {name: key for key, name in gguf.MODEL_ARCH_NAMES.items()}[family]
    names = gguf.get_tensor_name_map(arch, config["num_hidden_layers"])
    for name, values in weights_of(config).items():
        stored = values
        if family == "llama" and ("q_proj" in name or "k_proj" in name):
            kind = "attention" if "q_proj" in name else "key_value"
            stored = permuted(values, config[f"num_{kind}_heads"])
        if family == "gemma3" and "norm" in name:
            stored = values + np.float32(1)
        target = names.get_name(name, try_suffixes=(".weight", ".bias"))
        assert target is not None, name
        writer.add_tensor(target, stored)
    if (config.get("rope_parameters") or {}).get("rope_type") == "llama3":
        writer.add_tensor("rope_freqs.weight", frequency_factors(hf_plan, config))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def frequency_factors(plan: Plan, config: dict[str, Any]) -> Float32Array:
    (rope,) = plan.ropes
    rotary_dim = 2 * len(rope.inv_freq)
    exponents = np.arange(0, rotary_dim, 2) / rotary_dim
    plain = config["rope_parameters"]["rope_theta"] ** -exponents
    factors: Float32Array = (plain / np.array(rope.inv_freq)).astype(np.float32)
    return factors


def add_metadata(writer: gguf.GGUFWriter, config: dict[str, Any], hf_plan: Plan) -> None:
    head_dim = hf_plan.geometry.head_dim
    rope = config["rope_parameters"]
    local = rope.get("sliding_attention")
    rope = rope.get("full_attention", rope)
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_key_length(head_dim)
    writer.add_value_length(head_dim)
    writer.add_rope_dimension_count(head_dim)
    writer.add_rope_freq_base(rope["rope_theta"])
    writer.add_vocab_size(config["vocab_size"])
    if rope["rope_type"] in ("linear", "yarn"):
        writer.add_rope_scaling_type(gguf.RopeScalingType(rope["rope_type"]))
        writer.add_rope_scaling_factor(rope["factor"])
    if rope["rope_type"] == "yarn":
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
        writer.add_float32(f"{writer.arch}.rope.scaling.yarn_beta_fast", rope["beta_fast"])
        paper = 0.1 * np.log(rope["factor"]) + 1
        writer.add_float32(
            f"{writer.arch}.rope.scaling.attn_factor", rope.get("attention_factor", paper) / paper
        )
    if local is not None:
        writer.add_float32(f"{writer.arch}.rope.freq_base_swa", local["rope_theta"])
        writer.add_sliding_window_pattern(config["sliding_window_pattern"])
        writer.add_attn_logit_softcapping(config["attn_logit_softcapping"])
        writer.add_final_logit_softcapping(config["final_logit_softcapping"])
    if config.get("sliding_window") is not None:
        writer.add_sliding_window(config["sliding_window"])


def logits(
    plan: Plan, weights: WeightSource, token_ids: list[int], executor: str = "reference"
) -> Float32Array:
    rows = np.arange(len(token_ids), dtype=np.int32)
    ends = np.array([0, len(token_ids)], dtype=np.int32)
    batch = StepBatch(np.array(token_ids, dtype=np.int32), rows, ends, rows, ends, rows)
    options = ExecutorOptions(num_slots=len(token_ids), weights="f32")
    return np.array(make_executor(executor, plan, weights, options).run(batch))


def folder_plan(case: str, path: Path) -> tuple[HfFolder, Plan]:
    folder = HfFolder(write_folder(path, CASES[case]["config"]))
    return folder, plan_from_hf(case, folder.config, folder.tensor_shapes)


@pytest.mark.parametrize("executor", ["reference", "native"])
@pytest.mark.parametrize("case", sorted(CASES))
def test_logits_of_a_folder_equal_transformers(case: str, executor: str, tmp_path: Path) -> None:
    folder, plan = folder_plan(case, tmp_path / "model")
    got = logits(plan, folder, CASES[case]["prompt"], executor)
    np.testing.assert_allclose(got, LOGITS[case], atol=TOLERANCE, rtol=0)


@pytest.mark.parametrize("executor", ["reference", "native"])
@pytest.mark.parametrize("case", sorted(set(CASES) - WITHOUT_GGUF))
def test_logits_of_a_gguf_file_equal_transformers(case: str, executor: str, tmp_path: Path) -> None:
    _, hf_plan = folder_plan(case, tmp_path / "model")
    config = CASES[case]["config"]
    file = GgufFile(write_gguf(tmp_path / "model.gguf", config, hf_plan))
    factors = None
    if "rope_freqs.weight" in file.tensor_shapes:
        raw = file.tensor("rope_freqs.weight")
        factors = _native.unpack("F32", raw.data, raw.shape[0]).tolist()
    plan = plan_from_gguf(case, file.metadata, file.tensor_shapes, factors)
    assert plan.geometry == hf_plan.geometry
    got = logits(plan, file, CASES[case]["prompt"], executor)
    np.testing.assert_allclose(got, LOGITS[case], atol=TOLERANCE, rtol=0)


def without_windows(plan: Plan) -> Plan:
    ops = (replace(op, window=0) if isinstance(op, Attention) else op for op in plan.ops)
    return replace(plan, ops=tuple(ops))


def without_scaling(plan: Plan) -> Plan:
    def plain(rope: Rope) -> Rope:
        size = len(rope.inv_freq)
        inv_freq = tuple(500.0 ** (-index / size) for index in range(size))
        return replace(rope, inv_freq=inv_freq, attention_factor=1.0)

    return replace(plan, ropes=tuple(plain(rope) for rope in plan.ropes))


@pytest.mark.parametrize(
    ("case", "change"),
    [
        ("mistral_window", without_windows),
        ("qwen2_late_window", without_windows),
        ("gemma3", without_windows),
        ("llama_linear", without_scaling),
        ("llama_llama3", without_scaling),
        ("llama_yarn", without_scaling),
        ("qwen2_yarn", without_scaling),
    ],
)
def test_case_would_notice_a_feature_that_is_ignored(
    case: str, change: Callable[[Plan], Plan], tmp_path: Path
) -> None:
    folder, plan = folder_plan(case, tmp_path / "model")
    got = logits(change(plan), folder, CASES[case]["prompt"])
    assert np.abs(got - LOGITS[case]).max() > 100 * TOLERANCE
