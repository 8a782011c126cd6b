"""The reference's `utils`, by its names alone; what they are lies in modules named after it."""

from __future__ import annotations

from espalier.lang.jsonl import read_jsonl
from espalier.lang.state_dump import dump_state_text
from espalier.loaders.data_file import download_and_cache_file

__all__ = ["download_and_cache_file", "dump_state_text", "read_jsonl"]
