"""The mutants: mutmut's operators over store/, cache/ and index/, and a random sample of them, weighted by lines.

Left out, because no test can or should see them: texts for people (strings with a space), and what stands outside of
functions apart from numbers, truths and operators (without an assignment there the import fails, which proves nothing).
"""

from __future__ import annotations

import difflib
import hashlib
import random
from collections import defaultdict
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import libcst as cst
from libcst.metadata import MetadataWrapper, PositionProvider
from mutmut.mutation.file_mutation import Mutation, create_mutations

LEFT_OUT = ("store/testing/",)
OUTSIDE_FUNCTIONS = (cst.BaseNumber, cst.Name, cst.BinaryOperation, cst.BooleanOperation, cst.ComparisonTarget)


class Mutant(NamedTuple):
    """One change of one file: the lines it touches and those of its function, and the changed source."""

    path: str
    line: int
    last_line: int
    function: tuple[int, int] | None  # the lines of the one around it
    source: str
    diff: str

    @property
    def name(self) -> str:
        """The same for the same change of the same text."""
        return f"{self.path}:{self.line}:{hashlib.sha256(self.diff.encode()).hexdigest()[:10]}"


def files_under_test(root: Path) -> list[Path]:
    """All sources that are mutated."""
    found = [path for package in ("store", "cache", "index") for path in sorted((root / package).rglob("*.py"))]
    return [path for path in found if not str(path.relative_to(root)).startswith(LEFT_OUT)]


def _is_behaviour(mutation: Mutation) -> bool:
    node = mutation.original_node
    if isinstance(node, cst.SimpleString) and " " in node.value:
        return False
    return _function_of(mutation) is not None or isinstance(node, OUTSIDE_FUNCTIONS)


def _function_of(mutation: Mutation) -> cst.FunctionDef | None:
    """The function around; mutmut says the same of a statement of a class's body, which is none."""
    around = mutation.contained_by_top_level_function
    return around if isinstance(around, cst.FunctionDef) else None


class Change(NamedTuple):
    """A mutation whose source is not made yet: that costs some milliseconds, and most are never drawn."""

    path: Path
    module: cst.Module
    mutation: Mutation
    line: int
    last_line: int
    function: tuple[int, int] | None

    def mutant(self, root: Path) -> Mutant:
        """With its source."""
        changed = self.module.deep_replace(self.mutation.original_node, self.mutation.mutated_node)
        assert isinstance(changed, cst.Module)
        name, code = str(self.path.relative_to(root)), self.module.code
        diff = _diff(name, code, changed.code)
        return Mutant(name, self.line, self.last_line, self.function, changed.code, diff)


def changes_of(path: Path, root: Path) -> Iterator[Change]:
    """All mutations of a file, in the order of mutmut."""
    module, mutations, *_ = create_mutations(str(path.relative_to(root)), path.read_text())
    places = MetadataWrapper(module, unsafe_skip_copy=True).resolve(PositionProvider)
    for mutation in mutations:
        place = places.get(mutation.original_node)
        if place is None or not _is_behaviour(mutation):
            continue
        function = _function_of(mutation)
        around = places.get(function) if function is not None else None
        lines = (around.start.line, around.end.line) if around is not None else None
        yield Change(path, module, mutation, place.start.line, place.end.line, lines)


def _diff(name: str, before: str, after: str) -> str:
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), name, name, lineterm="", n=2)
    return "\n".join(list(lines)[2:])


def draw(root: Path, count: int, seed: int, only: str = "") -> list[Mutant]:
    """A sample: lines are drawn evenly from all that have mutants, then one of the line's mutants each."""
    by_line: dict[tuple[str, int], list[Change]] = defaultdict(list)
    for path in files_under_test(root):
        if str(path.relative_to(root)).startswith(only):
            for change in changes_of(path, root):
                by_line[str(path), change.line].append(change)
    chance = random.Random(seed)
    places = sorted(by_line)
    chance.shuffle(places)
    drawn = (chance.choice(by_line[place]).mutant(root) for place in places)
    return list(islice((mutant for mutant in drawn if mutant.diff), count))
