"""A store and its endpoint in the process of a test: it can be stopped, killed, cut from power, and moved in time."""

from __future__ import annotations

import contextlib
import random
import time
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

from stratalog import MessageStore, StoreConfig, StoreError
from stratalog.testing import MANNERS, Manner, SimulatedDisk

from ..faults import CallLog, FaultTable
from ..rocketmq.endpoint import RocketMQEndpoint
from .clock import RunningClock
from .sent import SentMessage, sent_to
from .starting import POLL_MS, started

GRACE_S = 0.5
LOOK_S = 0.05  # what a group has may also change without a call: a message expires, or goes to the dead letters
MOST_CALLS, MOST_REQUEST_BYTES = 100_000, 256 << 20


class RocketMQHarness:
    """A store with an endpoint, for tests. From any thread.

        with RocketMQHarness(tmp_path / "broker") as rocketmq:
            producer = Producer(ClientConfiguration(rocketmq.address, Credentials()), ["orders"])

    It keeps its port, its faults, its record of calls and its clock while the store ends and begins again.

    Attributes:
        clock: the store's. It runs, and `clock.advance(ms=...)` lets time pass at once: what is due then comes now.
        faults: what goes wrong with calls, see `FaultTable`.
        calls: what clients have asked, see `CallLog`.
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        disk: Literal["simulated", "folder"] = "simulated",
        durability: Literal["os", "force"] = "os",
        seed: int = 0,
        port: int = 0,
        **options: Any,
    ) -> None:
        """
        Args:
            folder: of the store.
            disk: "simulated": the store is in memory, on a `SimulatedDisk`, and can be killed and cut from power;
                "folder": in files.
            durability: "os": what was answered survives `kill`; "force": it survives `power_cut`, too.
            seed: of what a power cut leaves, and of faults with a `share`.
            port: 0 is any free one; it stays the same after the first start.
            options: of the `RocketMQEndpoint`, as `fifo_groups=["billing"]`. Push consumers wait for a second here, if
                `long_polling_ms` is not given.

        Raises ValueError: there is no such disk.
        """
        if disk not in ("simulated", "folder"):
            raise ValueError(f'disk is "simulated" or "folder", not {disk!r}')
        self.folder = Path(folder)
        self.clock = RunningClock()
        self.faults = FaultTable(seed)
        self.calls = CallLog(most_calls=MOST_CALLS, most_request_bytes=MOST_REQUEST_BYTES)
        self._disk = SimulatedDisk() if disk == "simulated" else None
        self._config = StoreConfig(durability=durability, lanes=1)  # one log: `sent` has the order of all messages
        self._chance = random.Random(seed)
        self._port = port
        self._address = ""
        self._options = {"long_polling_ms": POLL_MS, "grace_s": GRACE_S, **options}
        self._store: MessageStore | None = None
        self._endpoint: RocketMQEndpoint | None = None

    # -- what there is ------------------------------------------------------------------------------------

    @property
    def store(self) -> MessageStore:
        """The store that is open now. Raises RuntimeError while none is."""
        if self._store is None:
            raise RuntimeError("the endpoint is down: call start()")
        return self._store

    @property
    def endpoint(self) -> RocketMQEndpoint:
        """The endpoint that runs now. Raises RuntimeError while none does."""
        if self._endpoint is None:
            raise RuntimeError("the endpoint is down: call start()")
        return self._endpoint

    @property
    def address(self) -> str:
        """`host:port`, as clients take it. It stays the same. Raises RuntimeError before the first start."""
        if not self._address:
            raise RuntimeError("the endpoint was not started yet: call start()")
        return self._address

    @property
    def is_running(self) -> bool:
        """Whether clients can connect."""
        return self._endpoint is not None

    def sent(self, topic: str) -> list[SentMessage]:
        """The messages of a topic that are in the store, in the order in which they were stored: also those that were
        consumed, and those that are due later. A half message of a transaction is not there before its commit."""
        return sent_to(self.store, topic)

    def wait_until_idle(
        self, group: str, topic: str | None = None, *, with_delayed: bool = True, timeout_s: float = 10.0
    ) -> None:
        """Wait until a consumer group has acknowledged all messages of its topics, or of the one.

        A group that has never received is not idle. Without `with_delayed`, messages that come later do not count.
        Raises TimeoutError, with what is left.
        """
        end_s = time.monotonic() + timeout_s
        while True:
            infos = self.store.subscriptions(topic)  # without a topic all of them: a test's store has few
            left = {one.topic: one.backlog for one in infos if one.name == group}
            counts = [each.total - (0 if with_delayed else each.delayed) for each in left.values()]
            if counts and not any(counts):
                return
            rest_s = end_s - time.monotonic()
            if rest_s <= 0:
                raise TimeoutError(
                    f"the group {group} is not idle after {timeout_s} s: {left or 'it has not received'}"
                )
            self.calls.wait_for_change(min(LOOK_S, rest_s))

    # -- its life -----------------------------------------------------------------------------------------

    def start(self) -> None:
        """Open the store, and listen: on the same port as before. Raises RuntimeError if it runs; errors of both."""
        if self._endpoint is not None:
            raise RuntimeError("the endpoint runs already")
        self._store = MessageStore.open(self.folder, self._config, disk=self._disk, clock=self.clock)
        try:
            make = partial(
                RocketMQEndpoint, self._store, port=self._port, faults=self.faults, calls=self.calls, **self._options
            )
            self._endpoint = started(make)
        except BaseException:
            self._leave_store()
            raise
        self._port, self._address = self._endpoint.server.port, self._endpoint.address

    def stop(self) -> None:
        """End as a program does that is asked to: calls are answered, the store is closed. A second call does
        nothing."""
        endpoint, self._endpoint = self._endpoint, None
        try:
            if endpoint is not None:
                endpoint.stop()
        finally:
            store, self._store = self._store, None
            if store is not None:
                store.close()

    def restart(self) -> None:
        """`stop` and `start`: all is kept, and clients that run connect again."""
        self.stop()
        self.start()

    def kill(self) -> None:
        """Die as by SIGKILL: no call is answered, nothing is closed. What the store has written stays. Then `start`
        again.

        Raises RuntimeError if nothing runs, and with `disk="folder"`: a process can be killed, see `RocketMQProcess`.
        """
        disk = self._simulated()
        self._disk = self.endpoint.kill(disk.kill)
        self._leave_store()

    def power_cut(self, manner: Manner | None = None) -> None:
        """Die as by a power cut: of what the store has not forced, a part or nothing is left. Then `start` again.

        `manner`: what is left, see `stratalog.testing.MANNERS`; None draws one by the seed. Raises as `kill` does, and
        ValueError for a manner that there is not.
        """
        if manner is not None and manner not in MANNERS:
            raise ValueError(f"manner is one of {', '.join(MANNERS)}, or None, not {manner!r}")
        disk = self._simulated()
        self._disk = self.endpoint.kill(lambda: disk.crash(self._chance, manner))
        self._leave_store()

    def _simulated(self) -> SimulatedDisk:
        if self._disk is None:
            raise RuntimeError('only disk="simulated" can be killed or cut from power; RocketMQProcess has files')
        return self._disk

    def _leave_store(self) -> None:
        """The old store ends on its old disk, which nobody sees any more."""
        store, self._store, self._endpoint = self._store, None, None
        if store is not None:
            with contextlib.suppress(StoreError):
                store.close()

    def reset(self) -> None:
        """Begin anew, while clients run: no topics, groups, transactions, faults, and no calls on record."""
        self.faults.clear()
        self.endpoint.reset()
        self.calls.clear()

    def disconnect(self) -> None:
        """Reset all connections that clients have. They connect again."""
        self.endpoint.disconnect()

    def close(self) -> None:
        """`stop`, and end the clock. `with` does it. A second call does nothing."""
        self.faults.clear()
        try:
            self.stop()
        finally:
            self.clock.close()

    def __enter__(self) -> RocketMQHarness:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
