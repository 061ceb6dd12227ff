"""RocksDB and LMDB, where they are installed: `pip install -e '.[peers]'`."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from stratalog.perf.references.peers import KEY, Lmdb, PeerMissing, RocksDb, load


def test_missing_peer_says_what_to_install() -> None:
    with pytest.raises(PeerMissing, match="pip install"):
        load("no_such_peer")


def log_files(folder: Path) -> dict[int, int]:
    """Inode -> length of the write-ahead logs."""
    return {os.stat(path).st_ino: os.stat(path).st_size for path in folder.glob("*.log")}


def test_rocksdb_keeps_what_was_written_and_recycles_its_logs(tmp_path: Path) -> None:
    pytest.importorskip("rocksdict", reason="the peers are not installed")
    database = RocksDb(tmp_path / "rocksdb")
    database.warm_up(3 << 20)
    before = log_files(tmp_path / "rocksdb")
    items = [(KEY.pack(index % 3, index // 3), os.urandom(100)) for index in range(300)]
    database.write(items[:200])
    database.write(items[200:])
    after = log_files(tmp_path / "rocksdb")
    assert after.keys() <= before.keys()  # no new file
    assert all(size >= 3 << 20 for size in after.values())  # written over what was there
    assert list(database.items()) == sorted(items)
    database.close()


@pytest.fixture
def lmdb(tmp_path: Path) -> Lmdb:
    """Three queues of 0, 5 and 7 messages; the last one is the last of the database."""
    pytest.importorskip("lmdb", reason="the peers are not installed")
    made = Lmdb(tmp_path / "lmdb")
    made.write([(KEY.pack(queue, at), b"%d-%d" % (queue, at)) for queue, end in ((1, 5), (2, 7)) for at in range(end)])
    made.flush()
    return made


@pytest.mark.parametrize(
    ("queue", "offset", "count", "expected"),
    [
        (1, 0, 5, range(5)), (1, 0, 3, range(3)), (1, 2, 2, range(2, 4)), (1, 3, 10, range(3, 5)),
        (1, 0, 100, range(5)), (2, 0, 7, range(7)), (2, 0, 100, range(7)), (2, 6, 1, range(6, 7)),
        (2, 7, 5, range(0)), (0, 0, 3, range(0)), (1, 5, 1, range(0)),
    ],
)  # fmt: skip
def test_lmdb_gives_one_queue_and_no_more(lmdb: Lmdb, queue: int, offset: int, count: int, expected: range) -> None:
    assert lmdb.get_range(queue, offset, count) == [b"%d-%d" % (queue, at) for at in expected]
    lmdb.close()
