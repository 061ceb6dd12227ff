"""The indexes of deleted topics, at an opening: what is known of their delays goes. Then `log.gone` can forget them."""

from __future__ import annotations

from contextlib import suppress

from ..errors import StoreFull
from ..format.delays import COPIES, DELAYS
from ..format.hidden import CURSOR_KIND, hidden_parts, hidden_topic
from ..log.streams import Stream
from .disk_files import DiskFiles
from .parts import StoreParts


def forget_deleted(parts: StoreParts) -> set[str]:
    """Remove the indexes of topics that were deleted and have no subscription: the topics that have none now.

    First the files, then the records: whoever comes between finds records without files, and makes the index anew.
    Raises OSError; else as an append does.
    """
    subscribed = {_topic_of(stream) for stream in parts.hidden.of_kind(CURSOR_KIND) if not stream.is_empty}
    forgotten: set[str] = set()
    for stream in parts.hidden.of_kind(DELAYS):
        topic = _topic_of(stream)
        queues = list(parts.streams.topics.get(topic, {}).values())
        if topic in subscribed or not all(queue.is_deleted for queue in queues):
            continue
        forgotten.add(topic)
        if not stream.is_empty:
            folder = parts.folder_of(topic)
            DiskFiles(parts.disk, folder).clear()
            parts.disk.remove_folder(folder)
            for kind in (COPIES, DELAYS):
                known = parts.hidden.find(hidden_topic(kind, topic))
                with suppress(StoreFull):  # a store opens on a full disk; the next opening comes here again
                    if known is not None and not known.is_empty:
                        parts.hidden.trim(known, known.next_offset)
    return forgotten


def _topic_of(stream: Stream) -> str:
    told = hidden_parts(stream.topic)
    return told.names[0] if told is not None and told.names else ""
