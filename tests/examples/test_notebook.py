"""The notebook runs, cell by cell, and its cells give what is kept in it.

Its results were made by Jupyter. Here a cell runs as plain Python: what it prints and the text of its last expression
are compared, of a picture that there is one. Jupyter itself would bring 31 more distributions.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import os
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from .pages import ROOT, printed_by

NOTEBOOK = ROOT / "examples" / "notebook" / "analysis.ipynb"
CELLS = [cell for cell in json.loads(NOTEBOOK.read_text())["cells"] if cell["cell_type"] == "code"]


def run(source: str, names: dict[str, Any]) -> tuple[str, str | None]:
    """What a cell prints, and the text of its last expression."""
    tree, value = ast.parse(source), None
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, "<cell>", "exec"), names)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), "<cell>", "eval"), names)
    return printed.getvalue(), None if value is None else repr(value)


def kept(cell: dict[str, Any]) -> tuple[str, str | None, bool]:
    """What a cell printed, the text of its last expression, and whether it drew a picture, as the notebook has it."""
    printed = "".join("".join(one["text"]) for one in cell["outputs"] if one["output_type"] == "stream")
    shown = [one["data"] for one in cell["outputs"] if "data" in one]
    texts = ["".join(data["text/plain"]) for data in shown if "image/png" not in data]
    return printed, texts[0] if texts else None, any("image/png" in data for data in shown)


def test_each_cell_gives_what_the_notebook_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    monkeypatch.setenv("MPLBACKEND", "agg")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    names: dict[str, Any] = {"__name__": "__main__"}
    for cell in CELLS:
        source = "".join(cell["source"])
        printed, value, is_picture = kept(cell)
        if is_picture and find_spec("matplotlib") is None:
            continue
        assert run(source, names) == (printed, value), source
        assert bool(is_picture) == ("plt" in source)
    if find_spec("matplotlib") is None:
        pytest.skip("without matplotlib the pictures were left out; all other cells ran")
    (number,) = names["plt"].get_fignums()
    titles = [axes.get_title() for axes in names["plt"].figure(number).axes]
    names["plt"].close("all")
    assert titles == ["sales", "value of an order"]
    assert os.listdir(tmp_path) == []  # it cleans up


def test_the_page_says_what_the_notebook_prints() -> None:
    printed = "".join(kept(cell)[0] for cell in CELLS)
    assert [line for line in printed_by("notebook").splitlines() if line not in printed.splitlines()] == []


def test_a_cell_that_gives_something_else_is_noticed() -> None:
    assert run("a = 1\nprint(a)\na + 1", {}) == ("1\n", "2")
    assert run("print('x')\nfor _ in ():\n    pass", {}) == ("x\n", None)
    cell = {"outputs": [{"output_type": "stream", "text": ["1\n"]}, {"data": {"text/plain": ["2"]}, "output_type": ""}]}
    assert kept(cell) == ("1\n", "2", False)
