"""Fails on what is above the size caps: 500 lines a file, 60 the body of a Python function."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

FILE_CAP = 500
FUNCTION_CAP = 60
SUFFIXES = {".py", ".pyi", ".cpp", ".h"}
EXEMPT_FOLDERS = {"expected"}  # tables and generated data


def tracked_files() -> list[Path]:
    """Source files that git tracks or would track, which exist."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    paths = (Path(line) for line in listed.splitlines())
    return sorted(
        path
        for path in paths
        if path.suffix in SUFFIXES and path.is_file() and not EXEMPT_FOLDERS & set(path.parts)
    )


def long_functions(path: Path, source: str) -> list[str]:
    """Complaints about functions whose body, without its docstring, is over the cap."""
    complaints = []
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        first = node.body[0]
        is_doc = ast.get_docstring(node, clean=False) is not None
        doc_lines = (first.end_lineno or 0) - first.lineno + 1 if is_doc else 0
        length = (node.end_lineno or first.lineno) - first.lineno + 1 - doc_lines
        if length > FUNCTION_CAP:
            complaints.append(f"{path}:{node.lineno}: {node.name} has {length} lines")
    return complaints


def main() -> int:
    """Prints every complaint; 1 if there was one."""
    complaints = []
    for path in tracked_files():
        source = path.read_text(encoding="utf-8")
        length = source.count("\n")
        if length > FILE_CAP:
            complaints.append(f"{path}: {length} lines, at most {FILE_CAP} are allowed")
        if path.suffix == ".py":
            complaints += long_functions(path, source)
    print("\n".join(complaints) if complaints else "size caps: ok")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
