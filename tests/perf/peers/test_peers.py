"""Every adapter keeps what it was given: appends, batches, pipelines, ranges, jobs. Servers where they are there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from itertools import islice
from pathlib import Path

import pytest

from stratalog.perf.experiments.peers_jobs import check_jobs, one_job, take_some
from stratalog.perf.experiments.peers_work import fill, run_ready
from stratalog.perf.peers import nats, queues, redis, store
from stratalog.perf.peers.found import NAMES, OURS, PEERS, found
from stratalog.perf.peers.messages import Messages
from stratalog.perf.peers.peer import (
    APPEND,
    BATCH,
    JOB_BATCHES,
    JOBS,
    PIPELINED,
    RANGES,
    RECOVERY,
    SCAN,
    Peer,
    PeerMissing,
    load,
)
from stratalog.perf.peers.rocksdb import RocksDb
from stratalog.perf.peers.store import Store
from stratalog.perf.workload.checker import WrongResult
from stratalog.perf.workload.contest import Sizes

QUEUES = 3
WORKERS, OF_WORKER = 4, 5


@pytest.fixture
def messages() -> Messages:
    return Messages(7, Sizes.parse("small"))


def able(*works: str) -> pytest.MarkDecorator:
    """One test for each peer that can do one of these."""
    kinds = [kind for kind in (*OURS, *PEERS) if kind.WORKS & set(works)]
    return pytest.mark.parametrize("kind", kinds, ids=[kind.NAME for kind in kinds])


@contextmanager
def opened(kind: type[Peer], folder: Path) -> Iterator[Peer]:
    try:
        kind.version()
    except PeerMissing as error:
        pytest.skip(str(error))
    with closing(kind(folder, 1 << 20)) as peer:
        yield peer


@able(APPEND, BATCH, PIPELINED)
def test_all_ways_to_write_keep_every_message_in_order(kind: type[Peer], tmp_path: Path, messages: Messages) -> None:
    rows, count = messages.rows(QUEUES), 0
    with opened(kind, tmp_path) as peer:
        if APPEND in kind.WORKS:
            for row in islice(rows, 9):
                peer.append(row)
            count += 9
        if BATCH in kind.WORKS:
            peer.append_batch(peer.batch_of(list(islice(rows, 21))))
            count += 21
        if PIPELINED in kind.WORKS:
            peer.pipelined(islice(rows, 33))
            count += 33
        assert messages.check(peer.read_all(), messages.shares(count, QUEUES)) == count


@able(RANGES)
def test_ranges_are_of_one_queue_and_no_more(kind: type[Peer], tmp_path: Path, messages: Messages) -> None:
    with opened(kind, tmp_path) as peer:
        peer.append_batch(peer.batch_of(list(islice(messages.rows(QUEUES), 5 * QUEUES))))
        for queue in range(QUEUES):
            for number, count, came in ((0, 5, 5), (1, 3, 3), (3, 10, 2), (4, 1, 1)):
                expected = [messages.make(queue, number + at) for at in range(came)]
                assert [bytes(data) for data in peer.read(queue, number, count)] == expected


@able(JOBS)
def test_jobs_come_once_each_in_their_order(kind: type[Peer], tmp_path: Path, messages: Messages) -> None:
    jobs = [messages.make(0, number) for number in range(6)]
    came: list[bytes] = []
    with opened(kind, tmp_path) as peer:
        for job in jobs[:2]:
            peer.put([job])
        peer.put(jobs[2:])
        while len(came) < len(jobs):
            taken = peer.take(2 if JOB_BATCHES in kind.WORKS else 1)
            assert taken
            peer.ack([receipt for receipt, _ in taken])
            came += [data for _, data in taken]
    assert came == jobs


@able(JOBS)
def test_threads_share_the_jobs_and_none_comes_back_after_its_acknowledgement(
    kind: type[Peer], tmp_path: Path, messages: Messages, monkeypatch: pytest.MonkeyPatch
) -> None:
    received: list[list[bytes]] = [[] for _ in range(WORKERS)]
    with opened(kind, tmp_path) as peer:
        one_job(peer, messages.make(WORKERS, 0))

        def work(worker: int, end: float) -> None:
            for number in range(OF_WORKER):
                peer.put([messages.make(worker, number)])
                ((receipt, job),) = take_some(peer, 1)
                peer.ack([receipt])
                received[worker].append(job)

        run_ready(peer, 0.0, [partial(work, worker) for worker in range(WORKERS)])
        jobs = (job for some in received for job in some)
        assert check_jobs(messages, [OF_WORKER] * WORKERS, jobs) == OF_WORKER * WORKERS
    monkeypatch.setattr(store, "WAIT_MS", 50)
    monkeypatch.setattr(queues, "TAKE_S", 0.05)
    monkeypatch.setattr(nats, "TAKE_S", 0.2)
    with opened(kind, tmp_path) as peer:
        assert peer.take(1) == []


@able(SCAN)
def test_everything_that_is_read_is_bytes_of_its_own(kind: type[Peer], tmp_path: Path, messages: Messages) -> None:
    with opened(kind, tmp_path) as peer:
        written = fill(peer, messages, 4000)
        found = [type(data) for chunk in peer.read_all() for data in chunk]
        assert found == [bytes] * sum(written.values())


def test_nothing_is_prepared_for_the_store(tmp_path: Path) -> None:
    with closing(Store(tmp_path, 64 << 20)):
        assert sum(path.stat().st_size for path in tmp_path.rglob("*")) < 1 << 20


@able(RECOVERY)
def test_closed_peer_has_all_when_it_is_opened_again(kind: type[Peer], tmp_path: Path, messages: Messages) -> None:
    with opened(kind, tmp_path) as peer:
        written = fill(peer, messages, 4000)
    with opened(kind, tmp_path) as peer:
        assert messages.check(peer.read_all(), written) == sum(written.values()) > 0


def log_files(folder: Path) -> dict[int, int]:
    """Inode -> length of the write-ahead logs."""
    return {path.stat().st_ino: path.stat().st_size for path in folder.glob("*.log")}


def test_rocksdb_writes_over_the_logs_that_were_prepared(tmp_path: Path, messages: Messages) -> None:
    with closing(RocksDb(tmp_path, 3 << 20)) as database:
        before = log_files(tmp_path)
        database.append_batch(database.batch_of(list(islice(messages.rows(QUEUES), 30))))
        after = log_files(tmp_path)
        assert after.keys() <= before.keys()  # no new file
        assert all(size >= 3 << 20 for size in after.values())  # written over what was there
        assert messages.check(database.read_all(), messages.shares(30, QUEUES)) == 30


def test_rocksdb_is_set_as_its_page_advises(tmp_path: Path) -> None:
    with closing(RocksDb(tmp_path)):
        (path,) = tmp_path.glob("OPTIONS-*")
        options = dict(re.findall(r"^\s+(\w+)=(.*)$", path.read_text(), re.MULTILINE))
    expected = {
        "block_size": "16384", "cache_index_and_filter_blocks": "true", "format_version": "6",
        "pin_l0_filter_and_index_blocks_in_cache": "true", "bytes_per_sync": "1048576", "max_background_jobs": "6",
        "compaction_pri": "kMinOverlappingRatio", "level_compaction_dynamic_level_bytes": "true",
    }  # fmt: skip
    assert {name: options[name] for name in expected} == expected


def test_missing_package_says_what_to_install() -> None:
    with pytest.raises(PeerMissing, match="pip install"):
        load("no_such_peer")


def test_peer_that_is_not_there_is_left_out_with_a_sentence_that_says_how_to_get_it() -> None:
    here, missing = found(["lmdb", "redis"], {redis.Redis: Path("/nowhere/redis-server")})
    assert [one.kind.NAME for one in here] == ["store", "store.columns", "store.queues", "lmdb"]
    (sentence,) = missing
    assert (
        sentence.startswith("Redis Streams is left out: /nowhere/redis-server is not there") and "apt-get" in sentence
    )
    assert len(set(NAMES)) == len(NAMES)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda all_: all_[:-1], "holds"),
        (lambda all_: [all_[1], all_[0], *all_[2:]], "message"),
        (lambda all_: [*all_, all_[-1]], "message"),
        (lambda all_: [*all_[:-1], all_[-1][:-1] + bytes([all_[-1][-1] ^ 1])], "message"),
        (lambda all_: [b"", *all_], "message"),
    ],
    ids=["lost", "out of order", "twice", "a flipped bit", "no message"],
)  # fmt: skip
def test_check_finds_what_is_not_as_it_was_written(messages: Messages, change: object, said: str) -> None:
    written = [messages.make(0, number) for number in range(4)]
    assert messages.check([written], {0: 4}) == 4
    assert messages.check([written], {0: 3}, at_least=True) == 4  # more than was acknowledged before a kill
    assert callable(change)
    with pytest.raises(WrongResult, match=said):
        messages.check([change(written)], {0: 4}, at_least=True)
