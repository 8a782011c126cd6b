"""Chooses tokens from logits, for many rows in one native call.

Owns the order of the steps between logits and token (`docs/sampling.md`) and the packing of rows
for the native code. Knows nothing of requests, caches or text.
"""

from __future__ import annotations

from espalier.engine.sampler_reference import ReferenceSampler as Sampler
from espalier.engine.sampler_rows import SampledToken, SampleResult, SampleRow

__all__ = ["SampleResult", "SampleRow", "SampledToken", "Sampler"]
