"""The store's code of several checkouts in one process, so that their calls can be measured by turns.

Two processes of the same code differ by up to a third in what a call takes: by where their memory lies, by their hash
seed, by what their threads have done. In one process, with a call of each in turn, the same code differs by 1 to 3 %.
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
    """The module `stratalog.store` of a checkout, loaded anew: a second one has its own classes, threads and locks.

    It has to load all its modules when it is imported; one that comes later would be the running code's.

    Raises NoCheckout.
    """
    if not (checkout / PACKAGE / "__init__.py").is_file():
        raise NoCheckout(f"{checkout} is no checkout: it has no {PACKAGE}/__init__.py")
    with _without_the_package():
        sys.path.insert(0, str(checkout.resolve()))
        try:
            loaded = importlib.import_module(f"{PACKAGE}.store")
        finally:
            sys.path.remove(str(checkout.resolve()))
    return loaded


@contextmanager
def _without_the_package() -> Iterator[None]:
    """Imports find the package anew while the body runs; afterwards they find what was there before."""
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
