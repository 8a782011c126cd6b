"""`espalier generate`: continues one prompt, streaming to standard output."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from espalier.cli.engine_choice import EngineChoice, LazyEngine
from espalier.cli.failure import ends_with_status
from espalier.cli.form_choice import FormChoice
from espalier.cli.options import with_options
from espalier.cli.report import check_output_path
from espalier.cli.reporting import reporting
from espalier.cli.sampling_choice import SamplingChoice
from espalier.errors import UserInputError

if TYPE_CHECKING:
    from espalier.lang.state import ProgramState

PromptArgument = Annotated[
    str, typer.Argument(metavar="PROMPT", help="The prompt; - reads it from standard input.")
]
AsChatOption = Annotated[
    bool,
    typer.Option("--chat", help="Ask it as a user's message, in the model's chat template."),
]
SamplesOption = Annotated[
    int | None, typer.Option("--n", "-n", min=1, metavar="N", help="Samples to draw.")
]
MinNewTokensOption = Annotated[
    int | None, typer.Option(min=0, metavar="N", help="Fewest tokens of an answer.")
]
StopTokenOption = Annotated[
    list[int] | None,
    typer.Option(
        "--stop-token-id",
        metavar="N",
        help="Token that ends an answer; may be given several times.",
    ),
]
ReportOption = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Write the report as JSON too.")
]


@ends_with_status
@with_options(form=FormChoice, engine=EngineChoice, sampling=SamplingChoice)
def generate(
    prompt: PromptArgument,
    *,
    as_chat: AsChatOption = False,
    samples: SamplesOption = None,
    min_new_tokens: MinNewTokensOption = None,
    stop_token_ids: StopTokenOption = None,
    report: ReportOption = None,
    form: FormChoice,
    engine: EngineChoice,
    sampling: SamplingChoice,
) -> None:
    """Continue a prompt. The text streams to standard output, a report ends it."""
    text = _read_stdin() if prompt == "-" else prompt
    own = {"min_tokens": min_new_tokens, "stop_token_ids": stop_token_ids or None, "n": samples}
    given = {name: value for name, value in own.items() if value is not None} | form.given()
    check_output_path("--report", report)
    lazy = LazyEngine(engine)
    with reporting(lazy, report):
        _print_answer(_start(text, sampling.given(), given, as_chat=as_chat), samples or 1)


def _read_stdin() -> str:
    try:
        return sys.stdin.read()
    except UnicodeDecodeError as error:
        raise UserInputError(f"standard input is not text: {error}.") from error


def _start(
    prompt: str, defaults: Mapping[str, Any], options: Mapping[str, Any], *, as_chat: bool
) -> ProgramState:
    from espalier.lang.api import assistant, gen, user
    from espalier.lang.function import function

    def body(s: ProgramState) -> None:
        answer = gen("answer", **options)
        if as_chat:
            s += user(prompt)
            s += assistant(answer)
        else:
            s += prompt
            s += answer

    return function(body).run(stream=True, **defaults)


def _print_answer(state: ProgramState, num_samples: int) -> None:
    try:
        if num_samples == 1:
            for piece in state.text_iter("answer"):
                print(piece, end="", flush=True)
            print(flush=True)
        else:
            for number, sample in enumerate(state.text("answer"), start=1):
                print(f"[{number}] {sample}", flush=True)
    except KeyboardInterrupt:
        state.cancel()
        print(flush=True)
        raise
