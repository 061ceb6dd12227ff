"""The files of a bucket tracker: their exact bytes, and what is said of those that are damaged."""

from __future__ import annotations

import pytest

from stratalog.index import TrackerDamaged
from stratalog.index.trackers.format import Manifest, checksum

from .kinds import on_disk, taken
from .simulated_files import SimulatedFiles

GOLDEN = {
    "0000000000000001.bucket": (368, "c824e4f6807d3419"),
    "0000000000000002.left": (80, "e0489e751c8b2c3a"),
    "MANIFEST": (83, "47934941c20f2105"),
}


def written(*, has_left: bool = True) -> SimulatedFiles:
    """A bucket with two segments, a left file, a manifest with a mark."""
    files = SimulatedFiles(0)
    tracker = on_disk(files=files, most_buckets=9)
    tracker.add_messages([1, 1, 2, 2], [0, 1, 70_000, 5], [10, 20, 900, 10])
    tracker.checkpoint(b"one")
    if has_left:
        assert taken(tracker, 10) == [(1, 0), (2, 5)]
        tracker.checkpoint(b"two")
    return files


def test_bytes_are_as_they_were_from_the_second_version_on() -> None:
    files = written()
    found = {name: (files.size(name), f"{checksum(files.read(name, 0, 1 << 20)):016x}") for name in files.names()}
    assert found == GOLDEN


@pytest.mark.parametrize(("kind", "has_left"), [("MANIFEST", True), (".left", True), (".bucket", False)])
def test_flipped_bit_is_reported(kind: str, has_left: bool) -> None:
    """In each byte of each file: at the opening, or when the segment or the page is read."""
    [name] = [name for name in written(has_left=has_left).names() if name.endswith(kind)]
    for at in range(written(has_left=has_left).size(name)):
        files = written(has_left=has_left)
        files.flip(name, at)
        with pytest.raises(TrackerDamaged, match=r"log|version"):
            tracker = on_disk(files=files)
            tracker.pending_places()
            taken(tracker, 1 << 40)


@pytest.mark.parametrize("kind", ["MANIFEST", ".bucket", ".left"])
def test_file_that_was_cut_is_reported(kind: str) -> None:
    [name] = [name for name in written().names() if name.endswith(kind)]
    for size in range(0, written().size(name), 7):
        files = written()
        files.cut(name, size)
        with pytest.raises(TrackerDamaged, match=r"log|version"):
            on_disk(files=files)


@pytest.mark.parametrize("kind", [".bucket", ".left"])
def test_listed_file_that_is_missing_is_reported(kind: str) -> None:
    files = written()
    [name] = [name for name in files.names() if name.endswith(kind)]
    files.drop(name)
    with pytest.raises(TrackerDamaged, match="missing"):
        on_disk(files=files)


def test_file_of_a_later_version_is_refused() -> None:
    data = bytearray(Manifest(1, (), b"mark").encoded())
    data[8] = 3
    with pytest.raises(TrackerDamaged, match="version 3"):
        Manifest.decoded(bytes(data))
