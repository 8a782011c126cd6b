"""`espalier chat`: a conversation in the terminal, or of the lines of standard input."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any

import typer

from espalier.cli.chat_session import ChatSession
from espalier.cli.engine_choice import EngineChoice, LazyEngine
from espalier.cli.failure import ends_with_status, print_error
from espalier.cli.options import with_options
from espalier.cli.report import check_output_path
from espalier.cli.reporting import Clock, reporting
from espalier.cli.sampling_choice import SamplingChoice
from espalier.errors import EspalierError

SystemOption = Annotated[str | None, typer.Option(metavar="TEXT", help="The system message.")]
ReportOption = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Write the report as JSON too.")
]
DEFAULT_MAX_NEW_TOKENS = 512

_HELP = """/exit          leave (or ^D)
/reset         forget the conversation
/system TEXT   set the system message and start anew
/help          show this
^C stops an answer; what has come so far stays in the conversation."""


@ends_with_status
@with_options(engine=EngineChoice, sampling=SamplingChoice)
def chat(
    *,
    system: SystemOption = None,
    report: ReportOption = None,
    engine: EngineChoice,
    sampling: SamplingChoice,
) -> None:
    """Talk with a model. Earlier turns are reused from the cache.

    Works in a terminal, and with one message a line from a pipe. /help shows the commands.
    """
    check_output_path("--report", report)
    lazy = LazyEngine(engine)
    given = {"max_new_tokens": DEFAULT_MAX_NEW_TOKENS, **sampling.given()}
    with reporting(lazy, report) as clock:
        lazy.engine()  # a model that is missing is told before the first message
        Chat(ChatSession(given, system), clock).run()


class Chat:
    """Reads messages and commands, prints answers."""

    def __init__(self, session: ChatSession, clock: Clock) -> None:
        self._session = session
        self._clock = clock
        self._is_terminal = sys.stdin.isatty()
        self._is_open = True

    def run(self) -> None:
        """Goes on until /exit or the end of the input."""
        if self._is_terminal:
            _enable_line_editing()
            _tell("Type a message; /help shows the commands.")
        while self._is_open:
            line = self._read()
            if line is None:
                break
            if line.startswith("/"):
                self._obey(line)
            elif line:
                self._answer(line)

    def _read(self) -> str | None:
        try:
            line = input("> " if self._is_terminal else "")
        except EOFError:
            if self._is_terminal:
                print()
            return None
        except KeyboardInterrupt:
            if not self._is_terminal:
                raise
            print("\n(/exit leaves)")
            return ""
        return line.strip()

    def _obey(self, line: str) -> None:
        command, _, text = line.partition(" ")
        text = text.strip()
        if command in ("/exit", "/quit") and not text:
            self._is_open = False
        elif command == "/reset" and not text:
            self._session.reset()
            _tell("The conversation is forgotten.")
        elif command == "/system" and text:
            self._session.reset(text)
            _tell("The system message is set; the conversation starts anew.")
        elif command == "/help":
            _tell(_HELP)
        else:
            print_error(f"{line!r} is no command; /help shows them.")

    def _answer(self, text: str) -> None:
        started = time.perf_counter()
        try:
            self._print_answer(text)
            took_s = time.perf_counter() - started
            _tell(turn_line(self._session.last_meta_info(), took_s))
        except KeyboardInterrupt:
            _tell("(stopped)")
        except EspalierError as error:
            print_error(str(error))
        finally:
            self._clock.add(time.perf_counter() - started)

    def _print_answer(self, text: str) -> None:
        try:
            with closing(self._session.ask(text)) as pieces:
                for piece in pieces:
                    print(piece, end="", flush=True)
        finally:
            print(flush=True)


def turn_line(meta: Mapping[str, Any], took_s: float) -> str:
    """What a turn cost, in one line."""
    prompt, cached = meta.get("prompt_tokens") or 0, meta.get("cached_tokens") or 0
    generated = meta.get("completion_tokens") or 0
    return (
        f"[{cached:,} of {prompt:,} prompt tokens cached, {generated:,} generated, "
        f"{generated / took_s:,.0f} tokens/s]"
    )


def _tell(text: str) -> None:
    """Prints beside the conversation: on standard error, dim on a terminal."""
    if sys.stderr.isatty():
        text = "\n".join(f"\x1b[2m{line}\x1b[0m" for line in text.splitlines())
    print(text, file=sys.stderr, flush=True)


def _enable_line_editing() -> None:
    try:
        import readline  # noqa: F401 - importing it gives input() history and editing
    except ImportError:
        return
