"""Names of a package that are loaded when they are first used, so that importing the package loads few modules.

A package gives `__getattr__` and `__dir__` from here (PEP 562). Its imports stand under `TYPE_CHECKING`, for type
checkers and readers; its places say the same to the interpreter, and tests/test_imports.py compares both.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def names_on_demand(package: str, places: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a package.

    Args:
        package: its name; it is being imported.
        places: the module of each name, below the package, as "api.store"; with ":" and the name there, if that is
            another one, as "subscriptions.settings:Settings". A place that is the name itself is a module.
    """
    module = sys.modules[package]

    def look_up(name: str) -> Any:
        """The value of a name, which is kept: the next look at it does not come here."""
        if name not in places:
            raise AttributeError(f"module {package!r} has no attribute {name!r}", name=name, obj=module)
        path, _, real = places[name].partition(":")
        value: Any = import_module(f"{package}.{path}")
        if path != name:
            value = getattr(value, real or name)
        setattr(module, name, value)
        return value

    def names() -> list[str]:
        """What is there, and what would be."""
        return sorted({*vars(module), *places})

    return look_up, names
