"""The store's code of several checkouts in one process, so that their calls can be measured in turn.

The time of a call differs by up to a third between two processes of the same code: by the place of their memory, by
their hash seed, by the work of their threads. In one process, with each call in turn, it differs by 1 to 3 %.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

PACKAGE = __name__.partition(".")[0]
HERE = Path(sys.modules[PACKAGE].__path__[0]).resolve().parent


class NoCheckout(Exception):
    """A folder does not hold the code of the package."""


def load_store(checkout: Path) -> Any:
    """The module `stratalog.store` of a checkout, loaded again: a second one has its own classes, threads and locks.

    All of its modules are loaded here; a later import would load the running code.

    Raises NoCheckout.
    """
    if not (checkout / PACKAGE / "__init__.py").is_file():
        raise NoCheckout(f"{checkout} is no checkout: it has no {PACKAGE}/__init__.py")
    with _without_the_package():
        sys.path.insert(0, str(checkout.resolve()))
        try:
            loaded = importlib.import_module(f"{PACKAGE}.store")
            for name in dir(loaded):  # names that are loaded at their first use
                getattr(loaded, name)
        finally:
            sys.path.remove(str(checkout.resolve()))
    return loaded


@contextmanager
def _without_the_package() -> Iterator[None]:
    """Let imports load the package again while the body runs; after that they find the old modules."""
    before = _modules()
    for name in before:
        del sys.modules[name]
    importlib.invalidate_caches()
    try:
        yield
    finally:
        for name in _modules():
            del sys.modules[name]
        sys.modules.update(before)


def _modules() -> dict[str, ModuleType]:
    return {name: module for name, module in sys.modules.items() if name.partition(".")[0] == PACKAGE}
