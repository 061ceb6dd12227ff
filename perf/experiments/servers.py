"""Servers in processes of their own, for measurements of their clients."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil

from ..workload.checker import WrongResult

TRIVIAL = ("stratalog.perf.references.trivial_grpc",)


@contextmanager
def trivial() -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A gRPC server whose handler does nothing, and its address."""
    with _server(TRIVIAL) as (child, line):
        yield child, line.strip()


@contextmanager
def served(folder: Path, durability: str = "os") -> Iterator[tuple[subprocess.Popen[str], str]]:
    """An endpoint for a folder, and its address."""
    options = ("--port", "0", "--durability", durability, "--json")
    with _server(("stratalog", "serve", str(folder), *options)) as (child, line):
        yield child, json.loads(line)["address"]


def server_cpu_s(pid: int) -> float:
    """The processor seconds of a server so far."""
    used = psutil.Process(pid).cpu_times()
    return float(used.user + used.system)


@contextmanager
def _server(module: Sequence[str]) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A server, and its first line. Its input stays open, as the trivial one ends with its input."""
    command = [sys.executable, "-m", *module]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        try:
            assert child.stdout is not None
            line = child.stdout.readline()
            if not line:
                raise WrongResult("the server did not start: see its error above")
            threading.Thread(target=child.stdout.read, daemon=True).start()  # rates, which nobody needs
            yield child, line
        finally:
            child.terminate()
