"""What the README of an example says: its command, and what that prints."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from contextlib import suppress
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
    """What a command prints, once it has ended well. Whatever happens, no process of it is left."""
    process = subprocess.Popen(
        command, cwd=ROOT, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
    )  # fmt: skip
    try:
        printed, errors = process.communicate()
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 0, printed + errors
    return printed
