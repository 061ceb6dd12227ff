"""Write amplification: written bytes over bytes of payload, with and without the bytes beside the log."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...store import inspect_folder

# Heading -> figure, for the tables.
COLUMNS = {
    "amplification": "write_amplification",
    "with footers": "write_amplification_with_footers",
    "with zeros too": "write_amplification_with_prewriting",
}


def footer_bytes(folder: Path) -> int:
    """Bytes of the footers of a closed store's segments."""
    lanes = inspect_folder(folder)["lanes"]
    return sum(segment["footer_bytes"] or 0 for lane in lanes for segment in lane["segments"])


def amplification(log: Mapping[str, Any], payload_bytes: int, folder: Path) -> dict[str, float]:
    """Write amplification of the log (frames and padding); with the footers; and also with the zeros of pre-writing.

    `log` is `stats()["log"]` of a store whose only messages are those payloads, `folder` the closed store.
    """
    footers = footer_bytes(folder)
    written = log["written_bytes"] + footers
    return {
        "write_amplification": log["written_bytes"] / payload_bytes,
        "write_amplification_with_footers": written / payload_bytes,
        "write_amplification_with_prewriting": (written + log["prewritten_bytes"]) / payload_bytes,
        "footer_mb": footers / 1e6,
        "prewritten_mb": log["prewritten_bytes"] / 1e6,
    }
