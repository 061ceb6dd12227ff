"""Each example has a page of one shape, and is found from the other pages."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from .pages import EXAMPLES, ROOT, blocks_of

MAX_LINES = 40
OLDER = {"orders"}  # a whole project, with a page of its own shape


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_a_page_is_short_and_names_each_file(example: Path) -> None:
    text = (example / "README.md").read_text()
    assert len(text.splitlines()) <= MAX_LINES
    told = set(re.findall(r"[\w/]+\.(?:py|ipynb)\b", text))
    there = {str(path.relative_to(example)) for kind in ("*.py", "*.ipynb") for path in example.rglob(kind)}
    there = {name for name in there if not name.endswith("__init__.py")}
    assert {name for name in there if not any(one.endswith(name) for one in told)} == set()


@pytest.mark.parametrize("example", [one.name for one in EXAMPLES if one.name not in OLDER])
def test_a_page_has_one_command_for_a_checkout_and_what_it_prints(example: str) -> None:
    (command,), (printed,) = blocks_of(example, "sh"), blocks_of(example, "text")
    assert len(command.splitlines()) == 1 and printed
    assert f"examples/{example}" in command


def test_each_example_is_found_from_the_first_pages() -> None:
    for page in ("README.md", "docs/index.md"):
        linked = set(re.findall(r"examples/(\w+)/README\.md", (ROOT / page).read_text()))
        assert linked == {one.name for one in EXAMPLES}, page
