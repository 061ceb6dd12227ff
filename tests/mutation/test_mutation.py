"""The mutation run itself: its sample is the same for a seed, its tests are those of the line, its verdict is right."""

from __future__ import annotations

from pathlib import Path

import pytest

from ..seeds import draw_seed

pytest.importorskip("mutmut", reason="the extra `mutation` is not installed")

from ..checkout import ROOT, copy_checkout
from . import probes
from .child import warm_up
from .contexts import Contexts
from .judged import judgements
from .mutants import Mutant, draw
from .run import covering_tests, try_mutant

ONLY = "cache/cursors.py"
TEST = "tests/cache/test_cursors.py::test_a_message_is_wanted_while_some_cursor_is_near"

SAMPLE = """def find(numbers, wanted):
    at = 0
    while at < len(numbers):
        found = numbers[at]
        if found == wanted:
            return at
        at += 1
    return -1
"""


@pytest.fixture(autouse=True)
def at_the_root(monkeypatch: pytest.MonkeyPatch) -> None:
    """mutmut looks for its settings in the working folder."""
    monkeypatch.chdir(ROOT)


def contexts(*tests: str, line: int = 1) -> Contexts:
    seconds = {test: 0.1 * (index + 1) for index, test in enumerate(tests)}
    return Contexts({ONLY: {line: list(tests)}}, seconds, [])


def test_same_seed_draws_the_same_mutants() -> None:
    seed = draw_seed()
    first = draw(ROOT, 10, seed, ONLY)
    assert first == draw(ROOT, 10, seed, ONLY)
    assert len({mutant.name for mutant in first}) == 10
    text = (ROOT / ONLY).read_text()
    assert all(mutant.diff and mutant.source != text for mutant in first)


def test_tests_of_a_line_come_in_order_of_speed_and_within_the_budget() -> None:
    mutant = Mutant(ONLY, 1, 1, None, "", "")
    known = contexts("tests/a.py::test_a", "tests/b.py::test_b[1]", "tests/cache/test_cursors.py::test_c")
    own, quick, slow = "tests/cache/test_cursors.py::test_c", "tests/a.py::test_a", "tests/b.py::test_b[1]"
    assert covering_tests(mutant, known, 10.0) == [own, quick, slow]
    assert covering_tests(mutant, known, 0.45) == [own, quick]
    assert covering_tests(mutant._replace(line=7, last_line=7, function=(7, 9)), known, 10.0) == [own]  # of the module


def test_mutant_is_killed_by_a_failing_test_and_survives_a_passing_one(tmp_path: Path) -> None:
    tree = copy_checkout(tmp_path / "tree")
    text = (tree / ONLY).read_text()
    line = next(at for at, row in enumerate(text.splitlines(), 1) if "def wanted" in row)
    mutant = Mutant(ONLY, line, line, None, text.replace("offsets - positions <", "offsets + positions <"), "")
    killed = try_mutant(tree, mutant, contexts(TEST, line=line), 10.0)
    assert (killed.result, killed.by) == ("killed", TEST)
    assert try_mutant(tree, mutant._replace(source=text), contexts(TEST, line=line), 10.0).result == "survived"
    assert try_mutant(tree, mutant._replace(source="1 +"), contexts(TEST, line=line), 10.0).result == "killed"
    assert try_mutant(tree, mutant, contexts(line=line), 10.0).result == "untested"
    assert (tree / ONLY).read_text() == text


def test_change_of_the_same_length_is_seen_in_a_copy_that_is_compiled(tmp_path: Path) -> None:
    """Compiled modules are known by length and second: the child has to run the changed text."""
    tree = copy_checkout(tmp_path / "tree")
    warm_up(tree, ["tests/cache/test_cursors.py"])
    text = (tree / ONLY).read_text()
    mutant = Mutant(ONLY, 1, 1, None, text.replace("offsets - positions <", "offsets + positions <"), "")
    assert len(mutant.source) == len(text) and list(tree.glob("cache/__pycache__/cursors.*.pyc"))
    for source, result in ((mutant.source, "killed"), (text, "survived"), (mutant.source, "killed")):
        assert try_mutant(tree, mutant._replace(source=source), contexts(TEST), 10.0).result == result


def test_probes_say_which_lines_ran(tmp_path: Path) -> None:
    (tmp_path / "sample.py").write_text(SAMPLE)
    planted = probes.plant(tmp_path, [tmp_path / "sample.py"])
    names: dict[str, object] = {}
    exec((tmp_path / "sample.py").read_text(), names)
    find, hit = names["find"], names[probes.NAME]
    assert callable(find) and isinstance(hit, bytearray)
    assert find([1, 2], 1) == 0
    lines = {line for probe in planted if hit[planted.index(probe)] for line in range(probe.first, probe.last + 1)}
    assert lines == {1, 2, 3, 4, 5, 6}
    assert find([1, 2], 3) == -1
    lines = {line for probe in planted if hit[planted.index(probe)] for line in range(probe.first, probe.last + 1)}
    assert lines == {1, 2, 3, 4, 5, 6, 7, 8}


def test_every_judgement_says_why() -> None:
    assert all(one.why and (ROOT / one.path).exists() for one in judgements())
