"""Checks a footer: whether it is sound in itself, and whether it agrees with the frames of its segment."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ..device.log_file import LogFile
from ..errors import StoreCorrupt
from ..format.applied import MAX_ENTRY_BYTES, MOST_BYTES, unpack_applied
from ..format.arrays import Int64s
from ..format.footer import Footer, names_in
from ..format.footer_data import begins_at
from ..format.layout import GONE_TOPIC, LOST_ENTRY, UNDECODABLE
from ..format.records import NOT_TRIMMED, Trimmed
from ..read.scan import row_numbers, row_offsets
from ..segment.files import SegmentFile
from .frames import FrameWalk
from .listing import LaneNames
from .report import Findings


def sound_footer(data: LogFile, file: SegmentFile, lane: LaneNames, findings: Findings) -> Footer | None:
    """The footer, if the segment has one and all of it is sound; damage is noted. Raises OSError."""
    record = file.record
    if record is None or not file.is_sealed:
        return None
    try:
        data.read(record.footer_position, min(record.footer_bytes, data.size()))  # a bad sector is an OSError here
        footer = Footer(data, str(file.path), record)
        footer.check_entries()
        start = footer.start.astype(np.int64)
        if np.all(np.diff(start) >= 0) and (start[0], start[-1]) == (0, len(footer.entries)):
            lane.of(footer)
            return footer
        what, position = "the footer's table of streams makes no sense", record.footer_position
    except StoreCorrupt as error:
        what, position = error.what, error.position
    except UNDECODABLE as error:
        what, position = f"the footer cannot be decoded ({error})", record.footer_position
    findings.damage(what, file.path, position)
    return None


def disagreements(
    footer: Footer,
    walk: FrameWalk,
    entry_count: int,
    named: list[tuple[str, int]],
    names: list[tuple[str, int]] | None,
    next_offsets: Int64s | None,
    trimmed: Trimmed,
) -> Iterator[str]:
    """Yield each point in which a sound footer differs from the frames.

    Args:
        named: the streams' names by this footer and earlier ones; `names` by all earlier files.
        trimmed: by the records up to the segment's end; for a small footer, only those after the last full one.
    """
    columns = (footer.frame_position, footer.frame_entry, footer.frame_time, footer.frame_flags)
    listed = {*zip(*(column.tolist() for column in columns), strict=True)}
    walked = {(head.position, head.first_entry, head.time_ms, head.flags) for head in walk.headers}
    if walked - listed or (listed - walked and not walk.gaps):
        yield "the footer's frame table does not agree with the frames"
    times = footer.frame_time.tolist() or [0]
    if (footer.time_min_ms, footer.time_max_ms) != (min(times), max(times)):
        yield "the footer's time range does not agree with the frames"
    if walk.dues.joined(footer.dues) != footer.dues or (walk.dues != footer.dues and not walk.gaps):
        yield "the footer's delivery times do not agree with the frames"
    if names is not None and _names_disagree(footer, named, names):
        yield "the footer's streams do not agree with the frames"
    if next_offsets is not None and not begins_at(footer.numbers, footer.first, next_offsets, is_full=footer.is_full):
        yield "the footer's first offsets do not follow the segment before"
    if _trimmed_are_missing(footer, trimmed, named):
        yield "the footer's trimmed streams do not agree with the records"
    if _applied_are_missing(footer, walk):
        yield "the footer's applied commits do not agree with the records"
    if _entries_disagree(footer, walk, entry_count):
        yield "the footer's entries do not agree with the frames"


def _names_disagree(footer: Footer, named: list[tuple[str, int]], names: list[tuple[str, int]]) -> bool:
    if footer.is_full:
        if named[: len(names)] == names:
            return False
        return len(named) < len(names) or any(
            mine not in (its, (GONE_TOPIC, 0)) for mine, its in zip(named, names, strict=False)
        )
    rows = zip(footer.numbers.tolist(), names_in(footer), strict=True)
    return any(number < len(names) and names[number] != name for number, name in rows)


def _applied_are_missing(footer: Footer, walk: FrameWalk) -> bool:
    """Whether the footer lacks a commit that a record of its segment names. It may lack commits that were to be
    forgotten and, if it is full of names, older ones."""
    known = unpack_applied(footer.applied)
    is_full = len(footer.applied) > MOST_BYTES - 2 * MAX_ENTRY_BYTES
    named = [entry for entry in walk.applied if entry.is_kept]
    return any(
        entry.key not in known or known[entry.key].batch < entry.batch for entry in (named[-1:] if is_full else named)
    )


def _trimmed_are_missing(footer: Footer, trimmed: Trimmed, named: list[tuple[str, int]]) -> bool:
    """Whether the footer lacks a trim of a record. It may have more: a repair has lost records, or a stream's end. It
    has no trims of a gone stream."""
    ends, known = dict(zip(footer.numbers.tolist(), footer.next_offsets.tolist(), strict=True)), footer.trimmed
    for number, low in trimmed.items():
        said = known.get(number, NOT_TRIMMED)
        is_gone = number < len(named) and named[number][0] == GONE_TOPIC  # after damage not all names are known
        if number in ends and not is_gone and said.joined(low.cut(ends[number])) != said:
            return True
    return False


def _entries_disagree(footer: Footer, walk: FrameWalk, entry_count: int) -> bool:
    stream_of, low_of = np.full(entry_count, -1, np.int64), np.zeros(entry_count, np.int64)
    unseen = np.zeros(entry_count, np.bool_)  # whole messages that are not in the footer so far
    for head, numbers, lows, good in zip(walk.headers, walk.numbers, walk.lows, walk.good, strict=True):
        part = slice(head.first_entry, head.first_entry + len(numbers))
        if part.stop > entry_count:
            return True
        stream_of[part], low_of[part], unseen[part] = numbers, lows, good
    kept = footer.entries != LOST_ENTRY
    entries = footer.entries[kept].astype(np.int64)
    numbers, lows = row_numbers(footer)[kept], row_offsets(footer)[kept] & 0xFFFF
    if np.any(entries >= entry_count) or np.any((np.diff(entries) <= 0) & (np.diff(numbers) == 0)):
        return True
    unseen[entries] = False
    same = (stream_of[entries] == numbers) & (low_of[entries] == lows)
    return bool(np.any(unseen) or np.any(~same & ((stream_of[entries] >= 0) | (not walk.gaps))))
