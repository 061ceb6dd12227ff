"""What `help()` shows to a user: no word that only the project's own papers explain."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator

import pytest

PACKAGES = ("stratalog", "stratalog.store", "stratalog.cache", "stratalog.index", "stratalog.pipeline",
            "stratalog.pipeline.jobs")  # fmt: skip
INSIDE = re.compile(r"\bR\d+\b|\bcontest\b")


def shown(package: str) -> Iterator[tuple[str, str]]:
    """(name, docstring) of a package, of what it gives, and of the public members of its classes."""
    module = importlib.import_module(package)
    yield package, module.__doc__ or ""
    for name in getattr(module, "__all__", ()):
        one = getattr(module, name)
        if isinstance(one, str | int | tuple) or inspect.ismodule(one):
            continue
        yield f"{package}.{name}", inspect.getdoc(one) or ""
        for part in dir(one) if inspect.isclass(one) else ():
            if not part.startswith("_") or part == "__init__":
                yield f"{package}.{name}.{part}", inspect.getdoc(inspect.getattr_static(one, part)) or ""


@pytest.mark.parametrize("package", PACKAGES)
def test_no_docstring_of_the_public_face_has_a_number_of_a_requirement(package: str) -> None:
    docstrings = dict(shown(package))
    assert len(docstrings) > 3
    assert [name for name, text in docstrings.items() if INSIDE.search(text)] == []
