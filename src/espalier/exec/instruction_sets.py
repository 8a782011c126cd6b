"""Which instruction set native code uses: as asked for, forced by the environment, or the best.

Knows the names that the native module offers; what is compiled for them it must not know.
"""

from __future__ import annotations

from espalier import _native, settings
from espalier.errors import UnsupportedError


def chosen_isa(given: str) -> str:
    """The name of an available instruction set; "auto" is `ESPALIER_ISA`, else the best one.

    Raises UnsupportedError for a name that is unknown or that this machine lacks.
    """
    name = (settings.forced_isa() or "auto") if given == "auto" else given
    if name == "auto":
        return _native.best_isa()
    available = _native.available_isas().split(", ")
    if name not in available:
        raise UnsupportedError(
            f"instruction set {name!r} is not available on this machine; available are auto, "
            f"{', '.join(available)}."
        )
    return name
