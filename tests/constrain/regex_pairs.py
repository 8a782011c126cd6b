"""Random regular expressions over the whole dialect, each with texts near its language.

For differential tests against `re.fullmatch`: texts are made from the expression itself (they match
but for anchors and flags), by mutating such ones, and at random.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

ALPHABET = "aabbcABC01_ -.\n\tkK\u212as\u017fi\u0130\u0131\xdf\u1e9e\xe9\xc9\u0663\u2028\U0001f600"
MAX_TEXT_CHARS = 8
FEW_TEXT_CHARS = 5  # where there are many repeats
_REPEATS = re.compile(r"[*+{]")
_MAX_NESTED = 1  # repeats in each other, but for `?`: the time of `re` grows exponentially

Maker = Callable[[], str]


@dataclass(frozen=True)
class Part:
    """An expression and what makes a text of it, as if no anchor or flag were there."""

    text: str
    make: Maker
    is_single: bool  # a quantifier after it repeats the whole


@dataclass(frozen=True)
class RegexCase:
    """An expression that Python accepts, and texts to match."""

    regex: str
    texts: tuple[str, ...]


def regex_cases(seed: int, num_regexes: int, num_texts: int) -> Iterator[RegexCase]:
    """Expressions, each with `num_texts` texts; the same ones for the same arguments."""
    source = random.Random(seed)
    while num_regexes:
        part = _with_flags(_Generator(source), source)
        try:
            re.compile(part.text)
        except re.error:
            continue  # an anchor or an empty part that is repeated
        max_chars = MAX_TEXT_CHARS if len(_REPEATS.findall(part.text)) <= 2 else FEW_TEXT_CHARS
        texts = _texts(source, part.make, max_chars, num_texts)
        yield RegexCase(part.text, tuple(texts))
        num_regexes -= 1


def _with_flags(generator: _Generator, source: random.Random) -> Part:
    flags = "".join(flag for flag in "ismax" if source.random() < 0.12)
    generator.is_verbose = "x" in flags
    part = generator.alternation(depth=source.choice((1, 2, 2, 3)), nested=0)
    return Part(f"(?{flags}){part.text}" if flags else part.text, part.make, False)


def _texts(source: random.Random, make: Maker, max_chars: int, count: int) -> Iterator[str]:
    for _ in range(count):
        kind = source.random()
        if kind < 0.15:
            text = "".join(source.choices(ALPHABET, k=source.randrange(max_chars)))
        else:
            text = make()[:max_chars]
            if kind < 0.6:
                text = _mutated(source, text)
        yield text


def _mutated(source: random.Random, text: str) -> str:
    for _ in range(source.choice((1, 1, 2))):
        place = source.randrange(len(text) + 1)
        kind = source.randrange(5)
        if kind == 0:
            text = text[:place] + source.choice(ALPHABET) + text[place:]
        elif kind == 1:
            text = text[:place] + text[place + 1 :]
        elif kind == 2:
            text = text[:place] + source.choice(ALPHABET) + text[place + 1 :]
        elif kind == 3:
            text = text[:place] + text[place:].swapcase()
        else:
            text = text[:place] + "\n" + text[place:]
    return text


class _Generator:
    """Writes expressions and keeps what makes their texts."""

    def __init__(self, source: random.Random) -> None:
        self._source = source
        self._num_names = 0
        self.is_verbose = False

    def alternation(self, depth: int, nested: int) -> Part:
        options = [self._sequence(depth, nested)]
        while self._source.random() < 0.3:
            options.append(self._sequence(depth, nested))
        text = "|".join(option.text for option in options)
        return Part(text, lambda: self._source.choice(options).make(), False)

    def _sequence(self, depth: int, nested: int) -> Part:
        parts = [
            self._quantified(depth, nested) for _ in range(self._source.choice((0, 1, 1, 2, 2, 3)))
        ]
        gap = " " if self.is_verbose and self._source.random() < 0.5 else ""
        text = gap.join(part.text for part in parts)
        return Part(text, lambda: "".join(part.make() for part in parts), False)

    def _quantified(self, depth: int, nested: int) -> Part:
        if self._source.random() < 0.55:
            return self._atom(depth, nested)
        low, high, sign = (0, 1, "?") if nested == _MAX_NESTED else self._quantifier()
        part = self._atom(depth, min(nested + 1, _MAX_NESTED))
        if not part.is_single:
            return part
        lazy = "?" if self._source.random() < 0.15 else ""

        def make() -> str:
            count = self._source.randint(low, low + 2 if high is None else high)
            return "".join(part.make() for _ in range(count))

        return Part(f"{part.text}{sign}{lazy}", make, False)

    def _quantifier(self) -> tuple[int, int | None, str]:
        low, more = self._source.randrange(3), self._source.randrange(3)
        counted = f"{{{low},{low + more}}}" if low else f"{{,{more}}}"
        choices: list[tuple[int, int | None, str]] = [
            (0, None, "*"),
            (1, None, "+"),
            (0, 1, "?"),
            (0, None, "{,}"),
            (low, low, f"{{{low}}}"),
            (low, None, f"{{{low},}}"),
            (low, low + more, counted),
        ]
        return self._source.choice(choices)

    def _atom(self, depth: int, nested: int) -> Part:
        kind = self._source.random()
        if depth and kind < 0.3:
            return self._group(depth - 1, nested)
        if kind < 0.4:
            anchor = self._source.choice(("^", "$", "^", "$", r"\A", r"\Z"))
            return Part(anchor, lambda: "", False)
        if kind < 0.5:
            return self._category()
        if kind < 0.65:
            return self._class()
        if kind < 0.7:
            return Part(".", lambda: self._source.choice(ALPHABET), True)
        character = self._source.choice(ALPHABET)
        return Part(self._literal(character), lambda: character, True)

    def _group(self, depth: int, nested: int) -> Part:
        self._num_names += 1
        starts = ["(", "(?:", "(?:", f"(?P<n{self._num_names}>", "(?i:", "(?s:", "(?m:", "(?a:"]
        starts += ["(?-i:", "(?i-s:", "(?u:", "(?-m:", "(?#note)(", "(?ms:"]
        inner = self.alternation(depth, nested)
        return Part(f"{self._source.choice(starts)}{inner.text})", inner.make, True)

    def _category(self) -> Part:
        members = {"d": "01\u0663", "w": "aB_\xe9\u0663", "s": " \n\t\u2028"}
        letter = self._source.choice("dws")
        if self._source.random() < 0.25:
            return Part(f"\\{letter.upper()}", lambda: self._source.choice(ALPHABET), True)
        return Part(f"\\{letter}", lambda: self._source.choice(members[letter]), True)

    def _class(self) -> Part:
        members: list[str] = []
        written = ""
        for _ in range(self._source.choice((1, 1, 2, 3))):
            kind = self._source.random()
            if kind < 0.2:
                category = self._category()
                written += category.text
                members.append(category.make())
            elif kind < 0.45:
                low, high = sorted(self._source.choices(ALPHABET, k=2))
                written += f"{self._in_class(low)}-{self._in_class(high)}"
                members += [low, high]
            else:
                member = self._source.choice(ALPHABET)
                written += self._in_class(member)
                members.append(member)
        if self._source.random() < 0.1:
            written += "-"
        if self._source.random() < 0.3:
            return Part(f"[^{written}]", lambda: self._source.choice(ALPHABET), True)
        return Part(f"[{written}]", lambda: self._source.choice(members), True)

    def _literal(self, character: str) -> str:
        if self._source.random() < 0.15:
            return self._escaped(character)
        if character in ". \t\n" or not character.isascii():
            if character == "\n" and not self.is_verbose:
                return self._source.choice(("\n", r"\n"))
            return re.escape(character)
        return character

    def _in_class(self, character: str) -> str:
        if character == "-" or self._source.random() < 0.15:
            return self._escaped(character)
        return character

    def _escaped(self, character: str) -> str:
        code = ord(character)
        forms = [f"\\U{code:08x}"]
        if code <= 0xFFFF:
            forms.append(f"\\u{code:04x}")
        if code <= 0xFF:
            forms += [f"\\x{code:02X}", f"\\{code:03o}"]
        if character in "\n\t":
            forms.append({"\n": r"\n", "\t": r"\t"}[character])
        return self._source.choice(forms)
