"""A model as a flat list of operations over named row buffers.

A Plan says what to compute; an executor (exec/native.py, exec/reference.py) says how. Models emit
Plans (models/*.py); nothing here knows a file format or an architecture.

Every buffer is a matrix of float32 rows, `[rows, width]`, one row per token of a step. Operations
run in order. After `SelectRows` the rows are those whose logits the step asked for.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Activation(str, Enum):
    """Activation of a gated MLP."""

    SILU = "silu"
    GELU_TANH = "gelu_tanh"


class RopeStyle(str, Enum):
    """Which elements of a head are rotated together."""

    HALF = "half"  # element i with i + rotary_dim / 2 (Hugging Face order)
    INTERLEAVED = "interleaved"  # element 2i with 2i + 1 (order of Llama models in GGUF)


@dataclass(frozen=True, slots=True)
class Geometry:
    """Sizes that an executor needs before it sees an operation."""

    num_layers: int
    hidden_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    max_context: int


@dataclass(frozen=True, slots=True)
class Buffer:
    """A row buffer, `[rows, width]` float32."""

    name: str
    width: int


@dataclass(frozen=True, slots=True)
class WeightSlot:
    """A weight that the Plan reads, and the tensor of the model file that fills it.

    `shape` is (out_features, in_features) for a matrix, (width,) for a vector. `offset` is added
    to every element on load (Gemma's norms in Hugging Face files hold weight - 1).
    """

    name: str
    shape: tuple[int, ...]
    tensor: str
    offset: float = 0.0

    @property
    def is_matrix(self) -> bool:
        """True for a matrix, false for a vector."""
        return len(self.shape) == 2


@dataclass(frozen=True, slots=True)
class Rope:
    """A table of rotary frequencies.

    The angle of pair i at position p is `p * inv_freq[i]`; cosine and sine are multiplied by
    `attention_factor` (YaRN; 1 elsewhere). `2 * len(inv_freq)` elements of a head are rotated.
    """

    name: str
    inv_freq: tuple[float, ...]
    style: RopeStyle
    attention_factor: float = 1.0


@dataclass(frozen=True, slots=True)
class Embed:
    """out = table[token_id] * scale."""

    table: str
    out: str
    scale: float = 1.0


@dataclass(frozen=True, slots=True)
class RmsNorm:
    """out = x / sqrt(mean(x^2) + eps) * weight, over the whole row. `out` may be `x`."""

    x: str
    weight: str
    out: str
    eps: float


@dataclass(frozen=True, slots=True)
class HeadNorm:
    """RmsNorm over each head of x (`[rows, heads * head_dim]`), in place; weight `[head_dim]`."""

    x: str
    weight: str
    head_dim: int
    eps: float


@dataclass(frozen=True, slots=True)
class Linear:
    """out = x @ weight.T + bias."""

    x: str
    weight: str
    out: str
    bias: str | None = None


@dataclass(frozen=True, slots=True)
class ApplyRope:
    """Rotates every head of x in place by the row's position."""

    x: str
    head_dim: int
    rope: str


@dataclass(frozen=True, slots=True)
class KvWrite:
    """Stores the row's k and v (`[rows, kv_heads * head_dim]`) in its slot of a layer's pool."""

    layer: int
    k: str
    v: str


@dataclass(frozen=True, slots=True)
class Attention:
    """Causal attention of q over the slots of the row's sequence, positions 0 to its own.

    `window` > 0: only the last `window` positions are seen (its own among them). `soft_cap` > 0:
    scores become `soft_cap * tanh(score / soft_cap)`. Scores are `q . k * scale` before the cap.
    """

    layer: int
    q: str
    out: str
    scale: float
    window: int = 0
    soft_cap: float = 0.0


@dataclass(frozen=True, slots=True)
class GatedActivation:
    """out = activation(gate) * up. `out` may be either."""

    gate: str
    up: str
    out: str
    activation: Activation


@dataclass(frozen=True, slots=True)
class Add:
    """out = x + y. `out` may be either."""

    x: str
    y: str
    out: str


@dataclass(frozen=True, slots=True)
class SelectRows:
    """out = the rows of x whose logits the step asked for; later operations see those only."""

    x: str
    out: str


@dataclass(frozen=True, slots=True)
class LmHead:
    """The step's logits: x @ weight.T; `soft_cap` > 0 applies `cap * tanh(logit / cap)`."""

    x: str
    weight: str
    soft_cap: float = 0.0


Op = (
    Embed
    | RmsNorm
    | HeadNorm
    | Linear
    | ApplyRope
    | KvWrite
    | Attention
    | GatedActivation
    | Add
    | SelectRows
    | LmHead
)


@dataclass(frozen=True, slots=True)
class Plan:
    """A model: geometry, buffers, weights, rotary tables and the operations in order."""

    name: str
    geometry: Geometry
    buffers: tuple[Buffer, ...]
    weights: tuple[WeightSlot, ...]
    ropes: tuple[Rope, ...]
    ops: tuple[Op, ...]
