"""What a store needs is loaded with `MessageStore`: later it may be at its limit of descriptors, or somebody else."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

LIFE = """
import asyncio, sys, time
from stratalog import MessageStore, StoreConfig, StoreError

settings = StoreConfig(segment_bytes=1 << 16, max_message_bytes=1 << 16)

async def later(store):
    await store.append_async("orders", 0, b"two")

before = set(sys.modules)
with MessageStore.open(sys.argv[1], settings) as store:
    for number in range(300):
        store.append("orders", number % 4, bytes(500), key=b"%d" % number, properties={"a": "b"})
    store.append("orders", 1, b"later", deliver_at_ms=int(time.time() * 1000) + 50)
    store.append_batch([("orders", 0, b"one")] * 100)
    asyncio.run(later(store))
    store.flush()
    store.read("orders", 0, 0, max_messages=50)
    store.read_batch("orders", 0, 0, max_messages=50)
    store.get_range("orders", 0, 0, 50)
    store.offset_at("orders", 0, 0)
    with store.subscribe("orders", "workers", start="earliest") as workers:
        batch = workers.receive_batch(64, wait_ms=20_000)
        workers.ack_batch(batch.receipts[:32])
        workers.nack(workers.receive(1, wait_ms=20_000)[0].receipt)
        workers.backlog()
    store.trim("orders", 0, 5)
    store.stats()
    try:
        store.read("orders", 0, -1, max_messages=5)
    except StoreError:
        pass
with MessageStore.open(sys.argv[1], read_only=True) as reader:
    reader.read("orders", 0, 5, max_messages=50)
new = set(sys.modules) - before
from stratalog.tools import inspect_folder, verify_folder
before = set(sys.modules)
inspect_folder(sys.argv[1])
verify_folder(sys.argv[1])
print(sorted(new | set(sys.modules) - before))
"""


def test_nothing_is_loaded_once_the_store_is(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LIFE, str(tmp_path / "store")], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.stdout.splitlines()[-1:] == ["[]"], (done.stdout, done.stderr)
