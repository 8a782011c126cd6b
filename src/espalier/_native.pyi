"""The native module: kernels written in C++ (native/)."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

def packed_bytes(kind: str, count: int) -> int: ...
def unpack(kind: str, data: NDArray[np.uint8], count: int) -> NDArray[np.float32]: ...
class TokenSampler:
    def __init__(self, vocab_size: int, isa: str = "auto") -> None: ...
    def sample(self, logits: NDArray[np.float32], rows: Sequence[object]) -> list[_SampledRow]: ...
    def token_logprobs(
        self,
        logits: NDArray[np.float32],
        token_ids: Sequence[int] | NDArray[np.int32],
        top_logprobs_num: int,
        token_ids_logprob: Sequence[int],
    ) -> list[_SampledRow]: ...

# (status, token id, logprob, ((id, logprob), ...), (logprob, ...))
_SampledRow = tuple[int, int, float, tuple[tuple[int, float], ...], tuple[float, ...]]
