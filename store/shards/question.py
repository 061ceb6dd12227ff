"""A committer's question to the process that has the store open: which commits of a name does the log have?

That process knows it, so a committer reads nothing of the log. A question and its answer are two small files in the
folder `incoming`, see `format.shard`. They are never forced. A torn, old or missing file is no answer, and without an
answer nothing is committed. Only the manifest makes a commit durable, and it is written after the answer.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..device.disk import Disk
from ..errors import StoreError, StoreLocked
from ..format.shard import ANSWER, QUESTION, pack_line, unpack_line
from .staging import NOT_COMMITTED, incoming_of, read_all


class Question:
    """A committer's side: the question exists until `end`. `committing` is held: one process at a time asks.

    Invariant: the answer is right for a moment after the question was written. An earlier commit is in the answer, or
    its manifest still existed at that moment. So a committer that reads the manifests first, and then asks, misses
    none.
    """

    def __init__(self, disk: Disk, store: Path, name: str, batch: int) -> None:
        """Raises OSError."""
        self._disk = disk
        self._store = store
        self._number = secrets.token_hex(16)
        _write(disk, incoming_of(store) / QUESTION, {"number": self._number, "name": name, "batch": batch})

    def answer(self) -> dict[int, int] | None:
        """By batch, the digest of each one that the log has under the name; None while there is no answer.

        Raises StoreLocked if the process that has the store open cannot tell.
        """
        fields = _read(self._disk, incoming_of(self._store) / ANSWER)
        if fields is None or fields["number"] != self._number:
            return None
        if fields["error"] is not None:
            raise StoreLocked(
                f"{self._store} is open in a process that takes no commit now: {fields['error']} {NOT_COMMITTED}"
            )
        return dict(fields["batches"])

    def end(self) -> None:
        """Remove the question and its answer."""
        for name in (QUESTION, ANSWER):
            with suppress(OSError):
                self._disk.remove(incoming_of(self._store) / name)


def answer_question(disk: Disk, store: Path, last: str, batches: Callable[[str, int], Mapping[int, int]]) -> str:
    """Answer the question, unless it is the `last` one. Returns the number of the newest question. Raises OSError.

    `batches`: the digest of each batch that the log has under a commit's name; it may raise StoreError.
    """
    asked = _read(disk, incoming_of(store) / QUESTION)
    if asked is None or asked["number"] == last:
        return last
    found: Mapping[int, int] = {}
    error = None
    try:
        found = batches(asked["name"], asked["batch"])
    except StoreError as raised:
        error = str(raised)
    answer = {"number": asked["number"], "batches": list(found.items()), "error": error}
    _write(disk, incoming_of(store) / ANSWER, answer)
    return str(asked["number"])


def _write(disk: Disk, path: Path, fields: dict[str, Any]) -> None:
    content = pack_line(fields)
    file = disk.open(path, create=True)
    try:
        file.write([content], 0)
        file.truncate(len(content))
    finally:
        file.close()


def _read(disk: Disk, path: Path) -> dict[str, Any] | None:
    """The fields of a file; None if it does not exist, or is not whole."""
    try:
        return unpack_line(read_all(disk, path))
    except OSError:
        return None
