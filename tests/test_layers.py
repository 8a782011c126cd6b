"""Arrows point down: each part imports only what is listed for it, and nothing runs in a cycle."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "espalier"

# part -> parts it may import. A part is a folder, or a module named here.
LEAVES = {"errors", "types", "settings", "constraint"}
ALLOWED: dict[str, set[str]] = {
    "errors": set(),
    "types": {"errors"},
    "constraint": {"errors"},
    "settings": {"errors"},
    "report": LEAVES,
    "exec.plan": LEAVES,
    "exec": {"exec.plan", "_native"} | LEAVES,
    "tokenizer": LEAVES,
    "constrain": {"tokenizer", "_native"} | LEAVES,
    "models": {"exec.plan"} | LEAVES,
    "loaders": {"models", "exec", "exec.plan", "tokenizer", "_native"} | LEAVES,
    "engine": {"constrain", "loaders", "models", "exec", "exec.plan", "tokenizer", "_native"}
    | LEAVES,
    "backends.base": LEAVES,
    "backends": {"backends.base", "engine", "constrain", "loaders", "tokenizer", "exec"} | LEAVES,
    "plan": {
        "backends",
        "backends.base",
        "engine",
        "constrain",
        "loaders",
        "tokenizer",
        "exec",
        "report",
    }
    | LEAVES,
    "lang": {"backends.base", "constrain", "report", "plan"} | LEAVES,
    "runtime": {"backends", "backends.base", "engine", "loaders", "tokenizer", "exec"} | LEAVES,
    # Names of the reference that lead to modules with better ones.
    "utils": {"lang", "loaders"} | LEAVES,
    "test": {"runtime", "lang"} | LEAVES,
    "cli": {
        "runtime",
        "lang",
        "plan",
        "report",
        "backends.base",
        "loaders",
        "models",
        "tokenizer",
        "exec",
    }
    | LEAVES,
}


def part_of(module: str) -> str:
    """The part that a module (named without `espalier.`) belongs to."""
    names = module.split(".")
    two = ".".join(names[:2])
    return two if two in ALLOWED else names[0]


def imports_of(path: Path) -> set[str]:
    """Modules of Espalier that a file imports, without `espalier.`; typing-only ones count too."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            if node.module == "espalier":
                found.update(f"espalier.{alias.name}" for alias in node.names)
            elif node.module:
                found.add(node.module)
    return {name.removeprefix("espalier.") for name in found if name.startswith("espalier.")}


def modules() -> dict[str, Path]:
    """Every module below src/espalier but the package's own __init__, by dotted name."""
    found = {}
    for path in sorted(SOURCE.rglob("*.py")):
        names = list(path.relative_to(SOURCE).with_suffix("").parts)
        if names[-1] == "__init__":
            names.pop()
        if names:
            found[".".join(names)] = path
    return found


def test_imports_only_point_down() -> None:
    wrong = []
    for module, path in modules().items():
        part = part_of(module)
        if part not in ALLOWED:
            wrong.append(f"{module}: a part without a line in ALLOWED")
            continue
        for name in imports_of(path):
            target = part_of(name)
            if target != part and target not in ALLOWED[part]:
                wrong.append(f"{module} imports {name}: {part} may not import {target}")
    assert not wrong, "\n".join(wrong)


def test_modules_have_no_import_cycle() -> None:
    known = modules()
    graph = {
        module: {name for name in imports_of(path) if name in known and name != module}
        for module, path in known.items()
    }
    state: dict[str, int] = {}

    def visit(module: str, trail: tuple[str, ...]) -> None:
        if state.get(module) == 1:
            pytest.fail("import cycle: " + " -> ".join((*trail, module)))
        if state.get(module) == 2:
            return
        state[module] = 1
        for name in sorted(graph[module]):
            visit(name, (*trail, module))
        state[module] = 2

    for module in graph:
        visit(module, ())


def test_allowed_parts_have_no_cycle() -> None:
    order = list(ALLOWED)
    for part, targets in ALLOWED.items():
        for target in targets - {"_native"}:
            assert order.index(target) < order.index(part), f"{part} -> {target}"
