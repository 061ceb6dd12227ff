"""One damaged work queue: opened plainly, consumed, shortened by retention, and repaired.

What is checked:

1. A plain opening works or refuses. What it, or a call after it, refuses, verify reports.
2. What comes has the right bytes and the right place. A facet (a subscription, the ids, the settings) that meets no
   error is exactly right, unless the end of a lane's log may have vanished (`places`: nothing told of it any more).
   Then it may be what it was at an earlier time. Not even transactions are whole there: retention has removed what was
   acknowledged later, and of a round over several lanes one lane may have lost its last frames.
3. Retention and moves around the damage take no job away that came before them.
4. A repair opens the store. Without losses, 2 holds; else each waiting job of which no file is hurt still comes.
   What it leaves verifies, opens again and tells of no losses, and work goes on in it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from stratalog.store import Loss, MessageStore, StoreCorrupt, StoreError, StoreUnusable, verify_folder
from stratalog.store.format.message_ids import digest_of
from tests.store.helpers import Snapshot, put_snapshot, scanned

from .checks import LOST_NAME, Broken
from .orders import Order, Seen, open_repairing
from .places import Places, Verdict
from .stories import config
from .work_story import (
    CLERK,
    TOPIC_OF,
    UNDERTAKER,
    WORK,
    WORKERS,
    Job,
    WorkStory,
    bill_of,
    by_hand,
    id_of,
    place_of,
    remove,
)

VISIBLE_MS = 1 << 39


@dataclass
class Facets:
    """What an opened store gives, and the error of each facet that met one. Raises Broken if it is wrong.

    `came` has by subscription the jobs, of which CLERK and UNDERTAKER get bills and dead letters.
    """

    came: dict[str, set[tuple[int, int]]] = field(default_factory=dict)
    errors: dict[str, StoreCorrupt] = field(default_factory=dict)
    twice: list[tuple[str, tuple[int, int]]] = field(default_factory=list)
    settings: int | None = None  # the number of those that the topic has; None: none
    forgotten_ids: int = 0

    @classmethod
    def of(cls, store: MessageStore, story: WorkStory) -> Facets:
        """Look at everything."""
        found = cls()
        for who in TOPIC_OF:
            found._receive(store, story, who)
        found._look_at_ids(store, story)
        found._look_at_settings(store, story)
        return found

    def _receive(self, store: MessageStore, story: WorkStory, who: str) -> None:
        """All that a subscription gives out. Nothing of it is acknowledged."""
        came = self.came[who] = set[tuple[int, int]]()
        by_bill = {bill_of(job): job for job in story.jobs.values()}
        by_data = {job.data: job for job in story.jobs.values()}
        quiet = 0
        try:
            known = {info.name for info in store.subscriptions(TOPIC_OF[who])}
            sub = store.subscribe(TOPIC_OF[who], who)
        except StoreCorrupt as error:
            self.errors[who] = error
            return
        if who not in known:
            self.errors.setdefault(f"{who} is new", StoreCorrupt("the subscription is not known", "-", 0))
        with contextlib.closing(sub):
            while quiet < 2:
                try:
                    got = sub.receive(50, visibility_timeout_ms=VISIBLE_MS)
                except StoreCorrupt as error:
                    self.errors[who] = error
                    quiet += 1
                    continue
                quiet = 0 if got else quiet + 1
                for one in got:
                    job = (by_bill if who == CLERK else by_data).get(one.message.data)
                    if job is None:
                        raise Broken("other bytes", f"{who} gets {one.message}")
                    if who == WORKERS and place_of(one) != job.place:
                        raise Broken("a job at another place", f"{job.place} comes as {place_of(one)}")
                    if job.place in came:
                        self.twice.append((who, job.place))
                    came.add(job.place)

    def _look_at_ids(self, store: MessageStore, story: WorkStory) -> None:
        try:
            window = store._windows.of(WORK)
        except StoreCorrupt as error:
            self.errors["ids"] = error
            return
        for job in story.jobs.values():
            place = window._durable.find(digest_of(id_of(job).encode()))
            if place not in (None, job.place):
                raise Broken("an id leads to another message", f"{id_of(job)} of {job.place}: {place}")
            self.forgotten_ids += place is None

    def _look_at_settings(self, store: MessageStore, story: WorkStory) -> None:
        try:
            settings = store.topic_settings(WORK)
        except StoreCorrupt as error:
            self.errors["settings"] = error
            return
        if settings in story.settings:
            self.settings = story.settings.index(settings)
        elif settings.keep != "retention":
            raise Broken("settings that nobody made", str(settings))

    # -- is it right? -----------------------------------------------------------------------------------

    def check(self, story: WorkStory, *, may_be_older: bool) -> None:
        """Compare what met no error with the story; `may_be_older`: ends of lanes may have vanished. Raises Broken."""
        if may_be_older:  # of an earlier time, and the beginning of the log may have gone later
            return
        if self.twice and WORKERS not in self.errors:
            raise Broken("a job comes twice", str(self.twice[:5]))
        wanted: dict[str, set[tuple[int, int]]] = {who: set() for who in TOPIC_OF}
        for job in story.jobs.values():
            wanted[{"waiting": WORKERS, "done": CLERK, "dead": UNDERTAKER}[job.state]].add(job.place)
        for who, places in wanted.items():
            if who in self.errors:
                continue
            if f"{who} is new" in self.errors:
                raise Broken("a subscription is gone in silence", who)
            if self.came[who] != places:
                lost, more = sorted(places - self.came[who])[:5], sorted(self.came[who] - places)[:5]
                raise Broken("a wrong answer without an error", f"{who} lacks {lost}, and gets {more}")
        if "ids" not in self.errors and self.forgotten_ids:
            raise Broken("an id is forgotten without a word", f"{self.forgotten_ids} of them")
        if "settings" not in self.errors and self.settings != len(story.settings) - 1:
            raise Broken("other settings without an error", f"{self.settings} of {len(story.settings)}")


class WorkCase:
    """The checks of one damaged state, in a folder of its own. Raises Broken."""

    def __init__(self, places: Places, damaged: Snapshot, order: Order, folder: Path) -> None:
        assert isinstance(places.story, WorkStory)
        self.places = places
        self.story = places.story
        self.damaged = damaged
        self.order = order
        self.path = folder / "w"
        self.seen = Seen()
        self.verdict = Verdict(places, damaged)

    def run(self) -> Seen:
        """All checks."""
        if all(name.endswith("/") for name in self.damaged):
            return self.seen
        put_snapshot(self.damaged, self.path)
        with by_hand():
            self._plainly()
            if self.damaged.get("STORE") == self.story.final["STORE"]:
                put_snapshot(self.damaged, self.path)
                self._repair()
        return self.seen

    @property
    def may_be_older(self) -> bool:
        """May the end of a lane's log have vanished in silence?"""
        return self.verdict.may_be_cut

    # -- 1, 2, 3: the plain opening -----------------------------------------------------------------------

    def _plainly(self) -> None:
        report = None
        with contextlib.suppress(StoreUnusable):
            report = verify_folder(self.path)
        self.seen.reported = report is None or not report.ok
        try:
            store = MessageStore.open(self.path, config())
        except (StoreCorrupt, StoreUnusable) as error:
            self.seen.refused = True
            if not self.seen.reported:
                raise Broken("verify finds nothing, open refuses", str(error)) from error
            return
        with contextlib.closing(store):
            facets = Facets.of(store, self.story)
            met = [error for name, error in facets.errors.items() if not name.endswith("is new")]
            if met and not self.seen.reported:
                raise Broken("verify finds nothing, a call refuses", str(met[0]))
            facets.check(self.story, may_be_older=self.may_be_older)
            if not self.order.retire:
                return
            self._more(store)
            with contextlib.suppress(StoreCorrupt):  # the background tells of it, and retention waits
                remove(store)
        with contextlib.closing(MessageStore.open(self.path, config())) as store:
            again = Facets.of(store, self.story)
            lost = facets.came[WORKERS] - again.came[WORKERS] - again.came[UNDERTAKER]
            if lost:
                raise Broken("retention took jobs that wait", f"{sorted(lost)[:5]}; {again.errors}")

    @staticmethod
    def _more(store: MessageStore) -> None:
        """Segments that follow, so that what is there may go."""
        for number in range(40):
            with contextlib.suppress(StoreError):
                store.append("more", number % 4, bytes(9000))
        with contextlib.suppress(StoreError):
            store.delete_topic("more")

    # -- 4: the repair ------------------------------------------------------------------------------------

    def _repair(self) -> None:
        with open_repairing(self.path, config()) as store:
            losses = list(store.losses)
            self.seen.unknown = any(loss.messages is None for loss in losses)
            self.seen.missing = self.seen.lost = sum(loss.messages or 0 for loss in losses)
            facets = Facets.of(store, self.story)
            self._check_repaired(store, facets, losses)
            self._work_on(store, facets)
        report = verify_folder(self.path)
        if not report.ok:
            raise Broken("a repaired store does not verify", str(report.damages))
        with open_repairing(self.path, config()) as store:
            if store.losses:
                raise Broken("a second repair tells of losses", str(store.losses))
            again = Facets.of(store, self.story)
            self._check_repaired(store, again, losses)
            if again.came[WORKERS] | again.came[UNDERTAKER] != facets.came[WORKERS] | facets.came[UNDERTAKER]:
                raise Broken("other jobs after a reopening", f"{again.came[WORKERS] ^ facets.came[WORKERS]}")

    def _check_repaired(self, store: MessageStore, facets: Facets, losses: Sequence[Loss]) -> None:
        met = [error for name, error in facets.errors.items() if not name.endswith("is new")]
        if met:
            raise Broken("a repaired store refuses a call", str(met[0]))
        if not losses:
            facets.check(self.story, may_be_older=self.may_be_older)
            return
        missing = [job for job in self._unhurt() if job.place not in facets.came[WORKERS]]
        there = {data for mine in scanned(store).values() for data in mine.values()} if missing else set[bytes]()
        is_renamed = any(topic.startswith(LOST_NAME) for topic in store.topics())
        unhurt = [job for job in missing if not (is_renamed and job.data in there)]
        if unhurt:
            raise Broken("a repair lost an unhurt job", f"{[job.place for job in unhurt[:5]]}; losses {losses}")

    def _unhurt(self) -> list[Job]:
        """The waiting jobs of which no file is hurt, in stores whose logs end as they did."""
        if self.may_be_older:
            return []
        hurt = [content for name, content in self.story.final.items() if name in self.verdict.hurt_files]
        waiting = [job for job in self.story.jobs.values() if job.state == "waiting" and job not in self.story.moved()]
        return [job for job in waiting if not any(job.data in content for content in hurt)]

    def _work_on(self, store: MessageStore, facets: Facets) -> None:
        """A new job comes and is done; it gets an offset that no job has."""
        offset = store.append(WORK, 0, b"new")
        if (0, offset) in facets.came[WORKERS]:
            raise Broken("an offset that is in use was given again", f"{offset}")
        with store.subscribe(WORK, WORKERS) as sub:
            got = [one for one in sub.receive(1000) if one.message.data == b"new"]
            if [place_of(one) for one in got] != [(0, offset)]:
                raise Broken("a new job does not come", f"{offset}: {got}")
            with store.transaction() as tx:
                tx.append("other", 1, b"bill of the new")
                tx.ack(got[0])
