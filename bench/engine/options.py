"""Command-line options of the benches that let peers work in alternating rounds."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from bench.peers.catalog import default_folder


def positive(text: str) -> int:
    """A whole number of 1 or more, for argparse."""
    if not (text.isascii() and text.isdecimal() and int(text) >= 1):
        raise argparse.ArgumentTypeError(f"{text!r} is given; a whole number from 1 is allowed")
    return int(text)


def positives(text: str) -> list[int]:
    """Whole numbers of 1 or more, separated by commas: each once, in order of size."""
    return sorted({positive(part.strip()) for part in text.split(",")})


def model_parser(description: str) -> argparse.ArgumentParser:
    """A parser with the options of benches that run one model in this process."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--model", default=None)
    parser.add_argument("--weights", default="auto")
    parser.add_argument("--isa", default="auto")
    parser.add_argument("--threads", type=int, default=None)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser


def rounds_parser(description: str, num_rounds: int, peers: str) -> argparse.ArgumentParser:
    """A parser with the options that these benches share; `peers` names the default peers."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--peers", help=f"names, separated by commas (default: {peers})")
    parser.add_argument("--rounds", type=positive, default=num_rounds)
    parser.add_argument("--threads", type=positive, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--peers-dir", type=Path, default=default_folder())
    parser.add_argument("--text", type=Path, help="text that prompts are cut from")
    parser.add_argument("--plot", type=Path, help="PNG file to write")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser
