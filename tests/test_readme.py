"""The Python examples of README.md run as they stand, in order, in one program."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
EXAMPLE = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def examples(text: str) -> list[str]:
    """The fenced blocks that are Python."""
    return EXAMPLE.findall(text)


def test_examples_of_the_readme_run(tmp_path: Path) -> None:
    blocks = examples(README.read_text())
    assert blocks, "the README has no Python example"
    program = tmp_path / "readme.py"
    program.write_text("\n".join(blocks))
    done = subprocess.run(
        [sys.executable, str(program)], cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, timeout=50, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_only_fenced_python_is_taken() -> None:
    text = "# x\n```python\na = 1\n```\n```\nnot this\n```\n```sh\nnor this\n```\n```python\nb = 2\n```\n"
    assert examples(text) == ["a = 1\n", "b = 2\n"]
