"""Are outputs valid and canonical? Generations at temperature 1, judged by independent validators.

    python bench/constrain/validity.py --outputs 2000

Kinds of work take turns (bench/constrain/workloads.py). An output that ended by itself is judged by
Python's `re` and the jsonschema package; one that met its length limit is the beginning of such a
text, which is not judged. It is canonical where the tokenizer gives its tokens for its text.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path
from typing import Any

if __package__ in (None, ""):
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from bench.constrain.json_decoding import is_canonical
from bench.constrain.judgement import is_valid
from bench.constrain.workloads import works
from bench.engine.options import positive
from bench.report import print_report

from espalier.runtime import Engine

KINDS = ("character", "schemas", "schemas", "city")


def main() -> None:
    """Prints counts, and the outputs that are not as they should be."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--outputs", type=positive, default=2000)
    parser.add_argument("--temperature", type=float, default=1.0)
    parser.add_argument("--new-tokens", type=positive, default=512)
    parser.add_argument("--masks", action="store_true", help="by masks alone, nothing canonical")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    each = -(-options.outputs // len(KINDS))
    todo = [work for kind in dict.fromkeys(KINDS) for work in works(kind, each * KINDS.count(kind))]
    todo = todo[: options.outputs]
    with Engine(options.model, canonical=not options.masks) as engine:
        params: list[dict[str, Any]] = [
            {
                "temperature": options.temperature,
                "max_new_tokens": options.new_tokens,
                "sampling_seed": number,
                **work.form,
            }
            for number, work in enumerate(todo)
        ]
        answers = engine.generate([work.prompt for work in todo], params)
        counts: Counter[str] = Counter()
        for work, answer in zip(todo, answers, strict=True):
            reason = answer["meta_info"]["finish_reason"]["type"]
            counts[f"ended by {reason}"] += 1
            counts["tokens"] += answer["meta_info"]["completion_tokens"]
            counts["forced tokens"] += answer["meta_info"]["forced_tokens"]
            if reason == "stop":
                counts["valid"] += is_valid(work, answer["text"])
                if not is_valid(work, answer["text"]):
                    print(f"not valid: {answer['text']!r}", file=sys.stderr)
            canonical = is_canonical(engine, answer)
            counts["canonical"] += canonical
            if not canonical and not options.masks:
                print(f"not canonical ({reason}): {answer['text']!r}", file=sys.stderr)
    print_report({"outputs": len(todo), **dict(counts)}, options.json)


if __name__ == "__main__":
    main()
