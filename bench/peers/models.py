"""Where the models of the benches lie: the GGUF file, and the Hugging Face folder made from it."""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path

from bench.peers.catalog import GEMMA3, SMOLLM2

from espalier.loaders.hf_export import export_hf_folder
from espalier.loaders.resolve import resolve_model

# Files that the tests use too; without them an alias is resolved, and pulled if need be.
_VARIABLES = {SMOLLM2: "ESPALIER_TEST_SMOLLM2", GEMMA3: "ESPALIER_TEST_GEMMA3"}


def model_path(alias: str, is_gguf: bool, folder: Path) -> Path:
    """The file, or the folder that is exported from it into `folder` when first asked for."""
    given = os.environ.get(_VARIABLES.get(alias, ""))
    gguf = Path(given) if given else resolve_model(alias)
    if is_gguf:
        return gguf
    exported = folder / "models" / exported_name(gguf)
    if not exported.exists():
        print(f"exporting {alias} to {exported}", file=sys.stderr, flush=True)
        export_hf_folder(gguf, exported)
    return exported


def exported_name(gguf: Path) -> str:
    """Name of the folder that is exported from a file: another for each place, size and change."""
    file = gguf.resolve()
    status = file.stat()
    key = f"{file}\0{status.st_size}\0{status.st_mtime_ns}"
    return f"{gguf.stem}-{hashlib.sha256(key.encode()).hexdigest()[:12]}"
