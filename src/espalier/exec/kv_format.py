"""In which format an executor keeps keys and values, and how many bytes a token slot takes.

Knows the names of the formats. How they are laid out is in native/kv_pool.h.
"""

from __future__ import annotations

from espalier import _native
from espalier.errors import UnsupportedError
from espalier.exec.plan import Geometry

KV_DTYPES = ("bf16", "int8", "f32")


def resolve_kv_dtype(kv_dtype: str, weights: str) -> str:
    """The format that `kv_dtype` stands for: "auto" is f32 with f32 weights, else bf16.

    Raises UnsupportedError for a name that is none.
    """
    if kv_dtype == "auto":
        return "f32" if weights == "f32" else "bf16"
    if kv_dtype not in KV_DTYPES:
        raise UnsupportedError(
            f"kv_dtype is {kv_dtype!r}; auto, {', '.join(KV_DTYPES)} are allowed."
        )
    return kv_dtype


def kv_slot_bytes(geometry: Geometry, kv_dtype: str) -> int:
    """Bytes of one slot in that format (not "auto"): keys and values of all layers."""
    return _native.kv_slot_bytes(
        geometry.num_layers, geometry.num_kv_heads, geometry.head_dim, kv_dtype
    )
