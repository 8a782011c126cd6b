"""The sampling options that the commands share."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from espalier.cli.options import option


@dataclass(frozen=True, slots=True)
class SamplingChoice:
    """What the user chose of sampling; None leaves a value to the program or its default."""

    max_new_tokens: int | None = option("Most tokens of an answer.", metavar="N", min=0)
    temperature: float | None = option(
        "0 takes the most probable token each time.", metavar="X", min=0.0
    )
    top_p: float | None = option("Share of probability to sample from.", metavar="X")
    top_k: int | None = option("Number of most probable tokens to sample from.", metavar="N")
    min_p: float | None = option("Least probability, as a share of the greatest.", metavar="X")
    frequency_penalty: float | None = option("Penalty for each time a token has come.", metavar="X")
    presence_penalty: float | None = option("Penalty for a token that has come.", metavar="X")
    repetition_penalty: float | None = option("Factor against tokens that have come.", metavar="X")
    stop: list[str] | None = option(  # noqa: RUF009 - option() makes a field
        "Text that ends an answer; may be given several times.", metavar="TEXT"
    )
    stop_regex: list[str] | None = option(  # noqa: RUF009 - option() makes a field
        "Expression whose match ends an answer; may be given several times.", metavar="REGEX"
    )
    seed: int | None = option("Makes sampling repeat itself.", metavar="N")
    ignore_eos: bool | None = option("Go on past the model's end token.", flag="--ignore-eos")

    def given(self) -> dict[str, Any]:
        """The values that were chosen, by the names that `run` of a program takes."""
        values = asdict(self)
        values.update(stop=self.stop or None, stop_regex=self.stop_regex or None)
        return {name: value for name, value in values.items() if value is not None}
