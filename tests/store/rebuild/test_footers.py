"""Lost footers are made again byte for byte, and only where nothing has to be guessed."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import numpy as np
import pytest

from stratalog.store import (
    MessageStore,
    ShardWriter,
    StoreCorrupt,
    StoreLocked,
    StoreUnusable,
    commit_shards,
    rebuild_store,
    verify_folder,
)
from stratalog.store.api import rebuilding as rebuilding_module
from stratalog.store.format.layout import SEALED, SealRecord
from stratalog.store.rebuild import footers as footers_module
from stratalog.store.rebuild.footers import MadeFooter
from tests.seeds import draw_seed

from ..helpers import (
    crash_copy,
    flip_bit,
    frames_of,
    has_settled,
    log_snapshot,
    overwrite,
    scanned,
    seal_of,
    segment_paths,
    tiny,
    until,
)

STREAMS = [("orders", 0), ("orders", 1), ("bills", 7), ("é", 70_000)]


def make(path: Path, seed: int, lanes: int = 2) -> None:
    """A closed store with some sealed segments: trims, a deleted topic, delays, and a commit between them."""
    chance = random.Random(seed)
    with MessageStore.open(path, tiny(lanes=lanes)) as store:
        for number in range(300):
            topic, queue = chance.choice(STREAMS)
            due = 1_900_000_000_000 if number % 5 == 0 else None
            store.submit(topic, queue, chance.randbytes(chance.randrange(2_000)), deliver_at_ms=due)
            if number % 90 == 60:
                store.flush()
                store.trim("orders", 0, store.queue_bounds("orders", 0)[1] - 2)
            if number == 150:
                store.delete_topic("bills")
            if number == 200:
                with ShardWriter(path) as writer:
                    writer.append_columns(STREAMS, np.arange(50) % 4, np.full(50, 1_000), bytes(50_000))
                    commit_shards(path, writer.finish(), name="load-1", wait_ms=0)
                store.attach_pending()


def sealed_in(path: Path) -> list[tuple[Path, SealRecord]]:
    """The sealed segments, in the order of their lanes."""
    files = [file for lane in sorted(path.glob("lane-*")) for file in segment_paths(path, int(lane.name[5:]))]
    found = [(file, seal_of(file)) for file in files]
    return [(file, record) for file, record in found if record is not None and record.state == SEALED]


def lose(file: Path, record: SealRecord, chance: random.Random) -> None:
    """Lose a footer: a bit of it, all of it, or its end."""
    how = chance.choice(["bit", "zeros", "cut"])
    if how == "bit":
        flip_bit(file, record.footer_position + chance.randrange(min(300, record.footer_bytes)))
    elif how == "zeros":
        overwrite(file, record.footer_position, bytes(record.footer_bytes))
    else:
        with file.open("r+b") as opened:
            opened.truncate(record.footer_position + chance.randrange(record.footer_bytes))


@pytest.mark.parametrize("share", [1.0, 0.5])
def test_lost_footers_are_made_again_byte_for_byte(tmp_path: Path, share: float) -> None:
    seed = draw_seed()
    make(tmp_path, seed)
    before, chance = log_snapshot(tmp_path), random.Random(seed)
    sealed = sealed_in(tmp_path)
    lost = sorted(chance.sample(sealed, round(len(sealed) * share)))
    for file, record in lost:
        lose(file, record, chance)
    assert len(lost) > 2 and log_snapshot(tmp_path) != before
    done = rebuild_store(tmp_path, delays=False)
    assert (done.footers, done.left) == (len(lost), [])
    assert log_snapshot(tmp_path) == before
    assert rebuild_store(tmp_path).footers == 0
    with MessageStore.open(tmp_path) as store:
        assert store.stats()["recovery"]["losses"] == []
        assert commit_is_known(tmp_path, store)


def commit_is_known(path: Path, store: MessageStore) -> bool:
    """Whether the commit that `make` has made changes nothing when it comes again."""
    with ShardWriter(path) as writer:
        writer.append_columns(STREAMS, np.arange(50) % 4, np.full(50, 1_000), bytes(50_000))
        return not commit_shards(path, writer.finish(), name="load-1", wait_ms=0).is_new and not store.closed


def test_store_whose_newest_footer_is_lost_opens_again(tmp_path: Path) -> None:
    make(tmp_path, 3, lanes=1)
    with MessageStore.open(tmp_path) as store:
        expected = scanned(store)
    file, record = sealed_in(tmp_path)[-1]
    overwrite(file, record.footer_position, bytes(record.footer_bytes))
    with pytest.raises(StoreCorrupt, match="footer"):
        MessageStore.open(tmp_path)
    rebuild_store(tmp_path)
    with MessageStore.open(tmp_path) as store:
        assert scanned(store) == expected and store.losses == []
    assert verify_folder(tmp_path).ok


def test_footer_behind_damaged_messages_is_left_and_told(tmp_path: Path) -> None:
    make(tmp_path, 5, lanes=1)
    sealed = sealed_in(tmp_path)
    for file, record in sealed[2:5]:
        overwrite(file, record.footer_position, bytes(record.footer_bytes))
    frame = next(one for one in frames_of(sealed[3][0]) if one.header.payload_bytes > 10)
    flip_bit(sealed[3][0], frame.payload_start + 5)
    damaged = log_snapshot(tmp_path)
    done = rebuild_store(tmp_path, delays=False)
    assert done.footers == 1 and len(done.left) == 2
    assert "a message is damaged at byte" in done.left[0] and "nothing tells what comes before" in done.left[1]
    changed = {name for name, content in log_snapshot(tmp_path).items() if damaged[name] != content}
    assert changed == {str(sealed[2][0].relative_to(tmp_path))}


def test_first_footer_is_left_where_retention_has_removed_what_tells_of_it(tmp_path: Path) -> None:
    make(tmp_path, 6, lanes=1)
    with MessageStore.open(tmp_path, tiny(retention_bytes=300 << 10)) as store:
        store.append("orders", 0, b"x")
        until(lambda: has_settled(store))
    first, *others = sealed_in(tmp_path)
    overwrite(first[0], first[1].footer_position, bytes(first[1].footer_bytes))
    overwrite(others[-1][0], others[-1][1].footer_position, bytes(others[-1][1].footer_bytes))
    assert first[1].sequence > 1 and len(others) > 1
    done = rebuild_store(tmp_path, delays=False)
    assert done.footers == 1 and "nothing tells what comes before it" in done.left[0]


def test_crash_at_each_write_leaves_the_lost_footer_or_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(tmp_path / "s", 8, lanes=1)
    whole = log_snapshot(tmp_path / "s")
    for file, record in sealed_in(tmp_path / "s"):
        overwrite(file, record.footer_position, bytes(record.footer_bytes))
    put, count = footers_module.put_footer, [0]

    def killed(*given: object) -> None:
        if count[0] == 0:
            raise KeyboardInterrupt
        count[0] -= 1
        put(*given)  # type: ignore[arg-type]  # it passes on what it was given

    monkeypatch.setattr(rebuilding_module, "put_footer", killed)
    for done in range(3):
        crash_copy(tmp_path / "s", tmp_path / str(done))
        count[0] = done
        with pytest.raises(KeyboardInterrupt):
            rebuild_store(tmp_path / str(done))
        count[0] = 1 << 30
        rebuild_store(tmp_path / str(done), delays=False)
        assert log_snapshot(tmp_path / str(done)) == whole
        shutil.rmtree(tmp_path / str(done))


def test_footer_that_was_damaged_on_its_way_is_not_put_into_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(tmp_path, 9, lanes=1)
    file, record = sealed_in(tmp_path)[1]
    overwrite(file, record.footer_position, bytes(record.footer_bytes))
    before, make_one = log_snapshot(tmp_path), footers_module.make_footer

    def damaged(*given: object, **named: object) -> MadeFooter:
        made = make_one(*given, **named)  # type: ignore[arg-type]  # it passes on what it was given
        flip_bit(Path(made.path), made.size_bytes // 2)
        return made

    monkeypatch.setattr(rebuilding_module, "make_footer", damaged)
    with pytest.raises(StoreCorrupt, match="just made is damaged"):
        rebuild_store(tmp_path)
    after = {name: content for name, content in log_snapshot(tmp_path).items() if not name.startswith("rebuild")}
    assert after == before


def test_store_that_is_open_and_folder_that_is_no_store_are_refused(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "s"), pytest.raises(StoreLocked):
        rebuild_store(tmp_path / "s")
    with pytest.raises(StoreUnusable):
        rebuild_store(tmp_path / "nothing")
    with pytest.raises(StoreUnusable):
        rebuild_store(tmp_path)
