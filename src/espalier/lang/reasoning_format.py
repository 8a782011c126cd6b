"""How models mark the reasoning that they write before an answer, and text split by these marks.

Pure text; it must not know calls or states.
"""

from __future__ import annotations

from dataclasses import dataclass

from espalier.errors import UserInputError, shown


@dataclass(frozen=True, slots=True)
class ReasoningMarks:
    """The marks of a kind of model.

    Attributes:
        opening, closing: text before and after the reasoning.
        gap: text that the model writes between the closing mark and its answer.
        is_open: the reasoning begins at once, as the prompt's template wrote the opening mark;
            the model may repeat it. Otherwise there is reasoning only where the text begins
            with the mark.
    """

    opening: str
    closing: str
    gap: str
    is_open: bool = False


_THINK = ReasoningMarks("<think>", "</think>", "\n\n")
_THINK_OPEN = ReasoningMarks("<think>", "</think>", "\n\n", is_open=True)
MODEL_TYPES = {
    "deepseek-r1": _THINK_OPEN,
    "deepseek-v3": _THINK,
    "glm45": ReasoningMarks("<think>", "</think>", "\n"),
    "kimi": ReasoningMarks("◁think▷", "◁/think▷", ""),
    "qwen3": _THINK,
    "qwen3-thinking": _THINK_OPEN,
    "step3": _THINK_OPEN,
}


def marks_of(model_type: str | None) -> ReasoningMarks:
    """The marks of a model type; raises UserInputError for one that is not known."""
    marks = MODEL_TYPES.get(str(model_type).lower())
    if marks is None:
        raise UserInputError(
            f"separate_reasoning has model_type {shown(model_type)}; "
            f"{', '.join(sorted(MODEL_TYPES))} are allowed."
        )
    return marks


class ReasoningSplitter:
    """Splits text that comes piece by piece into reasoning and answer.

    Space around either is left out, and so is what may still turn out to be a mark or such space;
    the pieces of each, joined, are the reasoning and the answer of the whole text.
    """

    def __init__(self, marks: ReasoningMarks) -> None:
        self._marks = marks
        self._held = ""  # not given out yet
        self._state = "start"  # then "reasoning" or "answer"
        self._parts = {"reasoning": "", "answer": ""}

    @property
    def is_answering(self) -> bool:
        """True once it is certain that the text to come belongs to the answer."""
        return self._state == "answer"

    @property
    def reasoning(self) -> str:
        """The reasoning that was given out."""
        return self._parts["reasoning"]

    @property
    def answer(self) -> str:
        """The answer that was given out."""
        return self._parts["answer"]

    def push(self, text: str) -> tuple[str, str]:
        """New pieces of the reasoning and of the answer."""
        self._held += text
        reasoning = ""
        if self._state == "start":
            self._start()
        if self._state == "reasoning":
            reasoning = self._reason()
        return reasoning, self._give("answer", 0) if self._state == "answer" else ""

    def end(self) -> tuple[str, str]:
        """The last pieces, once the text has ended."""
        if self._state == "start":
            self._state = "reasoning" if self._marks.is_open else "answer"
        part, self._state = self._state, "answer"
        last = self._give(part, 0)
        self._held = ""
        return (last, "") if part == "reasoning" else ("", last)

    def _start(self) -> None:
        marks, begun = self._marks, self._held.lstrip()
        if begun.startswith(marks.opening):
            self._held, self._state = begun[len(marks.opening) :], "reasoning"
        elif not marks.opening.startswith(begun):
            self._state = "reasoning" if marks.is_open else "answer"

    def _reason(self) -> str:
        reasoning, mark, rest = self._held.partition(self._marks.closing)
        if not mark:
            return self._give("reasoning", length_of_begun(self._held, self._marks.closing))
        self._held = reasoning
        piece = self._give("reasoning", 0)
        self._held, self._state = rest, "answer"
        return piece

    def _give(self, part: str, num_withheld: int) -> str:
        """Gives out what is held but for its last characters and the space at its ends."""
        text = self._held if self._parts[part] else self._held.lstrip()
        end = len(text[: len(text) - num_withheld].rstrip())
        piece, self._held = text[:end], text[end:]
        self._parts[part] += piece
        return piece


def length_of_begun(text: str, mark: str) -> int:
    """Length of the longest end of a text that a mark, or the whole of it, begins with."""
    for length in range(min(len(mark), len(text)), 0, -1):
        if mark.startswith(text[-length:]):
            return length
    return 0


class ReasoningParser:
    """Splits whole texts of a model type; the reference's name for it."""

    def __init__(self, model_type: str | None = None) -> None:
        self.marks = marks_of(model_type)

    def parse_non_stream(self, full_text: str) -> tuple[str, str]:
        """The reasoning and the answer."""
        splitter = ReasoningSplitter(self.marks)
        splitter.push(full_text)
        splitter.end()
        return splitter.reasoning, splitter.answer
