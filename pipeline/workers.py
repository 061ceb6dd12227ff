"""The Python processes in which Spark plans and runs tasks."""

from __future__ import annotations

import contextlib
import gc
import os
import socket
import stat
import sys
from pathlib import Path
from typing import Any

DESCRIPTORS = Path("/proc/self/fd")
TCP_QUICKACK: int | None = getattr(socket, "TCP_QUICKACK", None)


class Prompt:
    """A base of objects that Spark sends to its workers: a worker that unpickles one gets the next bytes at once.

    Spark's JVM writes the code of a task, and then its partition. The kernel holds back the second small write until
    the first one is acknowledged (Nagle's algorithm), and a worker with nothing to send acknowledges after 40 ms. A
    task of any data source in Python stands still that long; here the worker acknowledges as soon as it has the code.
    """

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if _is_worker():
            acknowledge()


def acknowledge() -> None:
    """Acknowledge the bytes that have arrived on this process's TCP connections. Only Linux has such a call."""
    if TCP_QUICKACK is None:
        return
    with contextlib.suppress(OSError):  # there is no such folder
        for name in os.listdir(DESCRIPTORS):
            with contextlib.suppress(OSError):  # closed meanwhile, or not TCP
                if stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                    with socket.fromfd(int(name), socket.AF_INET, socket.SOCK_STREAM) as connection:
                        connection.setsockopt(socket.IPPROTO_TCP, TCP_QUICKACK, 1)


def settle() -> None:
    """Spare a process of Spark most of the garbage collection that follows each call and each task: 40 to 60 ms.

    Most objects are modules, which stay; with `gc.freeze` collections skip them. Call it again after more imports:
    their objects take some 15 ms a collection, if pandas is among them.
    """
    global _settled_modules  # noqa: PLW0603  # of this process: the process is settled
    count = len(sys.modules)
    if _settled_modules != count and _is_worker():
        gc.freeze()
        _settled_modules = count


_settled_modules = 0  # the number of modules then; without new ones, objects of calls have to be collected


def _is_worker() -> bool:
    """False in a program that calls the same code by itself."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    return spec is not None and spec.name.startswith("pyspark.")
