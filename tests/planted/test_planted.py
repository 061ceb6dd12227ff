"""Some of the planted bugs in each run of the suite; all of them by `python -m tests.planted`."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest

from ..checkout import COPIED, ROOT
from ..seeds import draw_seed
from .bugs import BUGS
from .plant import Bug, plant, try_bug

TRIED = 2


@pytest.mark.parametrize("name", BUGS)
def test_bug_can_be_planted(name: str) -> None:
    """Its text is still there, once, and the tests that it names as well."""
    bug = BUGS[name]
    text = (ROOT / bug.path).read_text()
    assert text.count(bug.before) == 1
    assert bug.before != bug.after
    compile(text.replace(bug.before, bug.after), bug.path, "exec")  # what fails is a test, and not the import
    for test in bug.tests:
        path, _, rest = test.partition("::")
        assert f"def {rest.partition('[')[0].rpartition('::')[2]}(" in (ROOT / path).read_text() if rest else True


def test_the_copy_in_which_bugs_are_planted_has_what_tests_import() -> None:
    imported = re.compile(r"^\s*(?:from|import) (\w+)\b", re.MULTILINE)
    names = {name for file in (ROOT / "tests").rglob("*.py") for name in imported.findall(file.read_text())}
    packages = {name for name in names if (ROOT / name).is_dir()}
    assert packages >= {"stratalog", "tests", "docs"}
    assert packages <= set(COPIED)


def test_some_planted_bugs_are_found(tmp_path: Path) -> None:
    for name in random.Random(draw_seed()).sample([name for name in BUGS if not BUGS[name].hangs], TRIED):
        verdict = try_bug(BUGS[name], tmp_path)
        assert verdict.found, f"{name}: {verdict.output}"


def test_text_that_is_gone_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "source.py").write_text("a = 1\na = 1\n")
    for before in ("b = 1", "a = 1"):
        with pytest.raises(LookupError, match="once"):
            plant(Bug("source.py", before, "", ()), tmp_path)
