"""Space between the parts of JSON text, as `json.dumps` puts it."""

from __future__ import annotations

from espalier.constraint import JsonWhitespace


class Layout:
    """One kind of whitespace. `depth`: how many arrays and objects are around."""

    def __init__(self, whitespace: JsonWhitespace) -> None:
        self.is_pretty = whitespace is JsonWhitespace.PRETTY
        self.colon = ":" if whitespace is JsonWhitespace.COMPACT else ": "
        self._comma = ", " if whitespace is JsonWhitespace.SPACED else ","

    def opening(self, depth: int) -> str:
        """What stands between an opening bracket and the first part."""
        return "\n" + "  " * (depth + 1) if self.is_pretty else ""

    def separator(self, depth: int) -> str:
        """What stands between two parts."""
        return self._comma + self.opening(depth)

    def closing(self, depth: int) -> str:
        """What stands between the last part and the closing bracket."""
        return "\n" + "  " * depth if self.is_pretty else ""
