"""Bugs of what the thread of the delayed messages visits, and of what verify asks of small footers."""

from __future__ import annotations

from .plant import Bug

VISITS = ("tests/store/delayed/test_visits.py",)

VISITING: dict[str, Bug] = {
    "delayed visits: a topic whose next message is due is not visited": Bug(
        "store/delayed/worker.py", "if self._listed.get(topic) == time_ms:", "if False:", VISITS,
    ),
    "delayed visits: a topic that was visited is visited again and again": Bug(
        "store/delayed/worker.py", "            self._asked.pop(topic, None)  #", "            #", VISITS,
    ),
    "delayed visits: what changes while a topic is visited is forgotten": Bug(
        "store/delayed/worker.py", "            yield topic\n",
        "            yield topic\n            self._asked.pop(topic, None)\n", VISITS,
    ),
    "delayed visits: a topic is visited before it is whole": Bug(
        "store/delayed/worker.py", "        if topic.is_ready:\n", "        if True:\n", VISITS,
    ),
    "delayed visits: a new topic is forgotten where it was cut short": Bug(
        "store/delayed/delays.py", "is not None and found.is_ready and", "is not None and", VISITS,
    ),
    "delayed visits: an index that is left damaged waits for the next call": Bug(
        "index/trackers/tracker.py", "str(error)\n                self.on_damage()\n",
        "str(error)\n", VISITS,
    ),
    "delayed visits: an index that was made anew tells of no damage": Bug(
        "store/delayed/topic_index.py", "        tracker.on_damage = self.ask_for_visit  # first", "        #", VISITS,
    ),
    "delayed visits: times that count no more stay in the list": Bug(
        "store/delayed/worker.py", "if len(self._times) > 2 *", "if False and len(self._times) > 2 *", VISITS,
    ),
    "delayed visits: all topics are visited each time": Bug(
        "store/delayed/delays.py", "self.visits.take(self.parts.clock.wall_ms())", "list(self.topics.values())",
        VISITS,
    ),
    "delayed visits: a topic that has failed is forgotten": Bug(
        "store/delayed/delays.py", "                self.visits.ask(topic)\n                if not isinstance",
        "                if not isinstance", VISITS,
    ),
    "delayed visits: a topic that fails holds the others up": Bug(
        "store/delayed/delays.py", "                failed = failed or error", "                raise", VISITS,
    ),
    "delayed visits: changes that are open are left to others": Bug(
        "store/delayed/delays.py", "        if is_soon:", "        if False:", VISITS,
    ),
    "delayed visits: a trim is not told to the index of its topic": Bug(
        "store/delayed/delays.py", "                topic.see_trim()", "                pass", VISITS,
    ),
    "delayed visits: an index with changes is not saved in time": Bug(
        "store/delayed/delays.py", "            self._unsaved.add(topic)", "            pass", VISITS,
    ),
    "delayed visits: copies of a topic that had none are never looked at": Bug(
        "store/delayed/keeping.py", "                self._delays.with_copies.add(topic)\n", "", VISITS,
    ),
    "search: a look that an interrupt has ended adds its full footers twice": Bug(
        "store/segment/groups.py", "one.record.full and one.segment.sequence > last])", "one.record.full])",
        ("tests/store/test_small_footers.py::test_a_seal_adds_to_the_list_of_full_footers_and_does_not_copy_it",),
    ),
    "verify: a small footer that leaves out what the full one says is called damaged": Bug(
        "store/verify/lane.py", "beyond(self.settled, walk.trimmed)", "walk.trimmed",
        ("tests/store/test_small_footers.py",),
    ),
}  # fmt: skip
