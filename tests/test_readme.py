"""The Python examples of README.md and of the pages for users run as they stand, in order, a page in one program."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"  # Spark compiles for longer than its examples run
EXAMPLE = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FENCE = re.compile(r"^( *)```(\w*)([^\n]*)\n.*?^\1```$", re.MULTILINE | re.DOTALL)
NOT_RUN = re.compile(r"<!-- not run[^>]*: [^>]+-->\n\Z")


def examples(text: str) -> list[str]:
    """The fenced blocks that are Python."""
    return EXAMPLE.findall(text)


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


WITH_EXAMPLES = {name_of(page): examples(page.read_text()) for page in PAGES if "```python" in page.read_text()}
SPARK = [name for name in WITH_EXAMPLES if name.endswith("/spark.md")]  # one Java does for all of them
PROGRAMS = [[name] for name in WITH_EXAMPLES if name not in SPARK] + [SPARK]


def test_the_readme_and_the_page_of_calls_have_examples() -> None:
    assert {"README.md", "docs/reference/api.md"} <= WITH_EXAMPLES.keys()
    assert len(SPARK) == 2


@pytest.mark.parametrize("pages", PROGRAMS, ids=lambda pages: pages[0])
def test_examples_of_a_page_run(tmp_path: Path, pages: list[str]) -> None:
    program = tmp_path / "example.py"
    written = []
    for number, name in enumerate(pages):
        page = program if len(pages) == 1 else tmp_path / f"page_{number}.py"
        page.write_text("\n".join(WITH_EXAMPLES[name]))
        written.append(f"runpy.run_path({str(page)!r}, run_name='__main__')")
    if len(pages) > 1:  # each with names of its own
        program.write_text("\n".join(["import runpy", *written]))
    done = subprocess.run(
        [sys.executable, str(program)], cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "JDK_JAVA_OPTIONS": QUICK_JAVA},
        capture_output=True, text=True, timeout=200, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_only_fenced_python_is_taken() -> None:
    text = "# x\n```python\na = 1\n```\n```\nnot this\n```\n```sh\nnor this\n```\n```python\nb = 2\n```\n"
    assert examples(text) == ["a = 1\n", "b = 2\n"]


def blocks_that_nobody_runs(text: str) -> list[str]:
    """The first lines of blocks in some language that do not run, and are not marked with the reason."""
    found = []
    for block in FENCE.finditer(text):
        is_run = block[2] == "python" and not block[1] and not block[3]
        if block[2] and not is_run and not NOT_RUN.search(text[: block.start()]):
            found.append(block[0].splitlines()[1].strip())
    return found


def test_every_block_of_code_runs_or_says_why_not() -> None:
    left = {name_of(page): blocks_that_nobody_runs(page.read_text()) for page in PAGES}
    # The tests' own set-up is the second one, see .ci/run; tests/perf runs the measurement of the first one.
    two = left.pop("README.md")
    assert [line.rpartition("/")[2] for line in two] == ["python -m perf hotcold", "python -m pytest"]
    assert {name: blocks for name, blocks in left.items() if blocks} == {}


def test_a_block_without_a_reason_is_found() -> None:
    marked = "<!-- not run: it needs a cluster -->\n```sh\nsubmit\n```\n"
    assert blocks_that_nobody_runs(f"{marked}\n```\na picture\n```\n```python\na = 1\n```\n") == []
    assert blocks_that_nobody_runs(f"{marked}text\n```sh\nrm x\n```\n") == ["rm x"]
    assert blocks_that_nobody_runs("* a list\n\n  ```python\n  a = 1\n  ```\n") == ["a = 1"]
    assert blocks_that_nobody_runs("<!-- not run: -->\n```js\na\n```\n") == ["a"]
