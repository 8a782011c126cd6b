"""What an architecture needs to know of a model, wherever it was read from."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from espalier.errors import ModelFileError
from espalier.exec.plan import Activation
from espalier.models.rope import FrequencyFactors, RopeConfig


class FileFormat(str, Enum):
    """Where a model came from; it decides the names of its tensors."""

    GGUF = "gguf"
    HF = "hf"


MAX_LAYERS = 1_000

# (field, largest value): wide enough for every known model, narrow enough that a corrupt file
# cannot make a Plan that fills the memory.
_LIMITS = (
    ("num_layers", MAX_LAYERS),
    ("hidden_size", 1 << 17),
    ("num_heads", 1 << 12),
    ("num_kv_heads", 1 << 12),
    ("head_dim", 1 << 12),
    ("mlp_size", 1 << 20),
    ("vocab_size", 1 << 24),
    ("max_context", (1 << 31) - 1),
)


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """A decoder-only model. Raises ModelFileError, when made, where sizes do not fit together.

    Attributes:
        layer_windows: attention window of each layer in positions, 0 for all positions.
        rope: rotation of the layers; `local_rope`, where set, is that of layers with a window.
        attention_scale: factor of q . k.
        norm_offset: added to every norm's weight on load.
        attention_bias, output_bias, mlp_bias: whether q, k and v, the output projection, and the
            three matrices of the MLP have biases.
    """

    name: str
    file_format: FileFormat
    num_layers: int
    hidden_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    mlp_size: int
    vocab_size: int
    max_context: int
    norm_eps: float
    rope: RopeConfig
    layer_windows: tuple[int, ...]
    attention_scale: float
    activation: Activation = Activation.SILU
    local_rope: RopeConfig | None = None
    attention_soft_cap: float = 0.0
    logit_soft_cap: float = 0.0
    embedding_scale: float = 1.0
    norm_offset: float = 0.0
    tied_embeddings: bool = False
    attention_bias: bool = False
    output_bias: bool = False
    mlp_bias: bool = False

    def __post_init__(self) -> None:
        for name, largest in _LIMITS:
            value = getattr(self, name)
            if not 1 <= value <= largest:
                raise ModelFileError(
                    f"{self.name}: {name} is {value:,}; 1 to {largest:,} is allowed."
                )
        if self.num_heads % self.num_kv_heads:
            raise ModelFileError(
                f"{self.name}: {self.num_heads} attention heads cannot share {self.num_kv_heads} "
                "key heads; the first must be a multiple of the second."
            )
        if not 0 < self.norm_eps < 1:
            raise ModelFileError(
                f"{self.name}: the norm's epsilon is {self.norm_eps}; above 0 and below 1 is "
                "allowed."
            )
        for rope in (self.rope, self.local_rope):
            if rope is not None:
                self._check_rope(rope)
        assert len(self.layer_windows) == self.num_layers

    def _check_rope(self, rope: RopeConfig) -> None:
        if rope.rotary_dim % 2 or not 2 <= rope.rotary_dim <= self.head_dim:
            raise ModelFileError(
                f"{self.name}: {rope.rotary_dim} elements of a head are rotated; an even number up "
                f"to its size {self.head_dim} is allowed."
            )
        if not 1 < rope.theta < 1e12:
            raise ModelFileError(
                f"{self.name}: the rotary base is {rope.theta}; a number above 1 is allowed."
            )
        factors = rope.scaling.factors if isinstance(rope.scaling, FrequencyFactors) else None
        if factors is not None and (len(factors) != rope.rotary_dim // 2 or min(factors) <= 0):
            raise ModelFileError(
                f"{self.name}: {len(factors)} rotary frequency factors are given; "
                f"{rope.rotary_dim // 2} above 0 are needed."
            )

    def rope_of(self, layer: int) -> RopeConfig:
        """The rotation of a layer."""
        if self.local_rope is not None and self.layer_windows[layer]:
            return self.local_rope
        return self.rope
