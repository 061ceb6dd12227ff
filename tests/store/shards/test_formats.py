"""The bytes of records, manifests and indexes: kept, read back, and refused when they are damaged."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Callable

import pytest

from stratalog.store.format import applied
from stratalog.store.format.applied import (
    HISTORY,
    IN_PART,
    NO_BATCH,
    AppliedCommit,
    AppliedRecord,
    add_applied,
    batches_in,
    check_applied,
    pack_applied,
    unpack_applied,
)
from stratalog.store.format.layout import SUM, checksum64
from stratalog.store.format.records import Record
from stratalog.store.format.shard import CommitBefore, Manifest, ShardIndex

from ...seeds import draw_seed
from .. import golden


def test_a_record_is_read_back_from_its_kept_bytes() -> None:
    kept = golden.fixture("record-applied")
    assert AppliedRecord.unpack(kept) == AppliedRecord(golden.BATCH, golden.SHARDS)
    assert Record.unpack(kept) is None
    assert AppliedRecord.unpack(golden.fixture("record-trim")) is None


@pytest.mark.parametrize("size", range(len(golden.all_parts()["record-applied"])))
def test_a_record_that_is_cut_is_none(size: int) -> None:
    assert AppliedRecord.unpack(golden.fixture("record-applied")[:size]) is None


def test_a_footers_commits_are_read_back_and_a_flipped_bit_is_found() -> None:
    section = golden.applied_footer().applied
    assert section.ljust((len(section) + 7) & -8, b"\0") in golden.fixture("footer-applied")
    assert set(unpack_applied(section).values()) == {golden.BATCH, golden.TRANSACTION}
    for bit in range(8 * len(section)):
        damaged = bytearray(section)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(ValueError, match="checksum"):
            unpack_applied(bytes(damaged))


def test_a_check_without_a_table_refuses_what_the_table_is_refused_for() -> None:
    """Of bytes with the right checksum that nobody could have written, too."""
    chance = random.Random(draw_seed())
    entries = [
        AppliedCommit(f"n\u00e4me-{number}", chance.choice((NO_BATCH, number)), number, 1, chance.randrange(2),
                older=((1, 2),) * chance.randrange(3), in_frames=False)
        for number in range(12)
    ]  # fmt: skip
    whole = pack_applied({one.key: one for one in entries})[SUM.size :]
    outcomes = set()
    for _ in range(3000):
        body = bytearray(whole[: chance.choice((len(whole), chance.randrange(1, len(whole))))])
        for _ in range(chance.randrange(3)):
            body[chance.randrange(len(body))] = chance.choice((0, 1, 2, 3, 4, 127, 255))
        section = SUM.pack(checksum64(bytes(body))) + body
        said = [_refused(check_applied, section), _refused(unpack_applied, section)]
        assert said[0] == said[1]
        outcomes.add(said[0])
    assert outcomes == {True, False}
    assert not _refused(check_applied, b"")
    assert all(_refused(check_applied, section[:size]) for size in range(1, SUM.size))


def _refused(read: Callable[[bytes], object], section: bytes) -> bool:
    try:
        read(section)
    except ValueError:
        return True
    return False


def test_nothing_is_held_of_a_section_that_was_looked_at() -> None:
    """Sections grow with the commits: what is kept of them belongs to a lane, which goes with its store."""
    entries = [AppliedCommit(f"transaction-{number}", NO_BATCH, number, 0, 0) for number in range(5000)]
    section = pack_applied({one.key: one for one in entries})
    its = [tracemalloc.Filter(True, applied.__file__)]
    tracemalloc.start()
    try:
        check_applied(section)
        unpack_applied(section)
        left = sum(trace.size for trace in tracemalloc.take_snapshot().filter_traces(its).traces)
        assert left < 300_000  # a table has 1.4 MB; the interpreter keeps some tuples for the next ones
    finally:
        tracemalloc.stop()


def test_a_store_without_commits_has_the_footers_that_it_always_had() -> None:
    assert pack_applied({}) == b""
    assert golden.fixture("footer") == golden.footer_data().pack(7)


def test_a_query_remembers_its_newest_batches() -> None:
    known: AppliedCommit | None = None
    for batch in range(HISTORY + 10):
        known = AppliedCommit("q", batch, 100 + batch, 1, 1).behind(known)
    assert known is not None
    table = unpack_applied(pack_applied({known.key: known}))
    assert batches_in([table], "q", 0) == {at: 100 + at for at in range(9, HISTORY + 10)}
    assert batches_in([table], "q", NO_BATCH) == {}
    add_applied(table, [AppliedCommit("q", 3, 0, 1, 1)])
    assert table == {known.key: known}


def test_a_manifest_is_read_back_and_a_flipped_bit_is_found() -> None:
    kept = golden.fixture("manifest")
    assert Manifest.unpack(kept) == golden.MANIFEST
    for bit in range(8 * len(kept)):
        damaged = bytearray(kept)
        damaged[bit // 8] ^= 1 << bit % 8
        assert Manifest.unpack(bytes(damaged)) is None
    for size in range(len(kept)):
        assert Manifest.unpack(kept[:size]) is None


def test_an_index_is_read_back() -> None:
    found = ShardIndex.unpack(golden.fixture("shard-index"), "index")
    assert found is not None
    assert (found.store_id, found.lane, found.rows, found.data_end) == (golden.STORE_ID, 3, 4, 20_000)
    assert (found.head_bytes.tolist(), found.sums.tolist()) == ([100, 200], [1 << 63, 7])
    assert ShardIndex.unpack(golden.fixture("shard-index")[:-1], "index") is None
    assert ShardIndex.unpack(b"", "index") is None


def test_lanes_that_remember_other_rows_of_a_batch_have_it_in_part() -> None:
    """As a repair leaves it that has given up what one of them should have."""
    whole, part = AppliedCommit("q", 5, 77, 1, 1), AppliedCommit("q", 5, IN_PART, 0, 0, in_frames=True)
    tables = [{whole.key: whole}, {part.key: part}, {}]
    assert batches_in(tables, "q", 5) == batches_in(tables[::-1], "q", 5) == {5: IN_PART}
    later = AppliedCommit("q", 6, 78, 1, 1).behind(part)
    assert batches_in([*tables, {later.key: later}], "q", 7) == {5: IN_PART, 6: 78}


def test_a_manifest_names_the_one_before_it() -> None:
    before = CommitBefore("000000000001-00000000.manifest", "q", 3, 12)
    manifest = Manifest(bytes(16), "r", NO_BATCH, True, (), before)
    assert Manifest.unpack(manifest.pack()) == manifest
    assert b"before" not in manifest._replace(before=None).pack()
