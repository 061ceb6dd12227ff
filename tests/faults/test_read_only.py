"""A folder or file system that becomes read-only: an error that says so, and nothing lost."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from stratalog.store import MessageStore, StoreUnusable
from tests.store.helpers import crash_copy, tiny

from .child import APIS, Order
from .inject import FORCE, WRITE, Refusal, why_not
from .life import check_recovered, live, lives
from .mounts import tmpfs

SETTINGS = {"segment_bytes": 64 << 10, "max_message_bytes": 64 << 10, "max_frame_bytes": 64 << 10, "recent_bytes": 0}


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that a process of another user can reach, which those of pytest are not."""
    folder = Path(tempfile.mkdtemp(prefix="stratalog-"))
    folder.chmod(0o755)
    yield folder
    for path in [folder, *folder.rglob("*")]:
        if path.is_dir():
            path.chmod(0o755)
    shutil.rmtree(folder)


def test_folder_that_becomes_read_only_takes_what_fits_and_then_says_so(open_folder: Path) -> None:
    """No new segment can be made. The one that is open, and the spare, are filled."""
    orders = [Order(str(open_folder / api), SETTINGS, api=api, prepared=10, forbid=True, messages=200) for api in APIS]
    for order, life in zip(orders, lives(orders), strict=True):
        path = Path(order.path)
        assert "StoreFull" in life.names("append"), order
        assert not life.poisoned, order
        assert all("ermission" in text for _, _, text in life.errors), order
        for folder in (path, path / "lane-00"):
            folder.chmod(0o755)
        check_recovered(path, life.told)


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, which can be made read-only."""
    with tmpfs(tmp_path / "disk", "8m") as path:
        yield path


@pytest.mark.parametrize("crashed", [False, True], ids=["closed", "crashed"])
def test_store_on_a_read_only_file_system_is_refused_and_unharmed(mounted: Path, crashed: bool) -> None:
    path = mounted / "store"
    with MessageStore.open(path, tiny()) as store:
        for index in range(40):
            store.append("t", 0, b"%d" % index * 500)
        left = crash_copy(path, mounted / "left")
    path = left if crashed else path
    before = {name: name.read_bytes() for name in path.rglob("*.seg")}
    subprocess.run(["mount", "-o", "remount,ro", str(mounted)], check=True)
    for name in ("store", "left", "new"):
        with pytest.raises(StoreUnusable, match="Read-only"):
            MessageStore.open(mounted / name, tiny())
    assert {name: name.read_bytes() for name in path.rglob("*.seg")} == before
    subprocess.run(["mount", "-o", "remount,rw", str(mounted)], check=True)
    with MessageStore.open(path, tiny()) as store:
        assert store.queue_bounds("t", 0) == (0, 40)


@pytest.mark.parametrize("call", [WRITE, FORCE, pytest.param("fallocate", marks=pytest.mark.linux)])
def test_file_system_that_becomes_read_only_while_the_store_is_open(tmp_path: Path, call: str) -> None:
    """As after an error of the device: every change is refused from then on."""
    if why_not():
        pytest.skip(why_not())
    path = tmp_path / "store"
    refusal = Refusal(call, "error=EROFS", 3, every=True)
    life = live(Order(str(path), SETTINGS, messages=150), refusal.arguments(tmp_path / "log"))
    assert life.errors
    check_recovered(path, life.told)
