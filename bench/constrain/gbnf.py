"""The regexes of the workloads as grammars of llama.cpp, which reads no regex.

`\\w`, `\\d` and `\\s` are those of ASCII here: few ranges, which is to llama.cpp's advantage.
"""

from __future__ import annotations

import json
from typing import Any

from bench.constrain.workloads import CHARACTER_REGEX, CITY_REGEX, Work

_WORDS = r"[A-Za-z0-9_ \t\n\r\x0B\x0C]{1,16}"
_NAME = "[A-Za-z0-9_ ]{1,24}"
_NUMBER = '"-"? [0-9]{1,3} "." [0-9]{1,2}'


def _literal(text: str) -> str:
    """Text in quotes, escaped as both JSON and these grammars do it."""
    return json.dumps(text)


def _one_of(*values: str) -> str:
    return f"({' | '.join(map(_literal, values))})"


def _sequence(*parts: str) -> str:
    return f"root ::= {' '.join(parts)}\n"


CHARACTER_GBNF = (
    _sequence(
        _literal('{\n    "name": "'),
        "words",
        _literal('",\n    "kind": "'),
        _one_of("Human", "Elf", "Dwarf", "Orc", "Halfling"),
        _literal('",\n    "birth": "'),
        _one_of("Noble-born", "Free-born", "Bond-born"),
        _literal('",\n    "occupation": "'),
        _one_of("smith", "healer", "guard", "court scribe", "travelling trader", "archive keeper"),
        _literal('",\n    "sword": {\n        "metal": "'),
        "words",
        _literal('",\n        "jewel": "'),
        "words",
        _literal('",\n        "length in inches": '),
        '[0-9]{1,2} "." [0-9]{0,2}',
        _literal('\n    },\n    "state of health": "'),
        _one_of("Alive", "Deceased"),
        _literal('",\n    "heraldic beast": "'),
        "words",
        _literal('",\n    "deepest fear": "'),
        "words",
        _literal('"\n}'),
    )
    + f"words ::= {_WORDS}\n"
)
CITY_GBNF = (
    _sequence(
        _literal('{\n  "name": "'),
        "name",
        _literal('",\n  "country": "'),
        "name",
        _literal('",\n  "latitude": '),
        _NUMBER,
        _literal(',\n  "population": '),
        "[0-9]{1,9}",
        _literal(',\n  "top 3 landmarks": ["'),
        "name",
        _literal('", "'),
        "name",
        _literal('", "'),
        "name",
        _literal('"]\n}'),
    )
    + f"name ::= {_NAME}\n"
)
_GBNF_OF_REGEX = {CHARACTER_REGEX: CHARACTER_GBNF, CITY_REGEX: CITY_GBNF}


def notations(work: Work) -> dict[str, Any]:
    """The form of a piece of work in every notation that there is for it."""
    regex = work.form.get("regex")
    return work.form if regex is None else {**work.form, "gbnf": _GBNF_OF_REGEX[regex]}
