"""The record of a topic's settings: a message of the hidden stream `hidden_topic(TOPIC_KIND, topic)`.

    magic    4 bytes  TOPIC_MAGIC
    version  u8       TOPIC_VERSION
    zeros    3 bytes
    settings          JSON, an object. Names that a reader does not know are passed over

The newest record counts, and has all settings. A topic without one has the settings of a topic that was never
configured.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import Any, Final

TOPIC_MAGIC: Final = b"SLTS"
TOPIC_VERSION: Final = 1
WORK_QUEUE: Final = "until_acknowledged"  # the `keep` of a work queue
UNKNOWN: Final = "unknown"  # in place of a `keep` that cannot be read: nothing goes that some `keep` would keep

_HEAD = struct.Struct("<4sB3s")
_ZEROS = bytes(3)


def pack_settings(settings: Mapping[str, Any]) -> bytes:
    """The record of a topic's settings."""
    text = json.dumps(settings, separators=(",", ":"), sort_keys=True)
    return _HEAD.pack(TOPIC_MAGIC, TOPIC_VERSION, _ZEROS) + text.encode()


def unpack_settings(data: bytes) -> dict[str, Any]:
    """The settings of a record. Raises ValueError for what is none of this version."""
    if len(data) < _HEAD.size or _HEAD.unpack_from(data) != (TOPIC_MAGIC, TOPIC_VERSION, _ZEROS):
        raise ValueError("the bytes are no record of a topic's settings")
    found = json.loads(data[_HEAD.size :])
    if not isinstance(found, dict):
        raise ValueError("a topic's settings are no JSON object")
    return found
