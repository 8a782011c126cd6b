"""Running a Python file as `python FILE.py` would, inside this process."""

from __future__ import annotations

import io
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, TracebackType

from espalier.cli.failure import FAILED, INTERRUPTED, print_error

IsTold = Callable[[BaseException], bool]


def run_script(file: Path, arguments: list[str], is_told: IsTold) -> int:
    """Runs the file as `__main__` and returns its exit status.

    `sys.argv` and `sys.path[0]` are those that Python would set, an exception is shown as Python
    would show it, and threads that are not daemons are waited for. An exception that `is_told`
    is no fault of the script: one line says it.
    """
    sys.argv = [str(file), *arguments]
    try:
        execute(file, as_main_module(file))
        _join_threads()
    except SystemExit as leaving:
        return _status_of(leaving)
    except KeyboardInterrupt:
        print_error("interrupted.")
        return INTERRUPTED
    except BaseException as error:
        if is_told(error):
            print_error(with_user_line(error, file))
        else:
            print_user_traceback(error, file)
        return FAILED
    return 0


def execute(file: Path, module: ModuleType) -> None:
    """Runs the file's code in the module; raises what it raises."""
    exec(compile(_source(file), str(file), "exec"), module.__dict__)


def as_main_module(file: Path, name: str = "__main__") -> ModuleType:
    """A fresh module for the file, in `sys.modules`; its folder is first on `sys.path`."""
    module = ModuleType(name)
    module.__file__ = str(file)
    module.__dict__["__builtins__"] = __builtins__
    sys.modules[name] = module
    sys.path.insert(0, str(file.resolve().parent))
    return module


def print_user_traceback(error: BaseException, file: Path) -> None:
    """Prints the traceback from the file's own first line on, as Python would."""
    trimmed = _from_file(error.__traceback__, str(file))
    if isinstance(error, SyntaxError) and trimmed is None:
        traceback.print_exception(type(error), error, None)
    else:
        traceback.print_exception(type(error), error, trimmed or error.__traceback__)


def with_user_line(error: BaseException, file: Path) -> str:
    """The error's message, and the line of the file that was at work unless the message has it."""
    line, trace = None, _from_file(error.__traceback__, str(file))
    while trace is not None:
        line, trace = trace.tb_lineno, _from_file(trace.tb_next, str(file))
    place = f"{file}:{line}"
    message = str(error)
    return message if line is None or place in message else f"{message} (at {place})"


def _source(file: Path) -> bytes:
    with io.open_code(str(file.resolve())) as source:
        return source.read()


def _from_file(trace: TracebackType | None, file: str) -> TracebackType | None:
    while trace is not None and trace.tb_frame.f_code.co_filename != file:
        trace = trace.tb_next
    return trace


def _status_of(leaving: SystemExit) -> int:
    if leaving.code is None:
        return 0
    if isinstance(leaving.code, int):
        return leaving.code
    print(leaving.code, file=sys.stderr)
    return FAILED


def _join_threads() -> None:
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join()
