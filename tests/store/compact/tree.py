"""A real folder whose changes are noted as they are made: what a power cut at any of them leaves of it.

`stratalog.store.testing.SimulatedDisk` knows files in folders that stay. Compaction moves and exchanges folders, so
here the work is done on the system's own file system, and each call that changes something is noted beside it.

The fault model is that of the simulated disk, for bytes and lengths: the files are its `Content`. Names of files and
of folders go by changes. One is durable when each folder that it concerns was forced behind it: a move from one folder
to another needs both. Of the changes that are not durable any survive, the first ones in order or some others; each
one wholly or not at all, an exchange too. One that does not fit what is there without the others has no effect.

Not in the model: bytes written through a mapping (the page LIVE alone, on which nothing depends), and links across
devices.
"""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from stratalog.store.api import compacting, rebuilding
from stratalog.store.device.exchange import exchange
from stratalog.store.testing.content import Content
from stratalog.store.testing.survivors import MANNERS, Survivors

Node = int  # the number of a file or folder
Left = dict[str, bytes | None]  # by path in the folder: a file's bytes, None for a folder


class Entry(NamedTuple):
    """A name in a folder: what it leads to before a change, and behind it; None is nothing."""

    folder: Node
    name: str
    old: Node | None
    new: Node | None


class Change(NamedTuple):
    """Names that change together. `unforced`: the folders that were not forced since."""

    entries: tuple[Entry, ...]
    unforced: set[Node]


Names = dict[Node, dict[str, Node]]


class NotedTree:
    """A folder while work is done in it: `noting`. All that is there at the beginning is durable.

    Args:
        before_change: called before each change with its name; `cut` gives what a power cut leaves there.
    """

    def __init__(self, root: Path, before_change: Callable[[str], None]) -> None:
        self._root = root
        self._before_change = before_change
        self._lock = threading.RLock()
        self._files: dict[Node, Content] = {}
        self._durable: Names = {}  # behind the changes that were taken over
        self._now: Names = {}
        self._changes: list[Change] = []
        self._top = self._load(root)

    def _load(self, folder: Path) -> Node:
        node = folder.stat().st_ino
        names: dict[str, Node] = {}
        for path in folder.iterdir():
            if path.is_dir():
                names[path.name] = self._load(path)
            else:
                names[path.name] = path.stat().st_ino
                self._files.setdefault(path.stat().st_ino, Content.of(path.read_bytes()))
        self._durable[node], self._now[node] = dict(names), names
        return node

    # -- what is left ---------------------------------------------------------------------------------

    def cut(self, chance: random.Random) -> Left:
        """What a power cut leaves now."""
        with self._lock:
            doubtful = sum(one.unforced_blocks for one in self._files.values() if not one.is_forced)
            survivors = Survivors(chance, chance.choice(MANNERS), doubtful)
            kept = {id(one) for one in survivors.changes([one for one in self._changes if one.unforced])}
            names = {node: dict(entries) for node, entries in self._durable.items()}
            for change in self._changes:
                if not change.unforced or (id(change) in kept and _fits(names, change)):
                    _apply(names, change)
            left: Left = {}
            self._collect(names, self._top, "", survivors, left)
            return left

    def _collect(self, names: Names, node: Node, prefix: str, survivors: Survivors, left: Left) -> None:
        for name, inner in sorted(names.get(node, {}).items()):
            content = self._files.get(inner)
            if content is None:
                left[prefix + name] = None
                self._collect(names, inner, f"{prefix}{name}/", survivors, left)
            else:
                found = content.survive(survivors)
                left[prefix + name] = found.read(0, found.size)

    # -- changes --------------------------------------------------------------------------------------

    def _change(self, *entries: Entry) -> None:
        for one in entries:
            _put(self._now, one)
        self._changes.append(Change(entries, {one.folder for one in entries}))

    def _force_folder(self, node: Node) -> None:
        for change in self._changes:
            change.unforced.discard(node)
        while self._changes and not self._changes[0].unforced:
            _apply(self._durable, self._changes.pop(0))

    def _at(self, path: Any, folder: int | None = None) -> tuple[Node, str] | None:
        """The folder and the name of a path; None if it is not below ours."""
        if folder is not None:
            node = os.fstat(folder).st_ino
            return (node, os.fspath(path)) if node in self._now else None
        parent, name = os.path.split(os.fspath(path))
        if not os.path.realpath(parent).startswith(str(self._root)):
            return None
        return os.stat(parent).st_ino, name

    @contextmanager
    def noting(self) -> Iterator[None]:
        """Inside, calls of the system note what they change. One tree at a time in a process."""
        before = [(owner, name, getattr(owner, name)) for owner, name in _CALLS]
        for owner, name, call in before:
            setattr(owner, name, self._noted(call, getattr(self, f"_{name}")))
        try:
            yield
        finally:
            for owner, name, call in before:
                setattr(owner, name, call)

    def _noted(self, call: Callable[..., Any], note: Callable[..., Any]) -> Callable[..., Any]:
        def run(*given: Any, **named: Any) -> Any:
            with self._lock:
                return note(call, *given, **named)

        return run

    def _file(self, number: int) -> Content | None:
        return self._files.get(os.fstat(number).st_ino)

    # -- the calls: each notes itself, and does it ----------------------------------------------------

    def _open(self, call: Any, path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        at = self._at(path, dir_fd) if flags & os.O_CREAT else None
        is_new = at is not None and at[1] not in self._now.get(at[0], {at[1]: 0})
        if is_new:
            self._before_change(f"create {path}")
        number: int = call(path, flags, mode, dir_fd=dir_fd)
        if at is not None and is_new:
            node = os.fstat(number).st_ino
            self._files[node] = Content()
            self._change(Entry(*at, None, node))
        return number

    def _pwritev(self, call: Any, number: int, parts: Any, position: int, flags: int = 0) -> int:
        content = self._file(number)
        if content is not None:
            self._before_change(f"write {position}")
        done: int = call(number, parts, position, flags)
        if content is not None and done:
            content.write(position, b"".join(parts)[:done])
            if flags:
                content.force_range(position, position + done)
        return done

    def _pwrite(self, call: Any, number: int, data: Any, position: int) -> int:
        content = self._file(number)
        done: int = call(number, data, position)
        if content is not None:
            content.write(position, bytes(data)[:done])
        return done

    def _ftruncate(self, call: Any, number: int, size: int) -> None:
        content = self._file(number)
        if content is not None:
            self._before_change(f"truncate {size}")
            content.truncate(size)
        call(number, size)

    def _posix_fallocate(self, call: Any, number: int, position: int, size: int) -> None:
        content = self._file(number)
        call(number, position, size)
        if content is not None:
            content.reserve(position + size)

    def _fdatasync(self, call: Any, number: int) -> None:
        self._fsync(call, number)

    def _fsync(self, _call: Any, number: int) -> None:
        node = os.fstat(number).st_ino
        if node in self._files:
            self._before_change("force")
            self._files[node].force()
        elif any(node in change.unforced for change in self._changes):
            self._before_change("force_folder")
            self._force_folder(node)
        # The call itself is left out: nothing here is read behind a real power cut.

    def _mkdir(self, call: Any, path: Any, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        at = self._at(path, dir_fd)
        if at is not None:
            self._before_change(f"mkdir {path}")
        call(path, mode, dir_fd=dir_fd)
        if at is not None:
            node = os.stat(path).st_ino
            self._now[node], self._durable[node] = {}, {}
            self._change(Entry(*at, None, node))

    def _rename(self, call: Any, old: Any, new: Any) -> None:
        of, to = self._at(old), self._at(new)
        if of is not None:
            self._before_change(f"rename {old}")
        call(old, new)
        if of is not None and to is not None:
            node = self._now[of[0]][of[1]]
            self._change(Entry(*of, node, None), Entry(*to, self._now[to[0]].get(to[1]), node))

    def _link(self, call: Any, old: Any, new: Any) -> None:
        to = self._at(new)
        if to is not None:
            self._before_change(f"link {new}")
        call(old, new)
        if to is not None:
            self._change(Entry(*to, None, os.stat(new).st_ino))

    def _unlink(self, call: Any, path: Any, *, dir_fd: int | None = None) -> None:
        self._remove(call, path, dir_fd)

    def _rmdir(self, call: Any, path: Any, *, dir_fd: int | None = None) -> None:
        self._remove(call, path, dir_fd)

    def _remove(self, call: Any, path: Any, dir_fd: int | None) -> None:
        at = self._at(path, dir_fd)
        if at is not None:
            self._before_change(f"remove {path}")
        call(path, dir_fd=dir_fd)
        if at is not None:
            self._change(Entry(*at, self._now[at[0]][at[1]], None))

    def _exchange(self, call: Any, one: Path, other: Path) -> None:
        of, to = self._at(one), self._at(other)
        assert of is not None and to is not None
        self._before_change(f"exchange {one}")
        exchange(one, other)
        first, second = self._now[of[0]][of[1]], self._now[to[0]][to[1]]
        self._change(Entry(*of, first, second), Entry(*to, second, first))


_CALLS: list[tuple[Any, str]] = [
    *[(os, name) for name in (
        "open", "pwritev", "pwrite", "ftruncate", "posix_fallocate", "fdatasync", "fsync", "mkdir", "rename", "link",
        "unlink", "rmdir",
    )],
    (compacting, "exchange"), (rebuilding, "exchange"),
]  # fmt: skip


def _put(names: Names, entry: Entry) -> None:
    if entry.new is None:
        names[entry.folder].pop(entry.name, None)
    else:
        names[entry.folder][entry.name] = entry.new


def _apply(names: Names, change: Change) -> None:
    for entry in change.entries:
        _put(names, entry)


def _fits(names: Names, change: Change) -> bool:
    """Whether a change can be made of these names: each leads to what it did, and a folder that goes is empty."""
    is_removal = all(entry.new is None for entry in change.entries)
    return all(
        names[entry.folder].get(entry.name) == entry.old and not (is_removal and names.get(entry.old or 0))
        for entry in change.entries
    )


def put_left(left: Left, folder: Path) -> None:
    """Make a folder of what was left."""
    folder.mkdir(parents=True)
    for name, content in left.items():
        if content is None:
            (folder / name).mkdir()
        else:
            (folder / name).write_bytes(content)
