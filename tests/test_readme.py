"""The Python examples of README.md and of the pages for users run as they stand, in order, a page in one program."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"  # Spark compiles for longer than its examples run
WITH_EXAMPLES = [page for page in PAGES if "```python" in page.read_text()]
EXAMPLE = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def examples(text: str) -> list[str]:
    """The fenced blocks that are Python."""
    return EXAMPLE.findall(text)


def test_the_readme_and_the_page_of_calls_have_examples() -> None:
    assert {"README.md", "api.md"} <= {page.name for page in WITH_EXAMPLES}


@pytest.mark.parametrize("page", WITH_EXAMPLES, ids=lambda page: page.name)
def test_examples_of_a_page_run(tmp_path: Path, page: Path) -> None:
    blocks = examples(page.read_text())
    program = tmp_path / "example.py"
    program.write_text("\n".join(blocks))
    done = subprocess.run(
        [sys.executable, str(program)], cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "JDK_JAVA_OPTIONS": QUICK_JAVA},
        capture_output=True, text=True, timeout=200, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_only_fenced_python_is_taken() -> None:
    text = "# x\n```python\na = 1\n```\n```\nnot this\n```\n```sh\nnor this\n```\n```python\nb = 2\n```\n"
    assert examples(text) == ["a = 1\n", "b = 2\n"]
