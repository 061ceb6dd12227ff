"""Tools for a store's folder: verify, inspect, look into, compact, rebuild, replace."""

from .store import (
    Compacted,
    InParts,
    Rebuilt,
    VerifyReport,
    compact_store,
    inspect_folder,
    look_into_folder,
    rebuild_store,
    replace_store,
    verify_folder,
)

__all__ = [
    "Compacted",
    "InParts",
    "Rebuilt",
    "VerifyReport",
    "compact_store",
    "inspect_folder",
    "look_into_folder",
    "rebuild_store",
    "replace_store",
    "verify_folder",
]
