"""The streams of a lane as recovery comes to know them: names by number, and where each goes on.

They come from the newest footer passed, then from the definitions in the frames behind it. When a repair
has lost the frame that names a stream, a footer behind still knows the name.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from .disk import Disk
from .footer import FooterData
from .frame import Frame
from .repair import whole_footer
from .segment import Segment
from .segment_files import UsedFile

Name = tuple[str, int]  # (topic, queue)


class LaneStreams:
    """Names and next offsets of a lane's streams; both lists have one element a stream, by number."""

    def __init__(self, lane: int) -> None:
        self._lane = lane
        self.names: list[Name] = []
        self.next_offsets: list[int] = []

    def load(self, footer: FooterData) -> None:
        """Take over a footer's streams, as they are behind its segment."""
        self.names = _names_in(footer)
        self.next_offsets = footer.next_offsets.tolist()

    def load_before(self, footer: FooterData) -> None:
        """Take over a footer's streams, as they are before its segment."""
        self.names = _names_in(footer)
        self.next_offsets = footer.first.tolist()

    def learn(self, frame: Frame, behind: FooterNames | None) -> None:
        """Note the streams that a frame names."""
        for number, topic, queue_id in frame.definitions():
            self.know(number, behind)
            if number == len(self.names):
                self._add((topic, queue_id))
            self.names[number] = (topic, queue_id)

    def know(self, count: int, behind: FooterNames | None) -> None:
        """Make sure that `count` streams are known. Those whose definition was lost are named by `behind`."""
        while len(self.names) < count:
            number = len(self.names)
            name = behind.name(number) if behind is not None else None
            # What no footer knows is kept under a name of ours: its messages can still be read.
            self._add(name or (f"lost-name-{self._lane}", number))

    def _add(self, name: Name) -> None:
        self.names.append(name)
        self.next_offsets.append(0)


class FooterNames:
    """Names by the first whole footers of some segments that know them. Footers are read when asked for."""

    def __init__(self, disk: Disk, folder: Path, files: Sequence[UsedFile]) -> None:
        self._disk = disk
        self._folder = folder
        self._unread = list(reversed(files))
        self._names: list[Name] = []

    def name(self, number: int) -> Name | None:
        """The name of a stream; None if no whole footer has it."""
        while number >= len(self._names) and self._unread:
            file = self._unread.pop()
            segment = Segment(self._disk, self._folder, file.header, direct=False)
            try:
                footer = whole_footer(segment, file.record)
            finally:
                segment.close()
            if footer is not None:
                self._names += _names_in(footer)[len(self._names) :]
        return self._names[number] if number < len(self._names) else None


def _names_in(footer: FooterData) -> list[Name]:
    topics = [footer.topics[index] for index in footer.stream_topic.tolist()]
    return list(zip(topics, footer.stream_queue.tolist(), strict=True))
