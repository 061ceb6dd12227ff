"""Kills beside a topic that keeps what is not acknowledged: nothing is lost, nothing acknowledged comes again."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path

from stratalog.store import MessageStore
from tests.seeds import draw_seed
from tests.store.helpers import ROOT, small

KILLS = 4
NAMES = ("slow", "ordered")
CHILD = """
import os, random, sys, threading
from stratalog.store import MessageStore
from tests.store.helpers import small

rng = random.Random(sys.argv[2])

def say(*words):
    os.write(1, (" ".join(words) + "\\n").encode())

store = MessageStore.open(sys.argv[1], small(retention_bytes=600_000))
store.configure_topic("t", keep="unacknowledged", retention_ms=rng.choice((None, 200, 1 << 40)))
subs = [store.subscribe("t", "slow"), store.subscribe("t", "ordered", mode="ordered")]

def produce():
    number = 0
    while True:
        names = [f"{sys.argv[2]}-{number + at}" for at in range(rng.randrange(1, 40))]
        number += len(names)
        store.append_batch([("t", number % 3, name.encode() + b"|" + bytes(rng.choice((10, 3000)))) for name in names])
        say("sent", *names)

threading.Thread(target=produce, daemon=True).start()
while True:
    for sub in subs:
        got = sub.receive(rng.randrange(1, 80), wait_ms=50, visibility_timeout_ms=300)
        got = [one for one in got if rng.random() < 0.95]
        names = [one.message.data.partition(b"|")[0].decode() for one in got]
        if names:
            say("tries", sub.name, *names)
            sub.ack_batch(got)
            say("acked", sub.name, *names)
"""


class Told:
    """What killed processes have said."""

    def __init__(self) -> None:
        self.sent = set[str]()
        self.tried = defaultdict[str, set[str]](set)
        self.acked = defaultdict[str, set[str]](set)

    def take(self, output: str) -> None:
        for line in output.split("\n")[:-1]:  # the last one may be cut
            what, *words = line.split()
            if what == "sent":
                self.sent.update(words)
            elif what in ("tries", "acked"):
                (self.tried if what == "tries" else self.acked)[words[0]].update(words[1:])


def killed(path: Path, name: str, after_s: float, output: Path) -> None:
    with output.open("wb") as file:
        child = subprocess.Popen([sys.executable, "-c", CHILD, str(path), name], cwd=ROOT, stdout=file)
        while not output.stat().st_size and child.poll() is None:
            time.sleep(0.01)  # its first messages are about to be durable, or it has ended
        time.sleep(after_s)  # it works; when it is killed is what the test varies
        assert child.poll() is None, "it goes on until it is killed"
        child.kill()
        child.wait()


def has_removed(path: Path) -> bool:
    with MessageStore.open(path, read_only=True) as store:
        return any(store.queue_bounds("t", queue_id)[0] for queue_id in store.queues("t"))


def test_kills_lose_nothing_and_bring_nothing_back(tmp_path: Path) -> None:
    rng, told, life = random.Random(draw_seed()), Told(), 0
    while life < KILLS or not has_removed(tmp_path / "s"):  # a busy machine needs more lives until there is too much
        assert life < 20 * KILLS, "retention removes nothing"
        killed(tmp_path / "s", f"life{life}", rng.uniform(0.1, 1.0), tmp_path / "output")
        told.take((tmp_path / "output").read_text())
        life += 1
    with MessageStore.open(tmp_path / "s", small(retention_bytes=600_000)) as store:
        for name in NAMES:
            sub = store.subscribe("t", name, mode="ordered" if name == "ordered" else "shared")
            came = list[str]()
            while sub.backlog().total and (got := sub.receive(500, wait_ms=5000)):
                came += [one.message.data.partition(b"|")[0].decode() for one in got]
                sub.ack_batch(got)
            assert len(came) == len(set(came))
            assert not told.acked[name] & set(came)
            assert not told.sent - told.tried[name] - set(came), "lost"
        assert not store.stats()["subscriptions"]["removed_unacknowledged"]
