"""Every exception that Espalier raises on purpose.

EspalierError
  UserInputError (also ValueError)   an argument, file or program that cannot be honoured
    SamplingError                    a sampling parameter out of range or in conflict with another
    PromptError                      an empty or over-long prompt, an id outside the vocabulary
    UnsupportedError                 known, and not offered by this backend, model or version
      MissingBackendError            (ImportError) a backend of the reference that is not there yet
    ModelFileError                   a model file that is missing, broken or of an unknown kind
    ModelNotFoundError               a model name that leads nowhere
    DownloadError                    a download that failed or is not what was expected
    ChatTemplateError                a chat template that is missing or does not render
  CapacityError                      a limit of memory, queue or size was reached
  BackendError                       the engine or a remote service failed
    EngineClosedError                the engine was shut down
    RequestCancelledError            the request was cancelled before it ended
  ProgramError                       a language-model program was used wrongly or failed
    GenerationError                  a generation failed; carries variable and source line
      GenerationTimeoutError         ... because of a timeout (also ProgramTimeoutError)
    ProgramTimeoutError (TimeoutError)  a call, program or batch took longer than its timeout
    UnknownVariableError (KeyError)  a variable that nothing will ever set
    BatchError                       an item of a batch failed; carries its index
    RoleError                        roles opened, nested or closed wrongly
    TraceError (also TypeError)      a program whose course depends on values that are not there yet

A message says what was given, what is allowed and what to do.
"""

from __future__ import annotations

_SHOWN_LENGTH = 200


def shown(value: object) -> str:
    """A value as a message quotes it: its repr, cut where it is long."""
    try:
        text = repr(value)
    except Exception:  # nested too deeply, say: the message is about something else
        text = f"a {type(value).__name__}"
    return text if len(text) <= _SHOWN_LENGTH else f"{text[:_SHOWN_LENGTH]}..."


class EspalierError(Exception):
    """Root of every error that Espalier raises on purpose."""


class UserInputError(EspalierError, ValueError):
    """An argument, file or program that cannot be honoured."""


class SamplingError(UserInputError):
    """A sampling parameter is out of range or contradicts another."""


class PromptError(UserInputError):
    """A prompt is empty, too long for the context, or holds an id outside the vocabulary."""


class UnsupportedError(UserInputError):
    """Something known that this backend, model or version does not offer."""


class MissingBackendError(UnsupportedError, ImportError):
    """A backend that the reference has and that is not there yet was imported."""


class ModelFileError(UserInputError):
    """A model file is missing, truncated, corrupt or of an unknown kind."""


class ModelNotFoundError(UserInputError):
    """A model name is neither an alias, nor a path, nor a name on the hub."""


class DownloadError(EspalierError):
    """A download failed, or what arrived is not what was expected."""


class ChatTemplateError(UserInputError):
    """A chat template is missing or does not render the given messages."""


class CapacityError(EspalierError):
    """A limit of memory, queue length or size was reached."""


class BackendError(EspalierError):
    """The engine or a remote service failed."""


class EngineClosedError(BackendError):
    """The engine was shut down while, or before, the call was made."""


class RequestCancelledError(BackendError):
    """The request was cancelled before it ended."""


class ProgramError(EspalierError):
    """A language-model program was used wrongly or failed."""


class GenerationError(ProgramError):
    """A generation or selection failed; the original error is the `__cause__`.

    Attributes:
        variable: name of the variable that would have received the text, or None.
        location: "file:line" of the call in the user's program, or None.
    """

    def __init__(
        self, message: str, *, variable: str | None = None, location: str | None = None
    ) -> None:
        super().__init__(message)
        self.variable = variable
        self.location = location


class ProgramTimeoutError(ProgramError, TimeoutError):
    """A call, a program or a batch did not end within its timeout."""


class GenerationTimeoutError(GenerationError, ProgramTimeoutError):
    """A generation or selection was ended by a timeout: its own, its program's or its batch's."""


class UnknownVariableError(ProgramError, KeyError):
    """A variable was read that is not set and that nothing submitted will set."""

    def __str__(self) -> str:
        # KeyError would show the repr of the message.
        return str(self.args[0]) if self.args else ""


class BatchError(ProgramError):
    """An item of a batch failed; the original error is the `__cause__`.

    Attributes:
        index: position of the item in the batch, from 0.
    """

    def __init__(self, message: str, *, index: int) -> None:
        super().__init__(message)
        self.index = index


class RoleError(ProgramError):
    """A role block was nested, left open or closed twice."""


class TraceError(ProgramError, TypeError):
    """A program cannot be traced: its course depends on a value that is known only when it runs.

    Attributes:
        location: "file:line" of the line that needs the value, or None.
        graph: what was traced before that line (an espalier.lang.graph.Graph), or None.
    """

    def __init__(self, message: str, *, location: str | None = None) -> None:
        super().__init__(message)
        self.location = location
        self.graph: object = None
