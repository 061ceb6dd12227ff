"""The files of a bucket tracker: their exact bytes, and what is said of those that are damaged."""

from __future__ import annotations

import pytest

from stratalog.index import TrackerDamaged
from stratalog.index.trackers.format import Manifest, checksum

from .kinds import on_disk, taken
from .simulated_files import SimulatedFiles

GOLDEN = {
    "0000000000000001.bucket": (312, "26ce96f9bcfe8b69"),
    "0000000000000002.live": (92, "8749f3a0a756ba18"),
    "MANIFEST": (91, "7f2e2818caf8116a"),
}


def written(*, has_live: bool = True) -> SimulatedFiles:
    """A bucket with two segments, a live file, a manifest with a mark."""
    files = SimulatedFiles(0)
    tracker = on_disk(files=files, most_buckets=9)
    tracker.add_messages([1, 1, 2, 2], [0, 1, 70_000, 5], [10, 20, 900, 10])
    tracker.checkpoint(b"one")
    if has_live:
        assert taken(tracker, 10) == [(1, 0), (2, 5)]
        tracker.checkpoint(b"two")
    return files


def test_bytes_are_as_they_were_from_the_first_version_on() -> None:
    files = written()
    found = {name: (files.size(name), f"{checksum(files.read(name, 0, 1 << 20)):016x}") for name in files.names()}
    assert found == GOLDEN


@pytest.mark.parametrize(("kind", "has_live"), [("MANIFEST", True), (".live", True), (".bucket", False)])
def test_flipped_bit_is_reported(kind: str, has_live: bool) -> None:
    """In each byte of each file: at the opening, or when the segment is read."""
    [name] = [name for name in written(has_live=has_live).names() if name.endswith(kind)]
    for at in range(written(has_live=has_live).size(name)):
        files = written(has_live=has_live)
        files.flip(name, at)
        with pytest.raises(TrackerDamaged, match=r"log|version"):
            taken(on_disk(files=files), 1 << 40)


@pytest.mark.parametrize("kind", ["MANIFEST", ".bucket", ".live"])
def test_file_that_was_cut_is_reported(kind: str) -> None:
    [name] = [name for name in written().names() if name.endswith(kind)]
    for size in range(0, written().size(name), 7):
        files = written()
        files.cut(name, size)
        with pytest.raises(TrackerDamaged, match=r"log|version"):
            on_disk(files=files)


@pytest.mark.parametrize("kind", [".bucket", ".live"])
def test_listed_file_that_is_missing_is_reported(kind: str) -> None:
    files = written()
    [name] = [name for name in files.names() if name.endswith(kind)]
    files.drop(name)
    with pytest.raises(TrackerDamaged, match="missing"):
        on_disk(files=files)


def test_file_of_a_later_version_is_refused() -> None:
    data = bytearray(Manifest(1, (), b"mark").encoded())
    data[8] = 2
    with pytest.raises(TrackerDamaged, match="version 2"):
        Manifest.decoded(bytes(data))
