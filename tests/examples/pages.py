"""What the README of an example says: its command, and what that prints."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted(path.parent for path in (ROOT / "examples").glob("*/README.md"))
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks_of(example: str, kind: str) -> list[str]:
    """The blocks of code of a kind in an example's README."""
    text = (ROOT / "examples" / example / "README.md").read_text()
    return [block for found, block in BLOCK.findall(text) if found == kind]


def command_of(example: str) -> list[str]:
    """The example's one command; it is for the checkout's root."""
    (block,) = blocks_of(example, "sh")
    words = shlex.split(block)
    return [sys.executable, *words[1:]] if words[0] == "python" else words


def printed_by(example: str) -> str:
    """What the command prints, as the page has it."""
    (block,) = blocks_of(example, "text")
    return block


def run(command: list[str], env: dict[str, str] | None = None) -> str:
    """What a command prints, once it has ended well."""
    done = subprocess.run(
        command, cwd=ROOT, env=env, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
