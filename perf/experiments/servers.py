"""Servers in processes of their own, for measurements of their clients."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil

from ..machine.threads import first_line
from ..workload.checker import PATIENCE_S, WrongResult

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
            line = first_line(child.stdout, PATIENCE_S)  # after it: rates, which nobody needs
            if not line:
                why = "see its error above" if line is not None else f"it has told no address in {PATIENCE_S:g} s"
                raise WrongResult(f"the server did not start: {why}")
            yield child, line
        finally:
            _end(child)


def _end(child: subprocess.Popen[str]) -> None:
    child.terminate()
    try:
        child.wait(PATIENCE_S)
    except subprocess.TimeoutExpired:
        child.kill()
        raise WrongResult(f"a server has not ended {PATIENCE_S:g} s after SIGTERM") from None
