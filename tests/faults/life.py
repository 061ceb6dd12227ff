"""One life of the child with a fault in it, and the check of what it left."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from stratalog.store import MessageStore, verify_folder
from tests.store.helpers import PATIENCE_S, ROOT, payload, tiny

from .child import AGAIN, QUEUE_COUNT, TOPIC, Order, Told

# What the documentation allows at each stage; a read of what was acknowledged and a close never fail.
DOCUMENTED = {
    "open": {"StoreUnusable", "StoreFull"},
    "append": {"StorePoisoned", "StoreFull"},
    "again": {"StorePoisoned", "StoreFull"},
    "flush": {"StorePoisoned"},
}


@dataclass
class Life:
    """What a child told before its end."""

    told: list[Told] = field(default_factory=list)
    errors: list[tuple[str, str, str]] = field(default_factory=list)  # stage, class, text
    poisoned: bool = False

    def names(self, stage: str) -> list[str]:
        """The classes of the errors of a stage, in order."""
        return [name for found, name, _ in self.errors if found == stage]


def live(order: Order, before: Sequence[str] = (), limit_s: float = PATIENCE_S) -> Life:
    """Run the child, by way of the command `before` if there is one, and judge its errors."""
    (life,) = lives([order], before, limit_s)
    return life


def lives(orders: Sequence[Order], before: Sequence[str] = (), limit_s: float = PATIENCE_S) -> list[Life]:
    """A life for each order. All of them are forked from one process: it starts for longer than a life takes."""
    command = [*before, sys.executable, "-m", "tests.faults.child", *(order.as_json() for order in orders)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=limit_s, check=False)
    assert done.returncode == 0, (orders, done.stderr)
    found, life = [], Life()
    for line in map(json.loads, done.stdout.splitlines()):
        life.told += [(queue, offset, seed, length) for queue, offset, seed, length in line.get("told", ())]
        if "error" in line:
            stage, name, text = line["error"]
            life.errors.append((stage, name, text))
        if "end" in line:
            life.poisoned = line["end"]
            check_errors(life)
            found.append(life)
            life = Life()
    assert len(found) == len(orders), (orders, done.stderr)
    return found


def check_errors(life: Life) -> None:
    """Every error is one that the documentation names for its stage, and poison is for good."""
    for stage, name, text in life.errors:
        assert name in DOCUMENTED.get(stage, ()), f"{stage}: {name}: {text}"
        assert len(text) > 20, "an error is a sentence"
    if "StorePoisoned" in life.names("append"):
        assert life.names("again") == ["StorePoisoned"] * AGAIN, "a poisoned store accepted a message"
        assert life.names("flush") == ["StorePoisoned"]
        assert life.poisoned


def check_recovered(path: Path, told: Sequence[Told]) -> None:
    """Opened again without the fault, the store has all that was acknowledged, is whole, and goes on."""
    known: list[dict[int, tuple[int, int]]] = [{} for _ in range(QUEUE_COUNT)]
    for queue, offset, seed, length in told:
        assert offset not in known[queue], f"offset {offset} of queue {queue} was given twice"
        known[queue][offset] = (seed, length)
    with MessageStore.open(path, tiny()) as store:
        assert not store.losses
        for queue, rows in enumerate(known):
            first, end = store.queue_bounds(TOPIC, queue)
            assert first == 0
            assert end > max(rows, default=-1), f"queue {queue} ends at {end}, {max(rows)} was acknowledged"
            at = 0
            while at < end:
                batch = store.read_batch(TOPIC, queue, at, max_messages=1000)
                assert batch.offsets.tolist() == list(range(at, at + len(batch)))
                for offset, data in zip(batch.offsets.tolist(), batch.payloads(), strict=True):
                    assert offset not in rows or data == payload(*rows[offset]), f"queue {queue}, offset {offset}"
                at += len(batch)
            assert store.append(TOPIC, queue, b"on") == end
    if (path / "STORE").exists():
        assert verify_folder(path).ok
