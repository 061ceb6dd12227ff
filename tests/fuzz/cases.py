"""One damaged store: opened plainly, looked at by `verify` and `inspect`, repaired, and repaired again.

What is checked, in this order:

1. `verify_folder` and `inspect_folder` change nothing and do not fail.
2. A plain opening works or refuses with an error of ours. If it works, no read gives a wrong byte, what is whole in a
   whole file is readable, nothing but the tail of an unclosed log is gone in silence, and appends get new offsets.
3. What the opening refused, verify and inspect report; a store that verify takes for unharmed opens.
4. A repair opens the store. No byte is wrong, no message has another offset, what is unhurt is still there, and losses
   tell of all that is missing and of nothing else.
5. What it leaves opens plainly, verifies as unharmed, and a second repair tells of nothing and changes nothing.
6. Appends get no offset that was acknowledged before, unless a loss says so.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from stratalog.store import (
    Loss,
    MessageStore,
    OffsetOutOfRange,
    StoreCorrupt,
    StoreError,
    StoreUnusable,
    VerifyReport,
    inspect_folder,
    verify_folder,
)
from stratalog.store.format.store_files import StoreHeader
from tests.store.helpers import Snapshot, put_snapshot, take_snapshot, until, without_marks

from .checks import Broken, Expected, Reading, append_everywhere
from .faults import Fault
from .orders import Order, Seen, check_quarantine, in_use, lane_of, open_repairing, says_again, without_lock
from .places import Places, Verdict
from .stories import LEFT_OUT, config

RETIRED_WITHIN_S = 30.0
PAYLOAD_ONLY = "do not match their checksum"  # what inspect does not look at


def damage(places: Places, faults: Sequence[Fault]) -> Snapshot:
    """The story's folder with the faults in it."""
    state = places.story.final
    for fault in faults:
        state = fault.apply(state)
    return {name: content for name, content in state.items() if name != "LOCK"}


class Case:
    """The checks of one damaged state, in a folder of its own. Raises Broken."""

    def __init__(self, places: Places, damaged: Snapshot, order: Order, folder: Path) -> None:
        self.places = places
        self.damaged = damaged
        self.order = order
        self.path = folder / "s"
        self.verdict = Verdict(places, damaged)
        self.expected = Expected(places.story)
        self.gone: set[tuple[int, int]] = set()  # vanished when it was opened plainly, as it may
        self.chance = random.Random(order.seed)
        self.seen = Seen()

    def run(self) -> Seen:
        """All checks."""
        if all(name.endswith("/") for name in self.damaged):
            return self.seen  # empty folders are what an interrupted first opening leaves: nothing tells of a store
        put_snapshot(self.damaged, self.path)
        if self.verdict.is_blind and not self.store_is_hurt():
            self.repair_blind()
            return self.seen
        report, problems = self.look()
        refusal = self.open_plainly(report)
        self.seen.refused, self.seen.reported = refusal is not None, not (report is None or report.ok)
        self.compare(refusal, report, problems)
        if self.order.retire and refusal is None and not self.store_is_hurt():
            self.retire()
        if self.store_is_hurt():
            return self.seen  # of the file STORE there must be a copy
        if not self.order.plain_first or self.order.retire:
            put_snapshot(self.damaged, self.path)
            self.expected.added.clear()
            self.gone.clear()
        losses = self.repair(report)
        self.after(losses)
        return self.seen

    def store_is_hurt(self) -> bool:
        """Is STORE gone, unreadable or another store's?"""
        before = StoreHeader.unpack(self.places.story.final["STORE"])
        return "STORE" not in self.damaged or StoreHeader.unpack(self.damaged["STORE"]) != before

    # -- 1, 3: verify and inspect ---------------------------------------------------------------------

    def look(self) -> tuple[VerifyReport | None, list[str] | None]:
        """What verify and inspect find; None where they refuse the folder, as they may without a STORE."""
        report: VerifyReport | None = None
        problems: list[str] | None = None
        try:
            report = verify_folder(self.path)
        except StoreUnusable:
            if "STORE" in self.damaged:
                raise
        try:
            problems = [str(problem) for problem in inspect_folder(self.path)["problems"]]
        except (StoreCorrupt, StoreUnusable):
            if not self.store_is_hurt():
                raise
        if without_lock(take_snapshot(self.path)) != without_lock(self.damaged):
            raise Broken("verify or inspect changed the folder", "")
        return report, problems

    def compare(self, refusal: StoreCorrupt | None, report: VerifyReport | None, problems: list[str] | None) -> None:
        """Verify and inspect report what the opening refused."""
        if refusal is None:
            return
        if report is not None and report.ok:
            raise Broken("verify finds nothing, open refuses", str(refusal))
        if problems == [] and PAYLOAD_ONLY not in refusal.what:
            raise Broken("inspect finds nothing, open refuses", str(refusal))

    # -- 2: the plain opening -------------------------------------------------------------------------

    def open_plainly(self, report: VerifyReport | None) -> StoreCorrupt | None:
        """Open, read and append; the error if the store refuses to open."""
        try:
            store = MessageStore.open(self.path, self.order.config())
        except StoreCorrupt as error:
            return error
        except StoreUnusable:
            if "STORE" in self.damaged:
                raise
            return None
        with contextlib.closing(store):
            if self.store_is_hurt():
                raise Broken("a damaged STORE is not noticed", "")
            reading = Reading(store, self.expected, self.chance)
            self.check_plain(store, reading)
            if reading.errors and report is not None and report.ok:
                raise Broken("verify finds nothing, a read refuses", str(reading.errors))
            forgotten = reading.forgotten_ids & self.verdict.kept_ids
            if forgotten and not reading.errors and not self.expected.story.plan.repaired:
                raise Broken("an id is forgotten without a word", f"{len(forgotten)} of them")
            if self.order.append_plainly:
                append_everywhere(store, self.expected, reading)
                self.check_given(self.expected.added.keys(), [], "plain open")
        if not self.expected.added or self.chance.random() < 0.5:
            return None
        with MessageStore.open(self.path, config()) as store:
            for (number, offset), data in self.expected.added.items():
                name = self.places.story.queues[number].name
                try:
                    found = store.get_range(*name, offset, 1)
                except StoreCorrupt as error:
                    raise Broken("a new message is not readable after a reopening", str(error)) from error
                if found != {0: data}:
                    raise Broken("a new message is gone after a reopening", f"{name} at offset {offset}: {found}")
        return None

    def check_plain(self, store: MessageStore, reading: Reading) -> None:
        """Whatever is whole is readable; what is missing without an error may be."""
        for told in self.places.story.queues:
            number, count = told.number, len(told.lengths)
            readable, tail = self.verdict.readable[number], self.verdict.tail[number]
            bounds = reading.bounds[number]
            if bounds is None:
                if (told.there & readable & ~tail).any():
                    raise Broken("the bounds of a queue are refused", f"{told.name}: {reading.errors}")
                continue
            left = np.flatnonzero(told.there & ~reading.got[number][:count]).tolist()
            for at in self.chance.sample(left, min(len(left), 100)):
                if not tail[at]:
                    self.check_absent(reading, number, at, bounds, may_read=bool(readable[at]))
            if reading.scanned is not None and number not in {n for n, _ in reading.lost_names}:
                silent = np.flatnonzero(told.there & ~tail & ~reading.scanned[number][:count])
                if len(silent):
                    raise Broken("a scan leaves messages out in silence", f"{told.name}: {len(silent)}, {silent[:5]}")
            refused = reading.refused[number]
            self.gone.update((number, at) for at in left if tail[at] and at not in refused)

    def check_absent(self, reading: Reading, number: int, at: int, bounds: tuple[int, int], *, may_read: bool) -> None:
        """A durable message was not read: a read that begins with it says why.

        It may be below the bounds: they begin behind an oldest segment that nothing tells of.
        """
        told = self.places.story.queues[number]
        try:
            if reading.probe(told, at):
                return
        except OffsetOutOfRange as error:
            raise Broken("a message vanished in silence", f"{told.name} at {at}: {error}") from error
        if at not in reading.refused[number]:
            raise Broken("a message vanished in silence", f"{told.name} at {at}, bounds {bounds}, nothing is read")
        if may_read:
            raise Broken("an unhurt message is refused", f"{told.name} at {at}: {list(reading.errors.values())[:3]}")

    def retire(self) -> None:
        """Retention goes on around the damage: all sealed segments but each lane's newest are removed."""
        put_snapshot(self.damaged, self.path)
        expected = Expected(self.places.story)
        with MessageStore.open(self.path, config(retention_bytes=0)) as store:
            try:
                until(lambda: all(len(lane.view.sealed) <= 1 for lane in store._lanes), RETIRED_WITHIN_S)
            except AssertionError as error:
                raise Broken("retention stops at damage", str(store.stats()["last_background_error"])) from error
            append_everywhere(store, expected, Reading(store, expected, self.chance, quick=True))

    # -- 4: the repair --------------------------------------------------------------------------------

    def repair(self, report: VerifyReport | None) -> list[Loss]:
        """Repair and check what is left; the losses."""
        with open_repairing(self.path, self.order.config()) as store:
            losses = list(store.losses)
            reading = Reading(store, self.expected, self.chance)
            self.check_repaired(reading, losses)
            if (not self.order.plain_first or self.order.retire) and report is not None:
                self.compare_losses(report, losses)
            if self.order.append_in_repair:
                append_everywhere(store, self.expected, reading)
                self.check_given(self.expected.added.keys(), losses, "repair")
        check_quarantine(self.path, losses)
        return losses

    def check_repaired(self, reading: Reading, losses: Sequence[Loss], *, told_all: bool = True) -> None:
        """Nothing is refused any more, what is unhurt is there, and the losses tell of the rest."""
        if reading.errors:
            raise Broken("a repaired store refuses a read", str(next(iter(reading.errors.values()))))
        found = reading.all_got()
        for number, offset in self.expected.added:
            found[number][offset] = False  # given again or not, it is not the message that was there
        missing: dict[int, int] = {}
        silent: dict[int, int] = {}
        for told in self.places.story.known():
            number = told.number
            tail, unhurt = self.verdict.tail[number], self.verdict.unhurt[number]
            lane = self.verdict.lane[number]
            for at in np.flatnonzero(told.there & ~found[number][: len(told.lengths)]).tolist():
                gone = bool(tail[at]) or (number, at) in self.gone
                if unhurt[at] and not gone:
                    raise Broken("a repair lost an unhurt message", f"{told.name} at {at}; losses {losses}")
                silent[lane] = silent.get(lane, 0) + gone
                missing[lane] = missing.get(lane, 0) + 1
        self.seen.missing = sum(missing.values())
        for lane in sorted({*missing, *map(lane_of, losses)}):
            counts = [loss.messages for loss in losses if lane_of(loss) == lane]
            at_least = missing.get(lane, 0) - silent.get(lane, 0)
            total = sum(count for count in counts if count is not None)
            self.seen.lost += total
            self.seen.unknown |= None in counts
            if told_all and None not in counts and total < at_least:
                raise Broken("losses tell of too few", f"lane {lane}: {total} of {at_least}; {losses}")
            if total > missing.get(lane, 0) + self.verdict.lost_before[lane]:
                raise Broken("losses tell of too many", f"lane {lane}: {total}, missing {missing}; {losses}")

    def compare_losses(self, report: VerifyReport, losses: Sequence[Loss]) -> None:
        """A repair tells of something exactly if verify does."""
        if report.ok and losses:
            raise Broken("verify finds nothing, a repair tells of losses", str(losses))
        if not report.ok and not losses:
            raise Broken("verify finds damage, a repair tells of nothing", str(report.damages))

    def repair_blind(self) -> None:
        """Nothing tells more than low bits of offsets: a repair gives no wrong bytes, and says what it cannot know."""
        with open_repairing(self.path, self.order.config()) as store:
            if not any(says_again(loss) for loss in store.losses):
                raise Broken("a repair does not say that offsets may repeat", str(store.losses))
            for batch in store.scan():
                self.expected.check_low_bits(batch)
        report = verify_folder(self.path)
        if not report.ok:
            raise Broken("a repaired store does not verify", str(report.damages))
        with MessageStore.open(self.path, self.order.config()) as store:
            for batch in store.scan():
                self.expected.check_low_bits(batch)

    # -- 5, 6: what it leaves -------------------------------------------------------------------------

    def after(self, losses: Sequence[Loss]) -> None:
        """Verify, open plainly, append, repair again."""
        report = verify_folder(self.path)
        if not report.ok:
            raise Broken("a repaired store does not verify", str(report.damages))
        problems = inspect_folder(self.path)["problems"]
        if problems:
            raise Broken("inspect finds a repaired store damaged", str(problems))
        names = self._changed_by_repair()
        if any(name.endswith("START") for name in names):  # its background has removed a segment that a trim freed
            names = self._changed_by_repair()
        if names:
            raise Broken("a second repair changes the folder", str(sorted(names)))
        self.check_second_life(losses)

    def _changed_by_repair(self) -> list[str]:
        """The files that another repair has changed. It tells of no losses."""
        before = in_use(take_snapshot(self.path))
        with open_repairing(self.path, self.order.config()) as store:
            without_marks(store)  # a lane that is quiet for long enough writes one
            if store.losses:
                raise Broken("a second repair tells of losses", str(store.losses))
        after = in_use(take_snapshot(self.path))
        return [name for name in {*before, *after} if before.get(name) != after.get(name)]

    def check_second_life(self, losses: Sequence[Loss], *, told_all: bool = True) -> None:
        """The repaired store opens plainly and has the same; new messages get new offsets."""
        try:
            store = MessageStore.open(self.path, self.order.config())
        except StoreError as error:
            raise Broken("a repaired store does not open", str(error)) from error
        with contextlib.closing(store):
            reading = Reading(store, self.expected, self.chance, quick=True)
            self.check_repaired(reading, losses, told_all=told_all)
            found = reading.all_got()  # also under a name of ours: a footer may have been all that named the queue
            for number, offset in self.expected.added:
                if not found[number][offset]:
                    raise Broken("a new message is gone", f"{self.places.story.queues[number].name} at {offset}")
            added = append_everywhere(store, self.expected, reading)
            if told_all:
                self.check_given(added.keys(), losses, "after the repair")

    def check_given(self, given: Iterable[tuple[int, int]], losses: Sequence[Loss], when: str) -> None:
        """No acknowledged offset was given again, unless it may have vanished or a loss says so."""
        again = []
        for number, offset in given:
            told = self.places.story.queues[number]
            known = offset < len(told.lengths) and told.lengths[offset] != LEFT_OUT
            if known and not self.may_come_again(number, offset):
                again.append((told.name, offset))
        lanes = {self.verdict.lane[self.expected.by_name[name].number] for name, _ in again}
        for lane in lanes:
            if not any(says_again(loss) for loss in losses if lane_of(loss) == lane):
                raise Broken("acknowledged offsets are given again", f"{when}: {again}; losses {losses}")

    def may_come_again(self, number: int, offset: int) -> bool:
        """Nothing was left that told of this message, or of a later one of its queue."""
        told, tail = self.places.story.queues[number], self.verdict.tail
        later = (np.flatnonzero(told.there[offset:]) + offset).tolist()
        if later:
            return all(tail[number][at] or (number, at) in self.gone for at in later)
        mine = [one for one in self.places.story.queues if self.verdict.lane[one.number] == self.verdict.lane[number]]
        return all(bool(tail[one.number][one.there].all()) for one in mine)
