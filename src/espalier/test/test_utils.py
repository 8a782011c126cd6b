"""Command-line options of the reference's benchmark scripts, and the backend that they name."""

from __future__ import annotations

import argparse
from typing import Any

from espalier.errors import UnsupportedError
from espalier.lang.config import global_config

DEFAULT_HOST, DEFAULT_PORT = "http://127.0.0.1", 30000
LOCAL_BACKENDS = ("srt", "srt-no-parallel")


def add_common_sglang_args_and_parse(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """Adds the options that such scripts share, and parses the command line."""
    parser.add_argument("--parallel", type=int, default=64, help="programs at work at once")
    parser.add_argument("--host", default=DEFAULT_HOST, help="of a server; not there yet")
    parser.add_argument("--port", type=int, default=DEFAULT_PORT, help="of a server; not there yet")
    parser.add_argument("--backend", default="srt", help="srt: a model in this process")
    parser.add_argument("--device", default="auto", choices=("auto", "cpu"))
    parser.add_argument("--result-file", default="result.jsonl")
    parser.add_argument("--raw-result-file")
    return parser.parse_args()


def select_sglang_backend(args: argparse.Namespace) -> Any:
    """The backend that the options name: for srt an Engine with the default model.

    `srt-no-parallel` switches `global_config.enable_parallel_encoding` off. Raises UnsupportedError
    for a server's address and for API backends, which are not there yet.
    """
    if args.backend not in LOCAL_BACKENDS:
        raise UnsupportedError(
            f"--backend is {args.backend!r}; {', '.join(LOCAL_BACKENDS)} are allowed, as backends "
            "of remote services are not there yet."
        )
    if (args.host, args.port) != (DEFAULT_HOST, DEFAULT_PORT):
        raise UnsupportedError(
            f"--host and --port are {args.host}:{args.port}; clients of a server are not there "
            "yet. Leave them out to run the model in this process; ESPALIER_MODEL names it."
        )
    if args.backend == "srt-no-parallel":
        global_config.enable_parallel_encoding = False
    from espalier.runtime import Engine

    return Engine()
