"""Values for schemas of the bench's own kind: random ones that are valid, and damaged ones.

Only the keywords that schema_templates.py and the function signatures use are known here; whether a
value is valid is decided by the `jsonschema` package, never by this module.
"""

from __future__ import annotations

import copy
import random
import re
from collections.abc import Callable
from typing import Any

Schema = dict[str, Any]

_WORDS = [
    "amber",
    "bridge",
    "copper",
    "delta",
    "ember",
    "forest",
    "garden",
    "harbour",
    "island",
    "juniper",
    "kettle",
    "lantern",
    "meadow",
    "north",
    "orchard",
    "pepper",
    "quartz",
    "river",
    "silver",
    "timber",
    "uncle",
    "valley",
    "window",
    "yellow",
    "zebra",
    "café",
    "naïve",
    "straße",
]
_MAX_DEPTH = 4  # of references


class InstanceMaker:
    """Random values, the same for the same seed."""

    def __init__(self, schema: Schema, seed: int) -> None:
        self._schema = schema
        self._random = random.Random(seed)

    def make(self) -> Any:
        """A value that the schema should allow."""
        return self._value(self._schema, 0)

    def damage(self, value: Any) -> Any:
        """A copy of a value with one place changed, more often than not against the schema."""
        whole = copy.deepcopy({"root": value})
        places: list[tuple[Any, Any]] = [(whole, "root")]
        for container, key in places:
            inner = container[key]
            keys = inner if isinstance(inner, dict) else range(len(inner) if _is_list(inner) else 0)
            places += [(inner, key) for key in keys]
        container, key = self._random.choice(places)
        self._spoil(container, key)
        return whole["root"]

    def _spoil(self, container: Any, key: Any) -> None:
        value = container[key]
        choice = self._random.randrange(4)
        if isinstance(value, dict) and value and choice < 2:
            if choice == 0:
                del value[self._random.choice(list(value))]
            else:
                value["unexpected"] = 1
        elif _is_list(value) and choice < 2:
            container[key] = value * 7 if choice else []
        elif isinstance(value, str) and choice < 3:
            container[key] = [value + "?" * 300, value[:-1], f"~{value}"][choice]
        elif isinstance(value, (int, float)) and not isinstance(value, bool) and choice < 3:
            container[key] = [-value - 1_000_000, value * 1e9 + 0.5, str(value)][choice]
        else:
            container[key] = self._random.choice([None, "", 17.5, [], {}, True])

    def _value(self, schema: Any, depth: int) -> Any:
        if schema is True or schema == {}:
            return self._words(1)
        if "$ref" in schema:
            name = schema["$ref"].removeprefix("#/$defs/")
            return self._value(self._schema["$defs"][name], depth + 1)
        if "const" in schema:
            return schema["const"]
        if "enum" in schema:
            return self._random.choice(schema["enum"])
        if "anyOf" in schema:
            count = 1 if depth > _MAX_DEPTH else len(schema["anyOf"])
            return self._value(self._random.choice(schema["anyOf"][:count]), depth)
        kind = schema.get("type", "string")
        makers: dict[str, Callable[[Schema, int], Any]] = {
            "object": self._object,
            "array": self._array,
            "string": self._string,
        }
        if kind in makers:
            return makers[kind](schema, depth)
        if kind == "boolean":
            return self._random.random() < 0.5
        if kind == "null":
            return None
        low, high = schema.get("minimum", -1000), schema.get("maximum", 1000)
        if kind == "integer":
            return self._random.randint(low, high)
        return round(self._random.uniform(low, high), self._random.randrange(4))

    def _object(self, schema: Schema, depth: int) -> dict[str, Any]:
        required = schema.get("required", [])
        made = {
            name: self._value(member, depth)
            for name, member in schema.get("properties", {}).items()
            if name in required or (self._random.random() < 0.6 and depth <= _MAX_DEPTH)
        }
        further = schema.get("additionalProperties", False)
        if isinstance(further, dict):
            for _ in range(self._random.randrange(3)):
                made[f"x_{self._random.choice(_WORDS)}"] = self._value(further, depth)
        return made

    def _array(self, schema: Schema, depth: int) -> list[Any]:
        low, high = schema.get("minItems", 0), schema.get("maxItems", 4)
        count = low if depth > _MAX_DEPTH else self._random.randint(low, min(high, low + 3))
        return [self._value(schema.get("items", True), depth) for _ in range(count)]

    def _string(self, schema: Schema, depth: int) -> str:
        if "format" in schema:
            return self._formatted(schema["format"])
        if "pattern" in schema:
            return self._matching(schema["pattern"])
        low, high = schema.get("minLength", 0), schema.get("maxLength", 40)
        words: str = self._words(self._random.randint(1, 6))
        length = max(low, self._random.randint(low, high))
        text: str = (words * (low // len(words) + 1))[:length]
        return text

    def _words(self, count: int) -> str:
        return " ".join(self._random.choice(_WORDS) for _ in range(count))

    def _formatted(self, name: str) -> str:
        digits = f"{self._random.getrandbits(128):032x}"
        day = f"20{self._random.randrange(10, 30)}-0{self._random.randint(1, 9)}-1{digits[0]}"
        day = re.sub("[a-f]", "5", day)
        return {
            "uuid": "-".join((digits[:8], digits[8:12], f"4{digits[12:15]}", "a123", digits[20:])),
            "date": day,
            "date-time": f"{day}T0{self._random.randrange(10)}:3{self._random.randrange(10)}:00Z",
            "email": f"{self._words(1).encode('ascii', 'ignore').decode()}@example.org",
        }[name]

    def _matching(self, regex: str) -> str:
        """A text of a pattern made of classes, counts, groups and plain characters."""
        return _Sampler(regex.removeprefix("^").removesuffix("$"), self._random).sample()


class _Sampler:
    """Random texts of the patterns in schema_templates.py."""

    _TOKEN = re.compile(r"\[([^\]]+)\]|\\(.)|([()|])|(.)")
    _COUNT = re.compile(r"\{(\d+)(?:,(\d+))?\}|([?*+])")

    def __init__(self, regex: str, source: random.Random) -> None:
        self._regex = regex
        self._random = source
        self._at = 0

    def sample(self) -> str:
        made = ""
        while self._at < len(self._regex) and self._regex[self._at] != ")":
            made += self._piece()
        return made

    def _piece(self) -> str:
        token = self._TOKEN.match(self._regex, self._at)
        assert token is not None
        start, self._at = self._at, token.end()
        if token[3] == "(":
            once = self.sample()
            self._at += 1
        else:
            once = self._character(token)
        low, high = self._counts()
        count = self._random.randint(low, high)
        after, made = self._at, once if count else ""
        for _ in range(count - 1):
            self._at = start
            made += self._again(token)
        self._at = after
        return made

    def _again(self, token: re.Match[str]) -> str:
        if token[3] != "(":
            return self._character(token)
        self._at += 1
        return self.sample()

    def _character(self, token: re.Match[str]) -> str:
        if token[1] is None:
            return token[2] or token[4]
        letters: list[str] = []
        for low, high in re.findall("(.)-(.)", token[1]):
            letters += map(chr, range(ord(low), ord(high) + 1))
        letters += re.sub(".-.", "", token[1])
        return self._random.choice(letters)

    def _counts(self) -> tuple[int, int]:
        found = self._COUNT.match(self._regex, self._at)
        if found is None:
            return 1, 1
        self._at = found.end()
        if found[3]:
            return {"?": (0, 1), "*": (0, 3), "+": (1, 3)}[found[3]]
        low = int(found[1])
        return low, min(int(found[2] or low), low + 4)


def _is_list(value: object) -> bool:
    return isinstance(value, list)
