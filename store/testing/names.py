"""The names of one simulated folder, twice: as they are, and as the device has them for certain."""

from __future__ import annotations

from typing import NamedTuple

from .content import Content
from .survivors import Survivors


class Change(NamedTuple):
    """One change of a folder. `name` is given to `content`, and `old` is taken away; either may be missing."""

    name: str | None
    content: Content | None
    old: str | None = None


class Names:
    """The files of a folder by name. Only after `force` a change survives a power cut for certain."""

    def __init__(self, forced: dict[str, Content] | None = None) -> None:
        self.now: dict[str, Content] = forced or {}
        self.forced: dict[str, Content] = dict(self.now)
        self.unforced: list[Change] = []

    def apply(self, change: Change) -> None:
        """Make a change, without a force."""
        _apply(self.now, change)
        self.unforced.append(change)

    def force(self) -> None:
        """Bring all changes to the device."""
        if self.unforced:
            self.forced = dict(self.now)
            self.unforced = []

    def contents(self) -> list[Content]:
        """Every file that a power cut may leave, in a fixed order, each once."""
        if not self.unforced:
            return [content for _, content in sorted(self.now.items())]
        named = [*sorted(self.forced.items()), *sorted(self.now.items())]
        files = [content for _, content in named]
        files += [change.content for change in self.unforced if change.content is not None]
        return list({id(content): content for content in files}.values())

    @property
    def is_forced(self) -> bool:
        """True if a power cut takes nothing of the folder."""
        return not self.unforced and all([content.is_forced for content in self.now.values()])

    def fingerprint(self) -> int:
        """A number that is equal for folders with the same written files; within one process only."""
        return hash(frozenset([(name, content.fingerprint()) for name, content in self.now.items()]))

    def copy(self) -> Names:
        """A copy in this state, which can be changed independently."""
        twins = {id(content): content.copy() for content in self.contents()}
        twin = Names({name: twins[id(content)] for name, content in self.now.items()})
        if self.unforced:
            twin.forced = {name: twins[id(content)] for name, content in self.forced.items()}
            twin.unforced = [
                change._replace(content=twins[id(change.content)]) if change.content is not None else change
                for change in self.unforced
            ]
        return twin

    def survive(self, survivors: Survivors) -> dict[str, Content]:
        """The names as a power cut leaves them, with the contents from before it."""
        found = dict(self.forced)
        if self.unforced:
            for change in survivors.changes(self.unforced):
                _apply(found, change)
        return found


def _apply(names: dict[str, Content], change: Change) -> None:
    if change.old is not None:
        held = names.get(change.old)
        if change.content is not None and held is not change.content:
            return  # a file whose old name was lost has no new one either
        names.pop(change.old, None)
    if change.name is not None and change.content is not None:
        names[change.name] = change.content
