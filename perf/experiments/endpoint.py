"""The endpoint: RocketMQ clients and `stratalog.connect`, each beside a gRPC handler that does nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from ..report.progress import Run
from ..report.record import Chapter
from ..workload.latencies import Latencies
from . import endpoint_connections, endpoint_curves, endpoint_remote
from .endpoint_options import Options
from .experiment import repeats, setting
from .ladder import EXPLAINED
from .latency import rates
from .parts import Part, measured, of
from .reported import Reported, Study

PARTS: dict[str, tuple[str, str, Callable[[Options], Sequence[Part]]]] = {
    "connections": (
        "Idle RocketMQ clients, and an endpoint's opening",
        "Each idle client has a connection and an open stream. Another client sends, one message after the other (a "
        "stalled one asks for less), beside none of them, and beside all with their heartbeats.",
        endpoint_connections.parts,
    ),
    "remote": (
        "A store of another process, by `stratalog.connect`",
        'Each way on a store of its own with durability "force"; callers wait for their answers.',
        endpoint_remote.parts,
    ),
}
CURVES = "curves"


class NoEndpoint(Exception):
    """The endpoint's packages are not installed; the sentence says what to do."""


def need_endpoint() -> None:
    """Raise NoEndpoint if the endpoint's packages are missing."""
    try:
        from ... import endpoint  # noqa: F401, PLC0415  # an extra
    except ImportError as error:
        raise NoEndpoint(str(error)) from None


@dataclass(frozen=True, kw_only=True)
class Endpoint(Reported):
    """The endpoint: latency by rate of RocketMQ clients, idle ones, and `stratalog.connect`."""

    NAME: ClassVar[str] = "endpoint"
    TITLE: ClassVar[str] = "The endpoint"
    METHOD: ClassVar[str] = (
        "servers in processes of their own, on 127.0.0.1; raw gRPC calls with the headers of official clients; a "
        "client of Python takes its part of the machine, so a handler that does nothing stands beside"
    )

    messages: int = setting(100_000, "of each way of `stratalog.connect` in batches", short=2_000, least=1_000)
    calls: int = setting(4_000, "messages of each way that waits for every one", short=320, least=64)
    connections: int = setting(1_000, "idle clients", short=20, least=1)
    size_bytes: int = setting(100, "of a message", least=8)
    seconds: float = setting(1.5, "seconds of a step of the curves", short=0.2, least=0.01)
    first: int = setting(250, "requests a second of the first step; each step doubles them", short=100, least=1)
    steps: int = setting(8, "steps at the most; one that is not sustained is the last", short=1, least=1)
    only: str = setting("", f"chapters whose name has this: {', '.join([*PARTS, CURVES])}", short="")
    repeat: int = repeats()

    def __post_init__(self) -> None:
        Reported.__post_init__(self)
        rates(self.first, self.steps)
        if not any(self.only in name for name in (*PARTS, CURVES)):
            raise ValueError(f"--only: no chapter has {self.only!r} in its name")

    def need_bytes(self) -> float:
        """The space of a round's stores."""
        return 32.0 * self.calls * (4096 + self.size_bytes) + 8.0 * self.messages * (200 + self.size_bytes) + (1 << 30)

    def study(self, base: Path, run: Run) -> Study:
        """The chapters that `only` names; the curves are the last one."""
        need_endpoint()
        Latencies()  # raises before the work if its package is missing
        options = Options(
            base=base, run=run, calls=self.calls, messages=self.messages, connections=self.connections,
            size_bytes=self.size_bytes,
        )  # fmt: skip
        chosen = {name: one for name, one in PARTS.items() if self.only in name}
        parts = [part for _, _, make in chosen.values() for part in make(options)]
        failed: dict[str, str] = {}
        found = measured(parts, self.repeat, run, failed)
        chapters = [
            Chapter(title=title, text=text, measures=of(found, f"{name}.")) for name, (title, text, _) in chosen.items()
        ]
        lines = [f"Missing here: {name} ({why})." for name, why in failed.items()]
        if self.only in CURVES:
            made, told = endpoint_curves.chapters(options, rates(self.first, self.steps), self.seconds, self.repeat)
            chapters += made
            lines += [*told, EXPLAINED]
        return Study(summary=tuple(lines), chapters=tuple(chapters))
