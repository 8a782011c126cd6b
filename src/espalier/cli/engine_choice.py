"""The options of the local engine on the command line, and an engine that starts on first use."""

from __future__ import annotations

import threading
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from espalier.cli.options import option
from espalier.errors import EspalierError
from espalier.settings import MAX_THREADS

if TYPE_CHECKING:
    from espalier.backends.base import Backend
    from espalier.runtime import Engine


@dataclass(frozen=True, slots=True)
class EngineChoice:
    """What the user chose of the engine; None leaves a value to the engine."""

    model: str | None = option(
        "Alias, .gguf file, Hugging Face folder, or org/name on the hub.",
        metavar="NAME|PATH",
        show_default="ESPALIER_MODEL, else smollm2",
    )
    weights: str | None = option(
        "Form that weights are held in: auto, int8, int4, bf16 or f32.",
        metavar="FORM",
        show_default="auto: 4-bit tensors as int4, others as int8",
    )
    kv_dtype: str | None = option(
        "Form that keys and values are held in: auto, bf16, int8 or f32.",
        metavar="FORM",
        show_default="auto: f32 with f32 weights, else bf16",
    )
    num_threads: int | None = option(
        "Threads that compute.",
        flag="--threads",
        min=1,
        max=MAX_THREADS,
        metavar="N",
        show_default="every core",
    )
    max_total_tokens: int | None = option("Token slots of the KV pool.", min=1, metavar="N")
    context_length: int | None = option(
        "Most tokens of a prompt with its answer.", min=1, metavar="N"
    )

    def given(self) -> dict[str, Any]:
        """The values that were chosen, as keywords of Engine."""
        return {name: value for name, value in asdict(self).items() if value is not None}


class LazyEngine:
    """Stands for an Engine as the default backend; starts it when a program first needs it.

    Attributes:
        load_s: seconds that starting took, or None while it has not been needed.
        failure: why it could not be started, or None.
    """

    def __init__(self, choice: EngineChoice) -> None:
        self.choice = choice
        self.load_s: float | None = None
        self.failure: EspalierError | None = None
        self._engine: Engine | None = None
        self._lock = threading.Lock()

    @property
    def endpoint(self) -> Backend:
        """The backend of the engine."""
        return self.engine().endpoint

    def engine(self) -> Engine:
        """The engine; starts it on the first call. Raises EspalierError."""
        with self._lock:
            if self._engine is None:
                from espalier.runtime import Engine

                started = time.perf_counter()
                try:
                    self._engine = Engine(**self.choice.given())
                except EspalierError as error:
                    self.failure = error
                    raise
                self.load_s = time.perf_counter() - started
            return self._engine

    def shutdown(self) -> None:
        """Ends the engine if it was started."""
        with self._lock:
            if self._engine is not None:
                self._engine.shutdown()
