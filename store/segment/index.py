"""A footer as look-ups want it."""

from __future__ import annotations

from typing import NamedTuple

from ..format.footer import Footer
from .head import Head
from .held import Item


class Index(NamedTuple):
    """A footer, and the columns that every look-up wants: a view's single items cost a third of an array's.

    `is_remade`: it is not the file's, but made of the frames. `heads`: those that are held, by their frame's number in
    this index and in no other.
    """

    streams: int
    first: memoryview
    start: memoryview
    entries: memoryview
    frame_entry: memoryview
    footer: Footer
    is_remade: bool
    heads: dict[int, Head]


def index_of(footer: Footer, heads: dict[int, Head], *, is_remade: bool) -> Index:
    """The index of a footer."""
    return Index(
        len(footer.first), memoryview(footer.first.data), memoryview(footer.start.data),
        memoryview(footer.entries.data), memoryview(footer.frame_entry.data), footer, is_remade, heads,
    )  # fmt: skip


class RemadeIndex(Item):
    """An index in memory, to be held."""

    __slots__ = ("index",)

    def __init__(self, index: Index) -> None:
        self.index = index
        super().__init__(index.footer.size_bytes)
