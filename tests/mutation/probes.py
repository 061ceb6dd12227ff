"""Probes in the code under test: each run of statements without a branch notes that it ran.

`__hit__[7] = 1` stands in front of the statements. That costs some ten nanoseconds, so that a test takes about as long
as without, and sees the threads as they are; a tracer slows the code several times.
"""

from __future__ import annotations

import ast
import builtins
from pathlib import Path
from typing import NamedTuple

NAME = "__hit__"
SIZE = 1 << 16


class Probe(NamedTuple):
    """The lines of a file that run when the probe runs."""

    path: str
    first: int
    last: int


def plant(tree: Path, sources: list[Path]) -> list[Probe]:
    """Write the probes into the files of a copy; the list's index is a probe's number."""
    probes: list[Probe] = []
    for path in sources:
        module = ast.parse(path.read_text())
        _Planter(str(path.relative_to(tree)), probes).scope(module.body)
        found = ast.parse(f"import builtins\n{NAME} = getattr(builtins, {NAME!r}, None) or bytearray({SIZE})").body
        after = 1 + max((at for at, one in enumerate(module.body) if _is_future(one)), default=-1)
        module.body[after:after] = found
        path.write_text(ast.unparse(ast.fix_missing_locations(module)))
    assert len(probes) < SIZE
    return probes


def hits() -> bytearray:
    """What the probes of this process write to."""
    found = bytearray(SIZE)
    setattr(builtins, NAME, found)
    return found


def _is_future(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.ImportFrom) and statement.module == "__future__"


def _is_text(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


class _Planter:
    def __init__(self, path: str, probes: list[Probe]) -> None:
        self._path = path
        self._probes = probes

    def scope(self, body: list[ast.stmt]) -> None:
        """A module's or a class's statements: only the functions in it get probes."""
        for one in body:
            if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef):
                self._function(one)
            elif isinstance(one, ast.ClassDef):
                self.scope(one.body)

    def _function(self, function: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        text = [one for one in function.body[:1] if _is_text(one)]
        body = function.body[len(text) :] or [ast.copy_location(ast.Pass(), function.body[0])]
        function.body = [*text, *self._block(body, function.lineno)]

    def _block(self, body: list[ast.stmt], since: int | None = None) -> list[ast.stmt]:
        """The statements with a probe in front, and one behind each statement that may leave the block."""
        planted: list[ast.stmt] = []
        number, first = -1, 0
        for one in body:
            if number < 0:
                number, first = len(self._probes), one.lineno if planted or since is None else since
                planted.append(ast.parse(f"{NAME}[{number}] = 1").body[0])
                self._probes.append(Probe(self._path, first, first))
            last = self._inside(one)
            planted.append(one)
            self._probes[number] = Probe(self._path, first, last or one.end_lineno or one.lineno)
            if last is not None:
                number = -1
        return planted

    def _inside(self, statement: ast.stmt) -> int | None:
        """Plant in the blocks of a statement. The last line of its head, or None for a simple statement."""
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            self._function(statement)
            return statement.lineno
        blocks = [(holder, name) for holder, name in _blocks_of(statement) if getattr(holder, name)]
        if not blocks:
            return None
        head = max(statement.lineno, statement_start(blocks[0]) - 1)
        for holder, name in blocks:
            since = holder.lineno if isinstance(holder, ast.ExceptHandler) else None
            setattr(holder, name, self._block(getattr(holder, name), since))
        return head


def statement_start(block: tuple[ast.AST, str]) -> int:
    """The first line of a block."""
    first: ast.stmt = getattr(*block)[0]
    return first.lineno


def _blocks_of(statement: ast.stmt) -> list[tuple[ast.AST, str]]:
    found: list[tuple[ast.AST, str]] = [(statement, "body")] if hasattr(statement, "body") else []
    found += [(one, "body") for one in (*getattr(statement, "handlers", ()), *getattr(statement, "cases", ()))]
    found += [(statement, name) for name in ("orelse", "finalbody") if hasattr(statement, name)]
    return found
