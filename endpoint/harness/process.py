"""A store and its endpoint in a process of its own, which a test can kill."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Literal

from .starting import POLL_MS

PROGRAM = "stratalog.endpoint.harness.child"


class RocketMQProcess:
    """A child process that serves a folder to RocketMQ's clients.

        with RocketMQProcess(tmp_path / "broker") as rocketmq:
            ...
            rocketmq.kill()
            rocketmq.start()  # on the same folder and port

    What the process says goes to the file `<folder>.log`.
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        durability: Literal["os", "force"] = "os",
        port: int = 0,
        start_s: float = 60.0,
        stop_s: float = 30.0,
        **options: Any,
    ) -> None:
        """
        Args:
            folder: of the store; it stays.
            durability: "os": what was answered survives `kill`; "force": a power cut, too.
            port: 0 is any free one; it stays the same after the first start.
            start_s, stop_s: how long a start and a stop may take, in seconds.
            options: of the `RocketMQEndpoint`, as `fifo_groups=["billing"]`: those that JSON can say.
        """
        self.folder = Path(folder)
        self.log = self.folder.with_name(f"{self.folder.name}.log")
        self._durability = durability
        self._options: dict[str, Any] = {"long_polling_ms": POLL_MS, **options, "port": port}
        self._start_s, self._stop_s = start_s, stop_s
        self._address = ""
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """`host:port`, as clients take it. It stays the same. Raises RuntimeError before the first start."""
        if not self._address:
            raise RuntimeError("the process was not started yet: call start()")
        return self._address

    @property
    def pid(self) -> int:
        """The number of the process. Raises RuntimeError while none runs."""
        return self._running().pid

    def start(self) -> None:
        """Start it, and wait until clients can connect. Raises RuntimeError if it runs, or does not start: with what
        it said."""
        if self._process is not None:
            raise RuntimeError("the process runs already")
        given = {"folder": str(self.folder), "durability": self._durability, "options": self._options}
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", PROGRAM, json.dumps(given)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, start_new_session=True,
            )  # fmt: skip
        assert self._process.stdout is not None
        line = _line(self._process.stdout, self._start_s)
        if not line.startswith("ready "):
            self.kill()
            raise RuntimeError(f"the process has not started: {line}{_end_of(self.log)}")
        self._address = line.removeprefix("ready ").strip()
        self._options["port"] = int(self._address.rpartition(":")[2])

    def stop(self) -> None:
        """SIGTERM: it closes the store, and ends. Raises RuntimeError if it does not in time; then it is killed."""
        if self._process is None:
            return
        process = self._process
        process.send_signal(signal.SIGCONT)
        process.terminate()
        try:
            process.wait(self._stop_s)
        except subprocess.TimeoutExpired:
            raise RuntimeError(f"the process has not ended in {self._stop_s} s{_end_of(self.log)}") from None
        finally:
            self.kill()

    def restart(self) -> None:
        """`stop` and `start`: all is kept, and clients that run connect again."""
        self.stop()
        self.start()

    def kill(self) -> None:
        """SIGKILL, at once. What the store has written stays. Then `start` again. A second call does nothing."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()

    def pause(self) -> None:
        """SIGSTOP: it stands still, and its connections stay open, until `resume`."""
        self._running().send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        self._running().send_signal(signal.SIGCONT)

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise RuntimeError("the process does not run: call start()")
        return self._process

    def __enter__(self) -> RocketMQProcess:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.stop()
        else:
            self.kill()


def _line(pipe: IO[bytes], within_s: float) -> str:
    """The first line that comes; what has come of it after that time, or at the end."""
    end_s, found = time.monotonic() + within_s, b""
    while not found.endswith(b"\n"):
        left_s = end_s - time.monotonic()
        if left_s <= 0 or not select.select([pipe], [], [], left_s)[0]:
            break
        data = os.read(pipe.fileno(), 4096)
        if not data:
            break
        found += data
    return found.decode(errors="replace")


def _end_of(log: Path) -> str:
    text = log.read_text(errors="replace").strip() if log.exists() else ""
    return f"\n{text[-2000:]}" if text else ""
