"""`stratalog serve`: a store for clients in other processes and languages, until a signal ends it."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json as json_module
import os
import resource
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer

from ..perf.commands.options import Json
from ..perf.machine.folders import human_bytes
from ..perf.report.figures import counted, messages_console
from ..perf.report.tables import plain
from ..store import MessageStore, StoreClosed, StoreConfig
from .changes import Folder, path_of
from .ends import REFUSED, complain, told
from .web import Page, WebServer, serving

if TYPE_CHECKING:
    from ..endpoint import RocketMQEndpoint
    from ..endpoint.server.server import GrpcServer, Tls

PORT = 8081  # of RocketMQ's proxy
LOOK_S = 1.0  # between two lines of rates, and two of the opening
MOST_NAMES = 4
METRICS_KIND = "text/plain; version=0.0.4; charset=utf-8"
SIGNALS = (signal.SIGTERM, signal.SIGINT)


def serve_command(
    folder: Folder,
    host: Annotated[str, typer.Option("--host", help="where to listen; 0.0.0.0: on all addresses")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65_535, help="the port; 0: any free one")] = PORT,
    durability: Annotated[
        str, typer.Option("--durability", help="force: answered messages survive a power cut; os: the process's death")
    ] = "force",
    users: Annotated[
        Path | None,
        typer.Option("--users", metavar="FILE", parser=path_of, help="lines NAME:SECRET; refuse calls of others"),
    ] = None,
    certificate: Annotated[
        Path | None,
        typer.Option("--certificate", metavar="FILE", parser=path_of, help="a PEM certificate for TLS; with --key"),
    ] = None,
    key: Annotated[
        Path | None, typer.Option("--key", metavar="FILE", parser=path_of, help="its private key, PEM")
    ] = None,
    queues: Annotated[int | None, typer.Option("--queues", min=1, metavar="N", help="of a new topic; 4")] = None,
    fifo_groups: Annotated[
        list[str] | None, typer.Option("--fifo-group", metavar="GROUP", help="gets message groups in order; repeatable")
    ] = None,
    attempts: Annotated[
        int | None, typer.Option("--max-attempts", min=1, metavar="N", help="then a message is a dead letter; 17")
    ] = None,
    create_topics: Annotated[
        bool, typer.Option("--create-topics/--no-create-topics", help="make a topic when a client asks for it")
    ] = True,
    metrics_port: Annotated[
        int | None,
        typer.Option("--metrics-port", min=0, max=65_535, metavar="PORT", help="GET /metrics there, for Prometheus"),
    ] = None,
    metrics_host: Annotated[
        str | None, typer.Option("--metrics-host", metavar="HOST", help="where to listen for that; 127.0.0.1")
    ] = None,
    json: Json = None,
) -> None:
    """Serve a store to RocketMQ 5 clients and to `stratalog.connect`, until SIGTERM or Ctrl-C.

    It makes a store in a new folder. It prints `ready` with the address once clients can connect. TLS and plaintext are
    taken on the one port; without --certificate TLS has a new certificate that signs itself.
    """
    _check_together(certificate, key, durability, port, metrics_host, metrics_port)
    with told():
        names = None if users is None else users_of(users)
        _raise_descriptors()
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # gRPC writes a line for each connection that is no TLS
        try:
            from ..endpoint import CallLog, Certificate, RocketMQEndpoint  # noqa: PLC0415  # an extra
            from ..endpoint.server.server import GrpcServer  # noqa: PLC0415  # as above
        except ImportError as error:
            complain(str(error))
            raise typer.Exit(REFUSED) from error
        tls: Tls = "self-signed"
        if certificate is not None and key is not None:
            tls = Certificate.read(certificate, key)
        options = options_of(queues=queues, fifo_groups=fifo_groups, max_attempts=attempts)
        make = partial(
            RocketMQEndpoint, host=host, port=port, users=names, tls=tls, create_topics=create_topics,
            calls=CallLog(most_calls=0), **options,  # nobody can read a record of calls here
        )  # fmt: skip
        trial = partial(GrpcServer, [], host=host, port=port, tls=tls)
        metrics = None if metrics_port is None else Metrics(metrics_host or "127.0.0.1", metrics_port)
        with output_of(json) as out:
            shown = Shown(out, as_json=json is not None)
            config = StoreConfig(durability=durability)  # type: ignore[arg-type]  # one of the two, see above
            asyncio.run(Serving(folder, config, make, trial, shown, metrics).run())


def options_of(**given: object) -> dict[str, Any]:
    """The options of an endpoint that are not None. Raises typer.BadParameter for one that it would refuse."""
    from ..endpoint import RocketMQOptions  # noqa: PLC0415  # an extra

    options: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    try:
        RocketMQOptions(**options)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    return options


@contextlib.contextmanager
def output_of(json: Path | None) -> Iterator[IO[str]]:
    """Where the results go: standard output, or the file of --json."""
    if json is None or str(json) == "-":
        yield sys.stdout
        return
    with json.open("w") as out:
        yield out


def users_of(path: Path) -> dict[str, str]:
    """The users of a file: lines NAME:SECRET; empty lines and those that begin with # do not count."""
    found: dict[str, str] = {}
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise typer.BadParameter(f"{path} is not UTF-8: {error.reason} at byte {error.start}") from None
    for number, line in enumerate(lines, 1):
        name, colon, secret = line.strip().partition(":")
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        if not colon or not name or not secret:
            raise typer.BadParameter(f"line {number} of {path} is not NAME:SECRET")
        found[name] = secret
    if not found:
        raise typer.BadParameter(f"{path} has no user: all calls would be refused")
    return found


def _check_together(
    certificate: Path | None, key: Path | None, durability: str, port: int, metrics_host: str | None,
    metrics_port: int | None,
) -> None:  # fmt: skip
    """Raises BadParameter if options do not go together, or a durability is none."""
    if (certificate is None) != (key is None):
        raise typer.BadParameter("give --certificate and --key together")
    if metrics_host is not None and metrics_port is None:
        raise typer.BadParameter("give --metrics-host with --metrics-port")
    if metrics_port and metrics_port == port:
        raise typer.BadParameter(f"--port and --metrics-port are both {port}: give two ports")
    if durability not in ("force", "os"):
        raise typer.BadParameter(f"a durability is force or os, not {durability!r}")


def _raise_descriptors() -> None:
    """As many descriptors as the system lets this process have: a connection takes three."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


class Shown:
    """What the command prints: results to `out`, and what passes to standard error if that is a terminal."""

    def __init__(self, out: IO[str], *, as_json: bool) -> None:
        self._to = out
        self._as_json = as_json
        self._is_live = not as_json and messages_console().is_terminal
        self._calls: Counter[str] = Counter()
        self._at_s = time.monotonic()

    def opening(self, folder: Path, begun_s: float) -> None:
        """The opening takes long."""
        read = _bytes_read()
        line = f"opening {folder}: {time.monotonic() - begun_s:.0f} s"
        self._line(line if read is None else f"{line}, {human_bytes(read)} read")

    def ready(self, address: str, metrics: str | None) -> None:
        """Clients can connect; `metrics`: where the metrics are, if anywhere."""
        self._line("")
        found = {"address": address, "pid": os.getpid()} | ({} if metrics is None else {"metrics": metrics})
        self._out(found, f"ready {address}" + ("" if metrics is None else f" metrics {metrics}"))

    def rates(self, server: GrpcServer) -> None:
        """What the last moment had: connections, and calls a second by their names, the most frequent first."""
        if not (self._as_json or self._is_live):
            return
        now_s = time.monotonic()
        passed_s, self._at_s = now_s - self._at_s, now_s
        now = Counter(server.calls.counts)
        rates = {name: round(count / passed_s) for name, count in (now - self._calls).most_common(MOST_NAMES)}
        self._calls = now
        if self._as_json:
            self._out({"connections": server.connections, "calls_per_s": rates, "failed": server.calls.failed}, "")
            return
        parts = [f"{name} {rate:,}/s" for name, rate in rates.items()] or ["no calls"]
        self._line(f"{counted(server.connections, 'connection')}: {', '.join(parts)}; {server.calls.failed:,} failed")

    def stopped(self) -> None:
        """All is closed."""
        self._line("")
        self._out({"stopped": True}, "stopped")

    def _line(self, text: str) -> None:
        """A line that takes the place of the one before it; on a terminal alone."""
        if self._is_live:
            sys.stderr.write(f"\r\x1b[2K{plain(text)}")
            sys.stderr.flush()

    def _out(self, figures: dict[str, Any], text: str) -> None:
        self._to.write(f"{json_module.dumps(figures) if self._as_json else plain(text)}\n")
        self._to.flush()


def _bytes_read() -> int | None:
    """How many bytes this process has read from the disk so far; None where the system does not say."""
    try:
        return int(Path("/proc/self/io").read_text().partition("read_bytes:")[2].split()[0])
    except (OSError, IndexError, ValueError):
        return None


class Metrics:
    """The metrics of a store on a port of their own: GET /metrics. Before it is open, and once it is closed, 503."""

    def __init__(self, host: str, port: int) -> None:
        self.store: MessageStore | None = None
        self.server = WebServer({"/metrics": self._page}, host, port)

    @property
    def url(self) -> str:
        """Where they are."""
        return f"http://{self.server.address}/metrics"

    def _page(self) -> Page | None:
        store = self.store
        try:
            return None if store is None else Page(METRICS_KIND, store.metrics().encode())
        except StoreClosed:
            return None


class Serving:
    """Opens the store, serves it until a signal comes, and closes it. A second signal kills the process."""

    def __init__(
        self,
        folder: Path,
        config: StoreConfig,
        make: Callable[[MessageStore], RocketMQEndpoint],
        trial: Callable[[], GrpcServer],
        shown: Shown,
        metrics: Metrics | None = None,
    ) -> None:
        """`trial` makes a server without services at the same place: what is wrong with that is said before a store is
        made, or opened for minutes."""
        self._metrics = metrics
        self._folder = folder
        self._config = config
        self._make = make
        self._trial = trial
        self._shown = shown
        self._ended = asyncio.Event()

    async def run(self) -> None:
        """Returns when all is closed."""
        loop = asyncio.get_running_loop()
        for one in SIGNALS:
            loop.add_signal_handler(one, self._end)
        server = self._trial()
        await server.start()
        await server.stop(0)
        async with serving(None if self._metrics is None else self._metrics.server):  # first: the port may be taken
            store = await self._opened()
            try:
                if not self._ended.is_set():
                    gc.freeze()  # a full collection does not go through what the opening has made
                    async with self._make(store) as endpoint:
                        await self._serve(endpoint, store)
            finally:
                await store.aclose()
        self._shown.stopped()

    def _end(self) -> None:
        self._ended.set()
        for one in SIGNALS:
            asyncio.get_running_loop().remove_signal_handler(one)
            signal.signal(one, signal.SIG_DFL)

    async def _opened(self) -> MessageStore:
        """The store, opened in a daemon thread: a second signal ends the process, however long the opening takes."""
        loop, begun_s = asyncio.get_running_loop(), time.monotonic()
        opening: asyncio.Future[MessageStore] = loop.create_future()

        def work() -> None:
            try:
                store = MessageStore.open(self._folder, self._config)
            except BaseException as error:  # all of it comes out of the await below
                loop.call_soon_threadsafe(opening.set_exception, error)
            else:
                loop.call_soon_threadsafe(opening.set_result, store)

        threading.Thread(target=work, name="stratalog-opening", daemon=True).start()
        while not (await asyncio.wait([opening], timeout=LOOK_S))[0]:
            self._shown.opening(self._folder, begun_s)
        return opening.result()

    async def _serve(self, endpoint: RocketMQEndpoint, store: MessageStore) -> None:
        if self._metrics is not None:
            self._metrics.store = store
        self._shown.ready(endpoint.address, None if self._metrics is None else self._metrics.url)
        while not self._ended.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._ended.wait(), LOOK_S)
            self._shown.rates(endpoint.server)
