"""The Python processes that Spark plans with and runs tasks in."""

from __future__ import annotations

import gc
import sys


def settle() -> None:
    """Spare a process of Spark's most of the garbage collection that follows each call and each task: 40 to 60 ms.

    What is there are modules, which stay; `gc.freeze` has collections pass them over. It is called again where more
    have been imported since: what they brought is some 15 ms a collection, if there are pandas among them.
    """
    global _settled_modules  # noqa: PLW0603  # of this process: it is the process that is settled
    count = len(sys.modules)
    if _settled_modules != count and _is_worker():
        gc.freeze()
        _settled_modules = count


_settled_modules = 0  # how many there were; without new ones, what calls leave is to be collected


def _is_worker() -> bool:
    """Not so in a program that calls the same code by itself."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    return spec is not None and spec.name.startswith("pyspark.")
