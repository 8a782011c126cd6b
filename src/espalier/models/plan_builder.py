"""Writes a Plan step by step: the blocks that decoder architectures are made of.

Knows the operations of a Plan and a ModelConfig; the order of the blocks is the architecture's.
"""

from __future__ import annotations

from espalier.exec.plan import (
    Add,
    ApplyRope,
    Attention,
    Buffer,
    Embed,
    GatedActivation,
    Geometry,
    HeadNorm,
    KvWrite,
    Linear,
    LmHead,
    Op,
    Plan,
    RmsNorm,
    Rope,
    SelectRows,
    WeightSlot,
)
from espalier.models.architecture import TensorNames
from espalier.models.config import ModelConfig
from espalier.models.rope import RopeConfig, rope_table

# Row buffers: the residual stream, what a block reads and writes, and the insides of blocks.
_RESIDUAL, _HIDDEN, _LAST = "residual", "hidden", "last"


class PlanBuilder:
    """Collects weights, rotary tables and operations of one model, in order."""

    def __init__(self, config: ModelConfig, names: TensorNames) -> None:
        self._config = config
        self._names = names
        self._ops: list[Op] = []
        self._weights: dict[str, WeightSlot] = {}
        self._ropes: dict[RopeConfig, Rope] = {}
        self._q_width = config.num_heads * config.head_dim
        self._kv_width = config.num_kv_heads * config.head_dim
        self._biased = {
            *(("q", "k", "v") if config.attention_bias else ()),
            *(("output",) if config.output_bias else ()),
            *(("gate", "up", "down") if config.mlp_bias else ()),
        }

    def embed(self) -> None:
        """residual = scaled embedding of the token."""
        config = self._config
        table = self._weight("embedding", (config.vocab_size, config.hidden_size))
        self._ops.append(Embed(table, _RESIDUAL, config.embedding_scale))

    def norm_before(self, weight: str, layer: int) -> None:
        """hidden = norm(residual)."""
        slot = self._norm(weight, self._config.hidden_size, layer)
        self._ops.append(RmsNorm(_RESIDUAL, slot, _HIDDEN, self._config.norm_eps))

    def norm_after(self, weight: str, layer: int) -> None:
        """hidden = norm(hidden)."""
        slot = self._norm(weight, self._config.hidden_size, layer)
        self._ops.append(RmsNorm(_HIDDEN, slot, _HIDDEN, self._config.norm_eps))

    def project_qkv(self, layer: int) -> None:
        """q, k and v = projections of hidden."""
        for name, width in (("q", self._q_width), ("k", self._kv_width), ("v", self._kv_width)):
            self._linear(name, _HIDDEN, name, (width, self._config.hidden_size), layer)

    def norm_heads(self, layer: int) -> None:
        """Normalises each head of q and of k."""
        config = self._config
        for buffer in ("q", "k"):
            slot = self._norm(f"{buffer}_norm", config.head_dim, layer)
            self._ops.append(HeadNorm(buffer, slot, config.head_dim, config.norm_eps))

    def attend(self, layer: int) -> None:
        """hidden = projection of the attention of q over the keys and values so far."""
        config = self._config
        rope = self._rope(config.rope_of(layer))
        self._ops += [
            ApplyRope("q", config.head_dim, rope),
            ApplyRope("k", config.head_dim, rope),
            KvWrite(layer, "k", "v"),
            Attention(
                layer,
                "q",
                "attended",
                config.attention_scale,
                config.layer_windows[layer],
                config.attention_soft_cap,
            ),
        ]
        shape = (config.hidden_size, self._q_width)
        self._linear("output", "attended", _HIDDEN, shape, layer)

    def gated_mlp(self, layer: int) -> None:
        """hidden = down(activation(gate(hidden)) * up(hidden))."""
        config = self._config
        inward, outward = (
            (config.mlp_size, config.hidden_size),
            (config.hidden_size, config.mlp_size),
        )
        for name in ("gate", "up"):
            self._linear(name, _HIDDEN, name, inward, layer)
        self._ops.append(GatedActivation("gate", "up", "gate", config.activation))
        self._linear("down", "gate", _HIDDEN, outward, layer)

    def add_to_residual(self) -> None:
        """residual = residual + hidden."""
        self._ops.append(Add(_RESIDUAL, _HIDDEN, _RESIDUAL))

    def finish(self) -> Plan:
        """Adds the final norm and the head over the wanted rows, and gives the Plan."""
        config = self._config
        norm = self._norm("final_norm", config.hidden_size)
        head = "embedding"
        if not config.tied_embeddings:
            head = self._weight("lm_head", (config.vocab_size, config.hidden_size))
        self._ops += [
            SelectRows(_RESIDUAL, _LAST),
            RmsNorm(_LAST, norm, _LAST, config.norm_eps),
            LmHead(_LAST, head, config.logit_soft_cap),
        ]
        return Plan(
            name=config.name,
            geometry=Geometry(
                num_layers=config.num_layers,
                hidden_size=config.hidden_size,
                num_heads=config.num_heads,
                num_kv_heads=config.num_kv_heads,
                head_dim=config.head_dim,
                vocab_size=config.vocab_size,
                max_context=config.max_context,
            ),
            buffers=self._buffers(),
            weights=tuple(self._weights.values()),
            ropes=tuple(self._ropes.values()),
            ops=tuple(self._ops),
        )

    def _buffers(self) -> tuple[Buffer, ...]:
        hidden_size, mlp_size = self._config.hidden_size, self._config.mlp_size
        widths = {
            _RESIDUAL: hidden_size,
            _HIDDEN: hidden_size,
            "q": self._q_width,
            "k": self._kv_width,
            "v": self._kv_width,
            "attended": self._q_width,
            "gate": mlp_size,
            "up": mlp_size,
            _LAST: hidden_size,
        }
        return tuple(Buffer(name, width) for name, width in widths.items())

    def _rope(self, config: RopeConfig) -> str:
        if config not in self._ropes:
            self._ropes[config] = rope_table(f"rope{len(self._ropes)}", config)
        return self._ropes[config].name

    def _norm(self, weight: str, width: int, layer: int | None = None) -> str:
        return self._weight(weight, (width,), layer, self._config.norm_offset)

    def _linear(self, weight: str, x: str, out: str, shape: tuple[int, int], layer: int) -> None:
        bias = None
        if weight in self._biased:
            bias = self._weight(f"{weight}_bias", shape[:1], layer)
        self._ops.append(Linear(x, self._weight(weight, shape, layer), out, bias))

    def _weight(
        self, name: str, shape: tuple[int, ...], layer: int | None = None, offset: float = 0.0
    ) -> str:
        slot = name if layer is None else f"layers.{layer}.{name}"
        tensor = self._names[name].format(layer=layer)
        self._weights[slot] = WeightSlot(slot, shape, tensor, offset)
        return slot
