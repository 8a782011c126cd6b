"""The part of a mask measurement that is the same for every library.

It runs inside each library's virtual environment, so it needs the standard library alone. Standard
input gives one JSON object a line, each of which is answered by one:
    {"op": "start", "vocabulary": PATH}      -> {"facts": {...}}
    {"op": "measure", "work": PATH, "results": PATH} -> {}
`work` is a JSON list of schemas with texts as token ids, `results` what was measured of each.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
from pathlib import Path
from typing import Any, Protocol

NUM_PASSES = 2  # the first one is cold, the last one warm


class Matcher(Protocol):
    """One way through a grammar."""

    def fill(self) -> None:
        """Fills the mask for the next token: what is measured."""
        ...

    def allows(self, token_id: int) -> bool:
        """The mask that was filled last allows the token."""
        ...

    def accept(self, token_id: int) -> None:
        """Goes on by an allowed token."""
        ...


class MaskLibrary(Protocol):
    """A library that makes masks."""

    def start(self, vocabulary: dict[str, Any]) -> dict[str, Any]:
        """Reads `pieces` (hex), `special`, `eos_id` and `vocab_size`; returns facts."""
        ...

    def compile(self, schema: str) -> Any:
        """A grammar of compact JSON; raises for a schema that is refused."""
        ...

    def matcher(self, grammar: Any) -> Matcher:
        """A matcher at the start of a text, by the cheapest way the library offers."""
        ...


def serve(library: MaskLibrary) -> None:
    """Answers requests until the input ends."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what libraries print goes elsewhere
    held: list[Any] = []  # grammars, so that their memory is seen
    eos_id = 0
    for line in sys.stdin:
        request = json.loads(line)
        answer: dict[str, Any] = {}
        if request["op"] == "start":
            vocabulary = json.loads(Path(request["vocabulary"]).read_text(encoding="utf-8"))
            eos_id = vocabulary["eos_id"]
            answer["facts"] = library.start(vocabulary)
            library.compile('{"type": "boolean"}')  # loads what is loaded late
        else:
            work = json.loads(Path(request["work"]).read_text(encoding="utf-8"))
            before = resident_bytes()
            results = [measure_case(library, case, eos_id, held) for case in work]
            answer["resident_bytes"] = resident_bytes() - before
            Path(request["results"]).write_text(json.dumps(results), encoding="utf-8")
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def measure_case(
    library: MaskLibrary, case: dict[str, Any], eos_id: int, held: list[Any]
) -> dict[str, Any]:
    """Times of one schema in ns, and how its texts fared."""
    gc.collect()
    gc.disable()
    try:
        start = time.perf_counter_ns()
        try:
            grammar = library.compile(case["schema"])
        except BaseException as error:  # some libraries panic
            if isinstance(error, (KeyboardInterrupt, SystemExit)):
                raise
            return {"refused": str(error)[:300]}
        result: dict[str, Any] = {"compile_ns": time.perf_counter_ns() - start}
        held.append(grammar)
        passes, accepted = [], []
        for _ in range(NUM_PASSES):
            times: list[int] = []
            accepted = [follow(library, grammar, ids, eos_id, times) for ids in case["valid"]]
            passes.append(times)
        result["mask_ns"] = passes
        result["valid_accepted"] = accepted
        result["invalid_accepted"] = [
            follow(library, grammar, ids, eos_id, []) for ids in case["invalid"]
        ]
        return result
    finally:
        gc.enable()


def follow(
    library: MaskLibrary, grammar: Any, token_ids: list[int], eos_id: int, times: list[int]
) -> bool:
    """Walks through a text and its end as far as masks allow; appends the time of each mask."""
    try:
        matcher = library.matcher(grammar)
        for token_id in (*token_ids, eos_id):
            start = time.perf_counter_ns()
            matcher.fill()
            times.append(time.perf_counter_ns() - start)
            if not matcher.allows(token_id):
                return False
            if token_id != eos_id:
                matcher.accept(token_id)
    except Exception:  # a limit while matching: the text is not accepted
        return False
    return True


def resident_bytes() -> int:
    """Memory of this process that is in RAM."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
