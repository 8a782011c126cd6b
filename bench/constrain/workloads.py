"""Prompts and forms of the paper's JSON workloads (section 7.2), and of twenty JSON schemas.

"character": a short prompt and one regex of eleven fields, one of them nested. "city": facts from a
long page, which eight requests share. "schemas": records such as services exchange. All text is
made here.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from bench.constrain.record_schemas import RECORD_SCHEMAS


@dataclass(frozen=True)
class Work:
    """One prompt, and sampling parameters that hold its form ("regex" or "json_schema")."""

    prompt: str
    form: dict[str, Any]
    max_new_tokens: int


def works(kind: str, count: int) -> list[Work]:
    """The first `count` pieces of work of a kind."""
    makers = {"character": _character, "city": _city, "schemas": _schema}
    return [makers[kind](index) for index in range(count)]


KINDS = ("character", "city", "schemas")

_WORDS = r"[\w\d\s]{1,16}"
CHARACTER_REGEX = (
    r"\{\n"
    rf'    "name": "{_WORDS}",\n'
    r'    "kind": "(Human|Elf|Dwarf|Orc|Halfling)",\n'
    r'    "birth": "(Noble-born|Free-born|Bond-born)",\n'
    r'    "occupation": "(smith|healer|guard|court scribe|travelling trader|archive keeper)",\n'
    r'    "sword": \{\n'
    rf'        "metal": "{_WORDS}",\n'
    rf'        "jewel": "{_WORDS}",\n'
    r'        "length in inches": [0-9]{1,2}\.[0-9]{0,2}\n'
    r"    \},\n"
    r'    "state of health": "(Alive|Deceased)",\n'
    rf'    "heraldic beast": "{_WORDS}",\n'
    rf'    "deepest fear": "{_WORDS}"\n'
    r"\}"
)
_FIRST = [
    "Aldric",
    "Berta",
    "Cedran",
    "Dorwen",
    "Elin",
    "Falko",
    "Gerda",
    "Harun",
    "Isolde",
    "Jorun",
    "Kelda",
    "Ludger",
]
_LAST = ["Ashdown", "Birkhill", "Coldwater", "Dunmere", "Eastfold", "Fenwick", "Greywood", "Hollin"]


def _character(index: int) -> Work:
    name = f"{_FIRST[index % len(_FIRST)]} {_LAST[index // len(_FIRST) % len(_LAST)]}"
    prompt = (
        f"{name} is a character of a fantasy novel. Please fill in this card about the character.\n"
    )
    return Work(prompt, {"regex": CHARACTER_REGEX}, 256)


_NUMBER = r"-?[0-9]{1,3}\.[0-9]{1,2}"
_NAME = r"[\w ]{1,24}"
CITY_REGEX = (
    r"\{\n"
    rf'  "name": "{_NAME}",\n'
    rf'  "country": "{_NAME}",\n'
    rf'  "latitude": {_NUMBER},\n'
    r'  "population": [0-9]{1,9},\n'
    rf'  "top 3 landmarks": \["{_NAME}", "{_NAME}", "{_NAME}"\]\n'
    r"\}"
)
_PLACES = "old harbour|cathedral|market square|city wall|opera house|botanical garden|clock tower"
_READERS = (
    "a pupil",
    "a traveller",
    "a historian",
    "an architect",
    "a journalist",
    "a librarian",
    "a student",
    "a mayor",
)
_LANDS = ("Norvania", "Estmark", "Caldonia", "Tirrenia")


def city_page(index: int, num_sentences: int = 42) -> str:
    """A page about a city that is made up, about 1,400 tokens."""
    rng = random.Random(index)
    name, country = f"{_LAST[index % len(_LAST)]} {index}", _LANDS[index % len(_LANDS)]
    lines = [
        f"{name} is a city in {country}, at {rng.uniform(-60, 60):.2f} degrees of latitude, with "
        f"{rng.randrange(20_000, 9_000_000)} inhabitants."
    ]
    places = _PLACES.split("|")
    for number in range(num_sentences):
        place = rng.choice(places)
        year = rng.randrange(1200, 2000)
        lines.append(
            f"The {place} was built in {year} and holds {rng.randrange(50, 5000)} people; in "
            f"chapter {number + 1} of its chronicle a fire is told of."
        )
    return " ".join(lines)


def _city(index: int) -> Work:
    reader = _READERS[index % len(_READERS)]
    prompt = (
        f"{city_page(index // len(_READERS))}\n\n"
        f"Give the facts about the city of this page to {reader}, in JSON.\n"
    )
    return Work(prompt, {"regex": CITY_REGEX}, 256)


def _schema(index: int) -> Work:
    name, schema = RECORD_SCHEMAS[index % len(RECORD_SCHEMAS)]
    prompt = f"Here is an example number {index + 1} of {name} as JSON:\n"
    return Work(prompt, {"json_schema": schema}, 256)
