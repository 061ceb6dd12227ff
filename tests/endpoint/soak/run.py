"""Deaths of an endpoint under running official clients: by SIGKILL of its process, or by power cuts of its disk."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal

from stratalog import MessageStore
from stratalog.endpoint import RocketMQHarness, RocketMQProcess
from stratalog.endpoint.harness.sent import sent_to

from .client import GROUP, RECEIVERS, TOPIC
from .ledger import Ledger

Kind = Literal["kill", "power cut"]
KINDS: tuple[Kind, ...] = ("kill", "power cut")
NODE_SCRIPT = Path(__file__).parent / "client.js"
ROOT = Path(__file__).resolve().parents[3]
PATIENCE_S = 150.0  # gRPC's clients rest for up to two minutes between two attempts to connect
MOST_LIFE_S = 1.0
IDLE = 2 * RECEIVERS  # receives without a message, one after the other: nothing is left


def run(
    folder: Path,
    kind: Kind,
    deaths: int,
    seed: int,
    tick: Callable[[int, Ledger], None] = lambda death, ledger: None,
    node: Path | None = None,
) -> Ledger:
    """Let the endpoint die so often; what clients were told, held against the store. Raises Violation.

    node: a folder that has the official Node client, for a run with that; None: Python's.
    """
    chance, ledger = random.Random(seed), Ledger()
    broker: RocketMQProcess | RocketMQHarness
    if kind == "kill":
        broker = RocketMQProcess(folder / "broker")
    else:
        broker = RocketMQHarness(folder / "broker", durability="force", seed=seed)
    with broker, _client(broker.address, ledger, node) as client:
        for death in range(deaths):
            _wait_for_progress(ledger)
            time.sleep(chance.uniform(0, MOST_LIFE_S))  # the moment of its death is drawn
            if isinstance(broker, RocketMQProcess):
                broker.kill()
            else:
                broker.power_cut()
            broker.start()
            tick(death + 1, ledger)
        _wait_for_progress(ledger)
        assert client.stdin is not None
        client.stdin.write(b"quiet\n")
        client.stdin.flush()
        ledger.wait(lambda: ledger.idle >= IDLE, PATIENCE_S, "consumers have all")
        if isinstance(broker, RocketMQHarness):
            broker.wait_until_idle(GROUP, timeout_s=PATIENCE_S)
            stored = [message.body.decode() for message in broker.sent(TOPIC)]
    if isinstance(broker, RocketMQProcess):
        with MessageStore.open(broker.folder) as store:
            stored = [message.body.decode() for message in sent_to(store, TOPIC)]
    ledger.check(stored)
    return ledger


def _wait_for_progress(ledger: Ledger) -> None:
    """Wait until clients send and consume again."""
    sent, acked = len(ledger.sent), len(ledger.acked)
    ledger.wait(lambda: len(ledger.sent) > sent and len(ledger.acked) > acked, PATIENCE_S, "clients go on")


@contextmanager
def _client(address: str, ledger: Ledger, node: Path | None) -> Iterator[subprocess.Popen[bytes]]:
    """The clients' process, whose lines go to the ledger."""
    if node is None:
        path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
        command, changed = [sys.executable, "-m", "tests.endpoint.soak.client", address], {"PYTHONPATH": path}
    else:
        command, changed = ["node", str(NODE_SCRIPT), address], {"HOME": str(node)}  # it writes its logs there
    child = subprocess.Popen(
        command, cwd=node or ROOT, env={**os.environ, **changed},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    assert child.stdin is not None and child.stdout is not None
    lines = child.stdout

    def read() -> None:
        for line in lines:
            if line.endswith(b"\n"):  # else it was killed in the middle of it
                ledger.note(json.loads(line))

    reader = threading.Thread(target=read)
    reader.start()
    try:
        yield child
    finally:
        with suppress(OSError):
            child.stdin.close()
        try:
            child.wait(10)
        except subprocess.TimeoutExpired:
            child.kill()  # the official client may hang at its end, see its traps
            child.wait()
        reader.join()
        lines.close()
