"""The native module: kernels written in C++ (native/)."""

import numpy as np
from numpy.typing import NDArray

def packed_bytes(kind: str, count: int) -> int: ...
def unpack(kind: str, data: NDArray[np.uint8], count: int) -> NDArray[np.float32]: ...
