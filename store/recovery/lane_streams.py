"""The streams of a lane as recovery comes to know them: names by number, and where each goes on.

They come from the newest footer passed, then from the definitions in the frames after it. If a repair has lost what
names a stream, a later footer still has the name, or a frame of a segment without a footer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from ..device.disk import Disk
from ..errors import StoreCorrupt
from ..format.applied import AppliedCommit, AppliedRecord, add_applied, pack_applied, unpack_applied
from ..format.arrays import Bools, Int64s
from ..format.footer import Footer, FooterData, names_in
from ..format.frame import Frame
from ..format.layout import DATA_START, GONE_TOPIC, UNDECODABLE
from ..format.records import RECORDS_TOPIC, Record, StreamLow, add_low, add_trimmed
from ..segment.scanner import ScannedFrame, frames_in, records_in
from ..segment.segment import Segment
from .name_list import Name, NameList
from .placement import NO_OFFSET
from .repair import Repair, readable_footer, whole_footer
from .used_file import UsedFile

WIDEST = 1 << 32  # streams; a number has 32 bits
MOST_UNNAMED = 1 << 20  # streams in a row whose names were lost: more are no streams, but a number that makes no sense


class LaneStreams:
    """Names and next offsets of a lane's streams; both lists have one element a stream, by number.

    `unnamed` is how many streams got a made-up name, `told` how many the lane had by here, as far as headers and
    records tell. `is_complete` is False after lost frames: they may have named streams of which nothing is left.
    `new_from`: streams with this number and higher ones begin with offset 0, whichever frame names them. Others may
    have had messages in segments that retention removed; while nothing tells of these, their next offset is NO_OFFSET.
    `trimmed` has the trimmed streams, by number, and `settled` what the newest full footer says of them; `records` is
    the number of the lane's stream of records; `applied` has the commits in the log, as a footer has them.
    """

    def __init__(self, lane: int, repair: Repair) -> None:
        self._lane = lane
        self._repair = repair
        self.names = NameList()
        self.next_offsets: list[int] = []
        self.trimmed: dict[int, StreamLow] = {}
        self.settled: dict[int, StreamLow] = {}
        # Of the two at least one has all commits so far; None: it does not. Most openings need no single one.
        self._commits: dict[tuple[str, bool], AppliedCommit] | None = {}
        self._packed: bytes | None = b""
        self.records: int | None = None
        self.unnamed = self.told = self.new_from = 0
        self.is_complete = True

    @property
    def applied(self) -> bytes:
        """The commits that the log has up to here, as a footer has them."""
        if self._packed is None:
            self._packed = pack_applied(self._commits or {})
        return self._packed

    def load(self, footer: FooterData, *, is_newest: bool = True) -> None:
        """Take over a footer's streams, as they are after its segment. See `follow`."""
        self._load(footer, footer.next_offsets.tolist(), is_newest=is_newest)
        self.settled = dict(footer.trimmed)

    def load_before(self, footer: FooterData) -> None:
        """Take over a footer's streams, as they are before its segment."""
        self._load(footer, footer.first.tolist())

    def _load(self, footer: FooterData, next_offsets: list[int], *, is_newest: bool = True) -> None:
        self.names, self.next_offsets = NameList.of(footer), next_offsets
        topics = self.names.topics
        self.records = topics.index(RECORDS_TOPIC) if RECORDS_TOPIC in topics else None
        add_trimmed(self.trimmed, footer.trimmed)
        if is_newest:
            self._apply(footer.applied)
        self.unnamed = self.new_from = 0
        self.is_complete = True

    def follow(self, footer: Footer | FooterData, path: Path, *, is_newest: bool = True) -> None:
        """Go past a segment with a small footer. Raises StoreCorrupt.

        Each has all trims since the full one before it, and all commits: only the newest of some in a row is asked.
        """
        for number, name in zip(footer.numbers.tolist(), names_in(footer), strict=True):
            if number > len(self.names):
                self._repair.on_damage("the table of the lane's streams is missing", path, DATA_START)
                self.know(number, None, path)
            if number == len(self.names):
                self._add(name, 0)
        for number, following in zip(footer.numbers.tolist(), footer.next_offsets.tolist(), strict=True):
            self.next_offsets[number] = following
        if is_newest:
            add_trimmed(self.trimmed, footer.trimmed)
            self._apply(footer.applied)

    def widened(self, footer: FooterData, told: Int64s) -> FooterData | None:
        """A small footer as a full one, of the streams as they are before its segment; None if some are not known.

        `told` (some streams,): where those go on after the segment, or NO_OFFSET: it counts if nothing else is known.
        """
        if footer.stream is None:
            return footer
        names, first = self.names.copy(), list(self.next_offsets)
        for number, name in zip(footer.stream.tolist(), names_in(footer), strict=True):
            if number > len(names):
                return None
            if number == len(names):
                names.append(name)
                first.append(0)
        counts = np.zeros(len(names), np.int64)
        firsts, some = np.array(first, np.int64), min(len(told), len(first))
        firsts[:some] = np.where(firsts[:some] == NO_OFFSET, told[:some], firsts[:some])
        firsts[firsts == NO_OFFSET] = 0
        counts[footer.stream], firsts[footer.stream] = footer.counts, footer.first
        start = np.concatenate([np.zeros(1, np.int64), counts.cumsum()]).astype(np.uint32)
        topics, topic_of, queue_of = names.columns()
        return replace(
            footer, topics=topics, stream_topic=topic_of, stream_queue=queue_of, first=firsts, start=start,
            packed_names=None, stream=None,
        )  # fmt: skip

    def begin_anywhere(self) -> None:
        """Note that the log begins after segments of which nothing is known."""
        self.new_from = WIDEST

    def are_before(self, streams: int) -> None:
        """Note that the lane had `streams` streams where the next segment begins, by its header."""
        self.new_from = min(self.new_from, streams)
        self.are_told(streams)

    def are_told(self, streams: int) -> None:
        """Note that the lane had `streams` streams by here."""
        self.told = max(self.told, streams)
        self.is_complete = True

    @property
    def has_all(self) -> bool:
        """Are all streams known, by their names?"""
        return self.is_complete and not self.unnamed and len(self.names) >= self.told

    def learn(self, frame: Frame, behind: LaterNames | None, path: Path) -> None:
        """Note the streams that a frame names. Raises StoreCorrupt."""
        for number, topic, queue_id in frame.definitions():
            self.know(number, behind, path)
            self.define(number, (topic, queue_id))

    def define(self, number: int, name: Name) -> None:
        """Note a stream that a frame names; those with lower numbers are known."""
        if number == len(self.names):
            self._add(name, 0)
            self.is_complete = True  # numbers have no gaps: no stream was named since the one before
        self.names[number] = name
        if name[0] == RECORDS_TOPIC:
            self.records = number

    def know(self, count: int, behind: LaterNames | None, path: Path) -> None:
        """Make sure that `count` streams are known. Those whose definition was lost are named by `behind`.

        Raises StoreCorrupt if there cannot be `count` streams.
        """
        if count > max(len(self.names), self.told) + MOST_UNNAMED:
            raise StoreCorrupt("a stream's number makes no sense", path, DATA_START)
        while len(self.names) < count:
            number = len(self.names)
            name = behind.name(number) if behind is not None else None
            self.unnamed += name is None
            # A stream that nothing names is kept under a made-up name: its messages can still be read.
            self._add(name or (f"lost-name-{self._lane}", number), self._begin(number))

    def continues_with(self, footer: FooterData) -> bool:
        """Can this be the footer of the segment that follows? Messages before it may be missing, in a repair."""
        known = len(self.names)
        assert footer.stream is None
        first = footer.first[:known]
        if len(first) < known or not self.names.is_prefix_of(NameList.of(footer)):
            return False
        before = np.array(self.next_offsets, np.int64)
        return bool((first >= before if self._repair.allowed else first == before).all())

    def take_over(self, footer: FooterData) -> None:
        """Take over the names of a footer's streams that are not known, which are gone, and what was trimmed."""
        add_trimmed(self.trimmed, footer.trimmed)
        self._apply(footer.applied)
        for number, name in zip(footer.numbers.tolist(), names_in(footer), strict=True):
            if number == len(self.names):
                self._add(name, self._begin(number))
            elif name[0] == GONE_TOPIC:
                self.names[number] = name

    def begins(self, footer: FooterData) -> list[int]:
        """The offset with which each of a footer's streams goes on, also of those that nothing before has named."""
        return self.next_offsets + [self._begin(number) for number in range(len(self.names), len(footer.first))]

    def _begin(self, number: int) -> int:
        return 0 if number >= self.new_from else NO_OFFSET

    def note_records(self, found: ScannedFrame, good: Bools, behind: LaterNames | None, path: Path) -> None:
        """Note what the records in a frame say, of the `good` ones of its first messages. Raises StoreCorrupt.

        In a repair a record may be all that is left of its stream. The stream is known then: its number is not given to
        another one, which the record would trim.
        """
        frame = found.frame
        places = records_in(frame, found.payload, self.records, good) if self.records is not None else ()
        for position, data in places:
            record = Record.unpack(data) if self._repair.allowed else None
            if record is not None:
                self.know(record.number + 1, behind, path)
            if not self.note_record(data):
                self._repair.on_damage("a record makes no sense", path, position)

    def note_record(self, data: bytes | memoryview) -> bool:
        """Note what a record says; False if it makes no sense."""
        commit = AppliedRecord.unpack(data)
        if commit is not None:
            self._add_commits([commit.entry])
            return True
        record = Record.unpack(data)
        if record is None or record.number >= len(self.names):
            return False
        add_low(self.trimmed, record.number, record.effect)
        return True

    def trimmed_at(self, next_offsets: Int64s) -> dict[int, StreamLow]:
        """The trimmed streams, from here on, where the streams go on like this.

        A low lies past its stream's end only after a loss: offsets may repeat then, and new messages are not trimmed.
        """
        ends = next_offsets.tolist()
        self.trimmed = {number: low.cut(ends[number]) for number, low in self.trimmed.items() if number < len(ends)}
        return dict(self.trimmed)

    def _apply(self, more: bytes) -> None:
        if self._packed == b"":
            self._packed, self._commits = more, None
        elif more != self._packed:
            self._add_commits(unpack_applied(more).values())

    def _add_commits(self, entries: Iterable[AppliedCommit]) -> None:
        if self._commits is None:
            self._commits = unpack_applied(self._packed or b"")
        add_applied(self._commits, entries)
        self._packed = None

    def _add(self, name: Name, next_offset: int) -> None:
        if name[0] == RECORDS_TOPIC:
            self.records = len(self.names)
        self.names.append(name)
        self.next_offsets.append(next_offset)


class LaterNames:
    """Names by the first of some segments that know them, of its footer or else of its frames.

    A damaged footer counts too, if its table of streams and their names are whole: they have checksums of their own.
    A footer counts, and may be the only one to name, the streams that came while it was made: their first frames are in
    segments after it. So a stream has a made-up name only if no frame that is left gives it another one. Files are read
    only when a name is asked for.
    """

    def __init__(self, disk: Disk, folder: Path, files: Sequence[UsedFile]) -> None:
        self._disk = disk
        self._folder = folder
        self._unread = list(reversed(files))
        self._names: dict[int, Name] = {}

    def name(self, number: int) -> Name | None:
        """The name of a stream; None if nothing that is left has it."""
        while number not in self._names and self._unread:
            for known, name in self._named_in(self._unread.pop()):
                if name[0] != GONE_TOPIC:
                    self._names.setdefault(known, name)
        return self._names.get(number)

    def _named_in(self, file: UsedFile) -> Iterator[tuple[int, Name]]:
        named = named_by_footer(self._disk, self._folder, file)
        if named:
            yield from named
            return
        for frame in frames_of(self._disk, file):
            for number, topic, queue_id in frame.definitions():
                yield number, (topic, queue_id)


def whole_before(disk: Disk, folder: Path, files: Sequence[UsedFile]) -> FooterData | None:
    """The lane's streams as they are before the first of some segments, as a footer without messages.

    The next full footer and those up to it say so. None if one of these is damaged.
    """
    small: list[FooterData] = []
    for file in files:
        footer = footer_of(disk, folder, file)
        if footer is None:
            return None
        if footer.stream is None:
            first = footer.first.copy()
            for one in reversed(small):
                first[one.numbers] = one.first
            start = np.zeros(len(first) + 1, np.uint32)
            said = small[0] if small else footer  # what later ones say of commits is not so yet
            return replace(
                footer,
                first=first,
                start=start,
                entries=np.empty(0, np.uint32),
                applied=said.applied,
            )
        small.append(footer)
    return None


def footer_of(disk: Disk, folder: Path, file: UsedFile) -> FooterData | None:
    """The whole footer of a segment that is not open."""
    segment = Segment(disk, folder, file.header, direct=False)
    try:
        return whole_footer(segment, file.record)
    finally:
        segment.close()


def named_by_footer(disk: Disk, folder: Path, file: UsedFile) -> list[tuple[int, Name]]:
    """The streams that the footer of a segment names, by number; none if it has no footer, or its names are damaged."""
    segment = Segment(disk, folder, file.header, direct=False)
    try:
        footer = readable_footer(segment, file.record)
        return [] if footer is None else list(zip(footer.numbers.tolist(), names_in(footer), strict=True))
    except (StoreCorrupt, *UNDECODABLE):
        return []
    finally:
        segment.close()


def frames_of(disk: Disk, file: UsedFile) -> Iterator[Frame]:
    """The frames of a segment, on the chain or not."""
    end = None if file.record is None else file.record.data_end
    return frames_in(disk, file.path, file.header.lane, file.sequence, 0, end)
