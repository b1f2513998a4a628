"""Who may import whom: the rooms of the project keep their doors."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parent.parent
ROOMS = ("grammar", "parsing", "server")

#: What each room may import besides the standard library and itself. None: anything.
ALLOWED: dict[str, frozenset[str] | None] = {
    "grammar": frozenset({"numpy"}),
    "parsing": frozenset({"regex"}),
    "server": None,
}


def modules(room: str) -> list[Path]:
    return sorted((REPO / room).rglob("*.py"))


def imported(source: str) -> Iterator[str]:
    """The modules that a source imports anywhere, also inside functions and by name."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports hide what is imported"
            assert node.module is not None
            yield node.module
        elif isinstance(node, ast.Call) and node.args:
            name = node.func.attr if isinstance(node.func, ast.Attribute) else ""
            name = node.func.id if isinstance(node.func, ast.Name) else name
            first = node.args[0]
            if name in ("import_module", "__import__"):
                assert isinstance(first, ast.Constant), "import_module of a computed name"
                yield str(first.value)


def test_the_finder_finds_every_way_to_import() -> None:
    source = (
        "import a.b\nfrom c.d import e\n"
        "def f():\n    import g as h\n"
        "    importlib.import_module('i.j')\n    __import__('k')\n"
    )
    assert set(imported(source)) == {"a.b", "c.d", "g", "i.j", "k"}


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_only_what_it_may(room: str) -> None:
    assert modules(room)
    allowed = ALLOWED[room]
    if allowed is None:
        return
    for module in modules(room):
        for name in imported(module.read_text(encoding="utf-8")):
            top = name.partition(".")[0]
            fine = top == room or top in allowed or top in sys.stdlib_module_names
            assert fine, f"{module.relative_to(REPO)} imports {name}"


def test_one_module_imports_llama_cpp() -> None:
    users = {
        str(module.relative_to(REPO))
        for room in ROOMS
        for module in modules(room)
        if any(
            name.partition(".")[0] == "llama_cpp"
            for name in imported(module.read_text(encoding="utf-8"))
        )
    }
    assert users == {"server/engine/llama.py"}


def test_the_engine_knows_nothing_of_http() -> None:
    forbidden = {"fastapi", "starlette", "uvicorn", "sse_starlette"}
    for module in sorted((REPO / "server" / "engine").glob("*.py")):
        for name in imported(module.read_text(encoding="utf-8")):
            assert name.partition(".")[0] not in forbidden, f"{module.name} imports {name}"
            assert not name.startswith("server.api"), f"{module.name} imports {name}"
