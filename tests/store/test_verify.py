"""`verify_folder`: a whole store is ok, damage is named by its place, a torn tail is no damage."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stratalog.store import MessageStore, StoreUnusable, verify_folder
from stratalog.store.device.disk import OsDisk
from stratalog.store.device.lane_start import write_start
from stratalog.store.format.dues import DueRange
from stratalog.store.format.footer import HEADER_BYTES, Footer, FooterData
from stratalog.store.format.frame import decode_at
from stratalog.store.format.layout import (
    BLOCK_BYTES,
    DATA_START,
    FRAME_MAGIC,
    FrameHeader,
    SealRecord,
    SegmentHeader,
    align_up,
    read_frame_header,
)
from stratalog.store.format.store_files import LaneStart
from stratalog.store.testing import TunedConfig
from stratalog.store.verify.report import VerifyReport

from .helpers import crash_copy, has_settled, tiny, until

SEED = 7
MESSAGES = 300
CONFIG = TunedConfig(segment_bytes=262_144, max_message_bytes=65_536, max_frame_bytes=65_536, recent_bytes=0)


def fill(store: MessageStore, messages: int, seed: int = SEED) -> None:
    """Appends of 1 to 3,000 random bytes to 12 queues, in batches of 5, with some optional columns."""
    rng = random.Random(seed)
    for number in range(0, messages, 5):
        key = rng.randbytes(4) if number % 3 == 0 else None
        store.append(f"topic-{number % 4}", number % 3, rng.randbytes(rng.randrange(1, 3000)), key=key)
        batch = [(f"topic-{n % 4}", n % 3, rng.randbytes(rng.randrange(1, 3000))) for n in range(4)]
        store.append_batch(batch)


@pytest.fixture(scope="module")
def original(shared_path: Path) -> Path:
    """A closed store: sealed segments 1 and 2, and one that a clean close ended."""
    folder = shared_path / "closed"
    with MessageStore.open(folder, CONFIG) as store:
        fill(store, MESSAGES)
    return folder


@pytest.fixture(scope="module")
def crashed_original(shared_path: Path) -> Path:
    """A store as a crash leaves it: copied while it was open, one segment that no record ends."""
    with MessageStore.open(shared_path / "open", CONFIG) as store:
        fill(store, 60)
        crash_copy(shared_path / "open", shared_path / "crashed")
    return shared_path / "crashed"


@pytest.fixture
def folder(original: Path, tmp_path: Path) -> Path:
    """A copy of the closed store to do harm to."""
    return Path(shutil.copytree(original, tmp_path / "store"))


@pytest.fixture
def crashed(crashed_original: Path, tmp_path: Path) -> Path:
    """A copy of the crashed store to do harm to."""
    return Path(shutil.copytree(crashed_original, tmp_path / "crashed"))


def segment(folder: Path, sequence: int) -> Path:
    return folder / "lane-00" / f"{sequence:012d}.seg"


def segments(folder: Path) -> list[Path]:
    """Segments in use."""
    paths = sorted(folder.glob("lane-00/*.seg"))
    return [path for path in paths if SegmentHeader.unpack(path.read_bytes()[:BLOCK_BYTES])]


def record_of(path: Path) -> SealRecord:
    record = SealRecord.unpack(path.read_bytes()[BLOCK_BYTES:DATA_START])
    assert record is not None
    return record


def frames(path: Path) -> list[FrameHeader]:
    """The headers of a segment's frames."""
    raw = path.read_bytes()
    found, at = [], raw.find(FRAME_MAGIC)
    while at >= 0:
        header = read_frame_header(raw, at)
        if header is not None and header.position == at:
            found.append(header)
        at = raw.find(FRAME_MAGIC, at + 1)
    return found


def flip(path: Path, position: int) -> None:
    """Turn one bit."""
    raw = bytearray(path.read_bytes())
    raw[position] ^= 16
    path.write_bytes(raw)


def overwrite(path: Path, position: int, data: bytes) -> None:
    raw = bytearray(path.read_bytes())
    raw[position : position + len(data)] = data
    path.write_bytes(raw)


def reported(folder: Path, what: str, path: Path, position: int) -> VerifyReport:
    """Verify a damaged store; the damage must be there by its words, file and position."""
    report = verify_folder(folder)
    assert not report.ok
    assert f"{what} in {path} at byte {position}" in report.damages
    return report


def remarked(folder: Path, what: str, path: Path, position: int) -> None:
    """Verify a store in which something harms no message."""
    report = verify_folder(folder)
    assert report.ok, report.damages
    assert f"{what} in {path} at byte {position}" in report.remarks


def contents(folder: Path) -> dict[str, bytes | None]:
    """All names, and the bytes of all files but LOCK."""
    paths = [path for path in folder.rglob("*") if path.name != "LOCK"]
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None for path in paths}


# -- what is no damage ------------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", [{}, {"lanes": 3}, {"alignment": "pad"}, {"durability": "os"}])
def test_whole_store_is_ok_after_each_opening(tmp_path: Path, settings: dict[str, Any]) -> None:
    config = replace(CONFIG, **settings)
    for opening in range(1, 4):
        with MessageStore.open(tmp_path / "s", config) as store:
            fill(store, 100, opening)
        report = verify_folder(tmp_path / "s")
        assert (report.ok, report.messages, report.torn_bytes) == (True, 100 * opening, 0), report.damages


def test_report_counts_what_is_there(folder: Path) -> None:
    report = verify_folder(folder)
    assert report.segments == len(segments(folder)) == 3
    assert report.frames == sum(len(frames(path)) for path in segments(folder))
    ends = [align_up(record_of(path).data_end) + record_of(path).footer_bytes for path in segments(folder)]
    assert report.bytes == sum(ends)


def test_empty_store_is_ok(tmp_path: Path) -> None:
    MessageStore.open(tmp_path / "s", replace(CONFIG, prewrite_bytes=300_000)).close()
    assert verify_folder(str(tmp_path / "s")) == VerifyReport()


def test_store_without_its_oldest_segment_is_ok_as_retention_leaves_it(folder: Path) -> None:
    header = SegmentHeader.unpack(segment(folder, 2).read_bytes()[:BLOCK_BYTES])
    assert header is not None
    start = LaneStart(header.lane, header.store_id, 2, header.messages_before)
    write_start(OsDisk(), segment(folder, 1).parent, start)
    segment(folder, 1).unlink()
    assert verify_folder(folder).ok
    MessageStore.open(folder, CONFIG).close()


def test_nothing_on_disk_is_changed(folder: Path, crashed: Path) -> None:
    flip(segment(folder, 1), DATA_START + 200)
    for home in (folder, crashed):
        before = contents(home)
        verify_folder(home)
        assert contents(home) == before


def test_progress_ends_at_the_total_and_never_goes_back(folder: Path) -> None:
    steps: list[tuple[int, int]] = []
    verify_folder(folder, lambda done, total: steps.append((done, total)))
    assert len({total for _, total in steps}) == 1
    assert [done for done, _ in steps] == sorted(done for done, _ in steps)
    assert steps[-1][0] == steps[-1][1] > 0


def test_torn_tail_of_a_crash_is_counted_and_is_no_damage(crashed: Path) -> None:
    path = segment(crashed, 1)
    last = frames(path)[-1]
    assert verify_folder(crashed).ok
    with path.open("r+b") as file:
        file.truncate(last.end - 1)
    report = verify_folder(crashed)
    assert report.ok and 0 < report.torn_bytes <= last.header_bytes + last.payload_bytes
    MessageStore.open(crashed, CONFIG).close()
    recovered = verify_folder(crashed)
    assert (recovered.ok, recovered.messages, recovered.torn_bytes) == (True, report.messages, 0)


@pytest.mark.parametrize("cut", range(DATA_START, DATA_START + 60_000, 4_799))
def test_crashed_store_is_ok_wherever_its_log_is_cut(crashed: Path, cut: int) -> None:
    path = segment(crashed, 1)
    overwrite(path, cut, bytes(path.stat().st_size - cut))
    report = verify_folder(crashed)
    assert report.ok, report.damages
    with MessageStore.open(crashed, CONFIG) as store:
        assert sum(len(batch) for batch in store.scan()) == report.messages


def test_torn_messages_of_a_queue_whose_name_is_lost_are_no_damage(tmp_path: Path) -> None:
    # The only frame that names the queue "b" is lost with the end of segment 1, and its footer with it.
    # Segment 2 has a torn frame: a message of "a", and one of "b" that was never durable.
    with MessageStore.open(tmp_path / "open", tiny()) as store:
        for _ in range(2):
            store.append("a", 0, bytes(16 << 10))
        store.append("b", 0, b"names its queue")
        store.append_batch([("a", 0, b"x" * (12 << 10)), ("b", 0, b"y" * 100)])
        until(lambda: has_settled(store))
        crash_copy(tmp_path / "open", tmp_path / "crashed")
    first, second = segment(tmp_path / "crashed", 1), segment(tmp_path / "crashed", 2)
    naming, torn = frames(first)[-1], frames(second)[0]
    assert (naming.count, torn.count) == (1, 2)
    with first.open("r+b") as file:
        file.truncate(naming.position)
    overwrite(second, torn.end - 50, bytes(50))
    with MessageStore.open(tmp_path / "crashed", tiny(), repair=True) as store:
        assert store.get_range("a", 0, 2, 1) == {0: b"x" * (12 << 10)}
    assert verify_folder(tmp_path / "crashed").damages == []


# -- what cannot be verified ------------------------------------------------------------------------------


def test_open_store_is_checked_as_far_as_it_is_durable(folder: Path) -> None:
    closed = verify_folder(folder)
    told: list[tuple[int, int]] = []
    with MessageStore.open(folder, CONFIG) as store:
        store.append("new", 0, b"a message of its own")
        beside = verify_folder(folder, lambda done, total: told.append((done, total)))
        assert beside.ok
        assert beside.is_live
        assert (beside.messages, beside.segments) == (closed.messages + 1, closed.segments)
        assert told[-1][0] == told[-1][1] > 0
        path = max(path for path in folder.rglob("*.seg") if b"a message of its own" in path.read_bytes())
        at = path.read_bytes().index(b"a message of its own")
        flip(path, at)
        (place,) = verify_folder(folder).places
        assert place.what == "a message's bytes do not match their checksum"
        flip(path, at)
    assert not verify_folder(folder).is_live
    MessageStore.open(folder, CONFIG).close()  # the lock was released


def test_what_is_no_store_is_refused_and_not_made_one(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("no store")
    for path in (tmp_path, tmp_path / "nowhere", tmp_path / "letter.txt"):
        with pytest.raises(StoreUnusable):
            verify_folder(path)
    assert [path.name for path in tmp_path.iterdir()] == ["letter.txt"]


# -- damage to files and blocks ---------------------------------------------------------------------------


def test_damaged_store_file_is_reported_and_the_lanes_are_read_on(folder: Path) -> None:
    flip(folder / "STORE", 20)
    what = "the store's header is damaged"
    assert reported(folder, what, folder / "STORE", 0).messages == MESSAGES


def test_bytes_behind_the_store_header_are_remarked_on(folder: Path) -> None:
    flip(folder / "STORE", 3000)
    remarked(folder, "the store's header is not filled up with zeros", folder / "STORE", 3000)


def test_missing_lane_is_reported(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "s", replace(CONFIG, lanes=2)) as store:
        fill(store, 30)
    shutil.rmtree(tmp_path / "s" / "lane-01")
    reported(tmp_path / "s", "a lane is missing", tmp_path / "s" / "lane-01", 0)


def test_missing_segment_is_reported_and_the_others_are_read(folder: Path) -> None:
    lost = record_of(segment(folder, 2)).entries
    segment(folder, 2).unlink()
    report = reported(folder, "a segment is missing", segment(folder, 2), 0)
    assert (len(report.damages), report.messages) == (1, MESSAGES - lost)


def test_missing_last_segment_before_a_spare_is_reported(folder: Path) -> None:
    segment(folder, 3).unlink()
    segment(folder, 4).write_bytes(bytes(262_144))
    reported(folder, "a segment is missing", segment(folder, 3), 0)


def test_missing_segments_before_one_that_is_not_sealed_are_reported(folder: Path) -> None:
    segment(folder, 1).unlink()
    segment(folder, 2).unlink()
    reported(folder, "a segment is missing", segment(folder, 1), 0)


@pytest.mark.parametrize("sequence", [1, 2, 3])
def test_damaged_segment_header_is_reported_and_its_frames_are_read(folder: Path, sequence: int) -> None:
    flip(segment(folder, sequence), 40)
    report = reported(folder, "the segment's header is damaged", segment(folder, sequence), 0)
    assert (len(report.damages), report.messages) == (1, MESSAGES)


@pytest.mark.parametrize("sequence", [2, 3])
def test_zeroed_begin_of_a_segment_is_reported(folder: Path, sequence: int) -> None:
    overwrite(segment(folder, sequence), 0, bytes(DATA_START + 100))
    reported(folder, "the segment's header is damaged", segment(folder, sequence), 0)


def test_bytes_behind_header_and_seal_record_are_remarked_on(folder: Path) -> None:
    flip(segment(folder, 1), 4000)
    flip(segment(folder, 2), BLOCK_BYTES + 4000)
    remarked(folder, "the segment's header is not filled up with zeros", segment(folder, 1), 4000)
    place = BLOCK_BYTES + 4000
    remarked(folder, "the segment's seal record is not filled up with zeros", segment(folder, 2), place)


def test_file_that_was_never_begun_may_have_anything_in_it(folder: Path) -> None:
    spare = segment(folder, 4)
    spare.write_bytes(random.Random(SEED).randbytes(262_144))
    remarked(folder, "a file that is not in use yet has something else than zeros", spare, 0)
    with MessageStore.open(folder, CONFIG) as store:
        assert sum(len(batch) for batch in store.scan()) == MESSAGES


def test_segment_under_the_name_of_another_is_reported(folder: Path) -> None:
    shutil.copyfile(segment(folder, 2), segment(folder, 4))
    reported(folder, "the file is another segment's", segment(folder, 4), 0)
    one, two = segment(folder, 1).read_bytes(), segment(folder, 2).read_bytes()
    segment(folder, 1).write_bytes(two)
    segment(folder, 2).write_bytes(one)
    for sequence in (1, 2):
        reported(folder, "the file is another segment's", segment(folder, sequence), 0)


def test_segment_that_does_not_continue_the_one_before_is_reported(folder: Path) -> None:
    path = segment(folder, 2)
    header = SegmentHeader.unpack(path.read_bytes()[:BLOCK_BYTES])
    assert header is not None
    overwrite(path, 0, header._replace(previous_chain=header.previous_chain ^ 1).pack())
    reported(folder, "the log does not reach this segment", path, 0)


@pytest.mark.parametrize("sequence", [1, 3])
def test_damaged_seal_record_is_reported(folder: Path, sequence: int) -> None:
    path = segment(folder, sequence)
    flip(path, BLOCK_BYTES + 30)
    assert reported(folder, "the segment's seal record is damaged", path, BLOCK_BYTES).messages == MESSAGES


def test_zeroed_seal_record_before_a_sealed_segment_is_reported(folder: Path) -> None:
    overwrite(segment(folder, 1), BLOCK_BYTES, bytes(BLOCK_BYTES))
    reported(folder, "the segment's seal record is damaged", segment(folder, 1), BLOCK_BYTES)


def test_wrong_number_of_messages_in_the_seal_record_is_reported(folder: Path) -> None:
    path = segment(folder, 3)
    record = record_of(path)
    overwrite(path, BLOCK_BYTES, record._replace(entries=record.entries + 1).pack())
    reported(folder, "the seal record's number of messages is wrong", path, BLOCK_BYTES)


def test_wrong_newest_time_in_the_seal_record_is_reported(folder: Path) -> None:
    path = segment(folder, 2)
    record = record_of(path)
    overwrite(path, BLOCK_BYTES, record._replace(newest_ms=record.newest_ms - 1).pack())
    assert reported(folder, "the seal record's newest time is not the footer's", path, BLOCK_BYTES).messages == MESSAGES


def test_segment_cut_short_is_reported(folder: Path) -> None:
    path = segment(folder, 3)
    size = frames(path)[-1].position + 50
    with path.open("r+b") as file:
        file.truncate(size)
    reported(folder, "the segment is cut short", path, size)


# -- damage to frames -------------------------------------------------------------------------------------


def message_start(path: Path, frame: int, message: int) -> int:
    """Position of a message of a frame."""
    found = decode_at(path.read_bytes(), frames(path)[frame].position)
    assert found is not None
    return int(found.starts()[message])


@pytest.mark.parametrize("sequence", [1, 3])
def test_flipped_payload_bit_is_reported_at_its_message(folder: Path, sequence: int) -> None:
    path = segment(folder, sequence)
    index = next(at for at, frame in enumerate(frames(path)) if at > 3 and frame.count > 1)
    place = message_start(path, index, 1)
    flip(path, place)
    report = reported(folder, "a message's bytes do not match their checksum", path, place)
    assert (len(report.damages), report.messages) == (1, MESSAGES - 1)


def test_several_bad_messages_of_a_frame_are_reported_as_one(folder: Path) -> None:
    path = segment(folder, 1)
    index = next(at for at, frame in enumerate(frames(path)) if frame.count == 4)
    for message in (0, 2, 3):
        flip(path, message_start(path, index, message))
    what = "3 messages do not match their checksums, the first"
    report = reported(folder, what, path, message_start(path, index, 0))
    assert (len(report.damages), report.messages) == (1, MESSAGES - 3)


@pytest.mark.parametrize("sequence", [1, 3])
@pytest.mark.parametrize("field", ["magic", "count", "position", "chain", "checksum", "columns"])
def test_flipped_bit_in_a_frame_head_is_reported_and_stepped_over(folder: Path, sequence: int, field: str) -> None:
    path = segment(folder, sequence)
    before, frame = frames(path)[3:5]
    at = {"magic": 0, "count": 12, "position": 32, "chain": 64, "checksum": 80, "columns": 90}[field]
    flip(path, frame.position + at)
    report = reported(folder, "a frame is damaged or missing", path, before.end)
    assert report.messages == MESSAGES - frame.count
    assert len(report.damages) == 1


def test_two_damaged_ranges_of_a_segment_are_both_reported(folder: Path) -> None:
    path = segment(folder, 2)
    found = frames(path)
    for index in (3, 8):
        overwrite(path, found[index].position, bytes(100))
    for index in (3, 8):
        report = reported(folder, "a frame is damaged or missing", path, found[index - 1].end)
    assert report.messages == MESSAGES - found[3].count - found[8].count


@pytest.mark.parametrize("sequence", [1, 3])
def test_damaged_last_frame_of_a_segment_is_reported(folder: Path, sequence: int) -> None:
    path = segment(folder, sequence)
    before, frame = frames(path)[-2:]
    flip(path, frame.position + 90)
    report = reported(folder, "a frame is damaged or missing", path, before.end)
    assert (len(report.damages), report.messages) == (1, MESSAGES - frame.count)


def test_flipped_bit_before_later_marks_of_a_crashed_store_is_reported(crashed: Path) -> None:
    path = segment(crashed, 1)
    before, frame = frames(path)[3:5]
    flip(path, frame.position + 90)
    report = reported(crashed, "a frame is damaged or missing", path, before.end)
    assert report.messages == 60 - frame.count


def test_padding_that_is_not_zero_is_remarked_and_no_damage(folder: Path) -> None:
    path = segment(folder, 1)
    frame = next(frame for frame in frames(path) if frame.end % BLOCK_BYTES)
    flip(path, align_up(frame.end) - 1)
    flip(path, frame.end)
    report = verify_folder(folder)
    assert report.ok
    assert report.remarks == [f"the padding after a frame is not zero in {path} at byte {frame.end}"]


def reseal_last_frame(path: Path, change: Callable[[FrameHeader, bytearray], FrameHeader]) -> FrameHeader:
    """Change the last frame's header or columns with all checksums right, as a faulty writer would."""
    raw, header, record = path.read_bytes(), frames(path)[-1], record_of(path)
    frame = decode_at(raw, header.position)
    assert frame is not None
    columns = bytearray(frame.head.columns)
    packed, chain = change(header, columns).seal(bytes(columns))
    overwrite(path, header.position, packed)
    overwrite(path, BLOCK_BYTES, record._replace(chain=chain).pack())
    return header


def test_offset_that_does_not_follow_is_reported(folder: Path) -> None:
    def change(header: FrameHeader, columns: bytearray) -> FrameHeader:
        columns[4 * header.count] ^= 1  # lows, behind 2-byte numbers and lengths
        return header

    header = reseal_last_frame(segment(folder, 3), change)
    reported(folder, "an offset does not follow the one before", segment(folder, 3), header.position)


def test_frame_with_a_wrong_entry_number_is_reported(folder: Path) -> None:
    header = reseal_last_frame(
        segment(folder, 3), lambda header, _: header._replace(first_entry=header.first_entry + 1)
    )
    reported(folder, "a frame's lane or entry number is wrong", segment(folder, 3), header.position)


def test_frame_of_an_undefined_stream_is_reported(folder: Path) -> None:
    def change(header: FrameHeader, columns: bytearray) -> FrameHeader:
        columns[1] = 200
        return header

    header = reseal_last_frame(segment(folder, 3), change)
    reported(folder, "a frame's stream was never defined", segment(folder, 3), header.position)


# -- damage to footers ------------------------------------------------------------------------------------


def test_flipped_bit_anywhere_in_a_footer_is_reported(folder: Path) -> None:
    path = segment(folder, 2)
    record, whole = record_of(path), path.read_bytes()
    for at in range(0, record.footer_bytes, 37):
        flip(path, record.footer_position + at)
        report = verify_folder(folder)
        assert len(report.damages) == 1 and str(path) in report.damages[0], at
        position = int(report.damages[0].rsplit(" ", 1)[1])
        assert record.footer_position <= position <= record.footer_position + at
        assert at < HEADER_BYTES or position >= record.footer_position + HEADER_BYTES
        path.write_bytes(whole)


def test_footer_cut_short_is_reported(folder: Path) -> None:
    path = segment(folder, 1)
    with path.open("r+b") as file:
        file.truncate(record_of(path).footer_position + 400)
    reported(folder, "the footer is cut short", path, record_of(path).footer_position)


def rewrite_footer(path: Path, change: Callable[[FooterData], None]) -> int:
    """Change a footer with all its checksums right, as a faulty writer would; its position."""
    record = record_of(path)
    file = OsDisk().open(path)
    data = Footer(file, str(path), record).data()
    for name in ("stream_queue", "first", "entries", "frame_position", "frame_entry", "frame_time", "frame_flags"):
        setattr(data, name, np.array(getattr(data, name)))
    file.close()
    change(data)
    packed = data.pack(record.sequence)
    assert len(packed) == record.footer_bytes
    overwrite(path, record.footer_position, packed)
    return record.footer_position


def swap_entries(data: FooterData) -> None:
    data.entries[[0, 1]] = data.entries[[1, 0]]


def repeat_entry(data: FooterData) -> None:
    data.entries[1] = data.entries[0]


def lose_entry(data: FooterData) -> None:
    data.entries[2] = 0xFFFFFFFF


def entry_out_of_range(data: FooterData) -> None:
    data.entries[2] = 1_000_000


def move_frame(data: FooterData) -> None:
    data.frame_position[4] += 8


def move_frame_entry(data: FooterData) -> None:
    data.frame_entry[4] += 1


def move_frame_time(data: FooterData) -> None:
    data.frame_time[4] += 1


def change_frame_flags(data: FooterData) -> None:
    data.frame_flags[4] ^= 4


def widen_dues(data: FooterData) -> None:
    data.dues = data.dues.joined(DueRange(5, 6))


def move_first(data: FooterData) -> None:
    data.first[1] += 1


def move_first_by_a_turn_of_the_lows(data: FooterData) -> None:
    data.first[1] += 65_536


def rename_queue(data: FooterData) -> None:
    data.stream_queue[1] += 1


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (swap_entries, "entries do not agree with the frames"),
        (repeat_entry, "entries do not agree with the frames"),
        (lose_entry, "entries do not agree with the frames"),
        (entry_out_of_range, "entries do not agree with the frames"),
        (move_frame, "frame table does not agree with the frames"),
        (move_frame_entry, "frame table does not agree with the frames"),
        (move_frame_time, "frame table does not agree with the frames"),
        (change_frame_flags, "frame table does not agree with the frames"),
        (widen_dues, "delivery times do not agree with the frames"),
        (move_first, "first offsets do not follow the segment before"),
        (move_first_by_a_turn_of_the_lows, "first offsets do not follow the segment before"),
        (rename_queue, "streams do not agree with the frames"),
    ],
)
def test_footer_that_disagrees_with_the_frames_is_reported(
    folder: Path, change: Callable[[FooterData], None], what: str
) -> None:
    path = segment(folder, 2)
    position = rewrite_footer(path, change)
    assert reported(folder, f"the footer's {what}", path, position).messages == MESSAGES


def test_messages_that_a_repair_gave_up_are_remarked_at_their_footer(folder: Path) -> None:
    overwrite(segment(folder, 1), frames(segment(folder, 1))[0].position + 20, b"\xff")
    with MessageStore.open(folder, CONFIG, repair=True) as store:
        lost = sum(loss.messages or 0 for loss in store.losses)
    assert lost
    record = record_of(segment(folder, 1))
    report = verify_folder(folder)
    path = segment(folder, 1)
    assert f"{lost} messages that a repair gave up in {path} at byte {record.footer_position}" in report.remarks
