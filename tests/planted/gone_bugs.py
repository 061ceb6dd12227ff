"""Bugs of streams that are gone, and of trims that stand in small footers since the full one."""

from __future__ import annotations

from .plant import Bug

GONE_TESTS = "tests/store/test_gone.py"
SMALL = "tests/store/test_small_footers.py"

GONE: dict[str, Bug] = {
    "gone: a deleted stream comes back before a full footer is without it": Bug(
        "store/log/lane.py", "        self.gone.append(stream.number)\n",
        "        self.trims.settle(self.trims.lend(), [stream.number])\n",
        (f"{GONE_TESTS}::test_a_deleted_topic_stays_hidden_until_the_full_footer_without_it",),
    ),
    "gone: a full footer is without one that has messages": Bug(
        "store/log/gone.py",
        "    passed = index.footer.taken(FIRST, numbers) == [offsets[stream.number] for stream in known]\n",
        "    passed = np.ones(len(known), np.bool_)\n",
        (f"{GONE_TESTS}::test_what_is_still_there_stays",),
    ),
    "gone: messages in front of the oldest full footer are not seen": Bug(
        "store/log/gone.py", " + 1] - 1] <= before  #", " + 1] - 1] < before  #",
        (f"{GONE_TESTS}::test_a_full_footer_tells_of_messages_in_each_of_the_segments_before_it",),
    ),
    "gone: a topic that a subscription remembers goes": Bug(
        "store/log/gone.py", " and stream.topic not in remembered]", "]",
        (f"{GONE_TESTS}::test_what_is_still_there_stays",),
    ),
    "gone: a topic that was not deleted goes when it is empty": Bug(
        "store/log/gone.py", "(stream.is_empty if is_hidden(stream.topic) else stream.is_deleted)",
        "stream.is_empty",
        (f"{GONE_TESTS}::test_what_is_still_there_stays",),
    ),
    "gone: of two of one name the older one is the queue": Bug(
        "store/log/streams.py",
        "                    queues[stream.queue_id] = stream\n                    left_out.append(found)\n",
        "                    left_out.append(stream)\n",
        (f"{GONE_TESTS}::test_a_queue_of_its_name_begins_anew_also_after_a_crash",),
    ),
    "gone: a full footer still has its trims": Bug(
        "store/format/footer_data.py",
        "        stays = self.stream_topic[columns.numbers] != self.topics.index(GONE_TOPIC)\n",
        "        stays = np.ones(len(columns), np.bool_)\n",
        (f"{GONE_TESTS}::test_they_leave_at_the_next_opening_and_its_next_full_footer",),
    ),
    "gone: a reader goes on in the list of subscriptions of a lane that is no more": Bug(
        "store/log/hidden_streams.py", "                looked = looked if known_of is lane else 0",
        "                #",
        (f"{GONE_TESTS}::test_a_reader_that_retention_has_overtaken_lists_a_new_subscription",),
    ),
    "gone: recovery gives names to the numbers of which a footer says that they are gone": Bug(
        "store/recovery/lane_streams.py",
        "            elif name[0] == GONE_TOPIC:\n", "            elif False:\n",
        (f"{GONE_TESTS}::test_a_full_footer_whose_seal_record_a_power_cut_took_still_says_what_is_gone",),
    ),
    "gone: the index of a deleted topic keeps it": Bug(
        "store/delayed/opening.py", "        forgotten.add(topic)\n", "        continue\n",
        (f"{GONE_TESTS}::test_a_deleted_topic_with_delays_leaves_and_its_next_life_knows_nothing_of_them",),
    ),
    "gone: an index whose records are taken back begins without one": Bug(
        "store/delayed/opening.py", "    if first == end:", "    if end == 0:",
        (f"{GONE_TESTS}::test_a_topic_that_is_used_again_after_its_index_went_has_one_again",),
    ),
    "trims: an opening takes all for said by the full footer": Bug(
        "store/log/adoption.py", "Trims(trimmed, found.settled)", "Trims(trimmed, trimmed)",
        (f"{SMALL}::test_trims_are_in_the_small_footers_since_the_full_one_and_last",),
    ),
    "trims: an opening asks the newest footer alone": Bug(
        "store/recovery/lane_streams.py", "        add_trimmed(self.trimmed, footer.trimmed)\n        if is_newest:\n",
        "        if is_newest:\n            add_trimmed(self.trimmed, footer.trimmed)\n",
        (f"{SMALL}::test_trims_are_in_the_small_footers_since_the_full_one_and_last",),
    ),
    "trims: a reader asks the newest footer alone": Bug(
        "store/live/lane.py", "dict.fromkeys([*full, fresh[-1]])", "[fresh[-1]]",
        (f"{SMALL}::test_a_reader_has_the_trims_of_a_full_footer_that_is_not_the_newest",),
    ),
    "trims: each small footer has all of them": Bug(
        "store/log/written_lane.py", "        self.trims.settle(lent, gone)\n", "",
        (f"{SMALL}::test_a_reader_has_the_trims_of_a_full_footer_that_is_not_the_newest",),
    ),
    "trims: what came while a full footer was made is in no small one": Bug(
        "store/log/trims.py", "if turn > lent.turn}", "if turn > lent.turn + 1}",
        ("tests/store/test_records.py::test_trims_behind_what_was_lent_stay_when_that_is_settled",),
    ),
    "trims: many of them bring no full footer": Bug(
        "store/segment/sealing.py", "is_near = is_near and (sequence - self.full) * trims",
        "is_near = is_near and 0 * trims",
        (f"{SMALL}::test_many_trims_bring_a_full_footer",),
    ),
    "sealing: a record stays while another footer is written": Bug(
        "store/segment/sealing.py", "    segment.writer.take_back_seal()\n", "",
        ("tests/store/test_sealing.py::test_a_seal_that_is_made_again_has_no_record_of_the_footer_before_it",),
    ),
    "growth: a seal record has the oldest time of its frames": Bug(
        "store/format/footer_data.py", "return int(self.frame_time.max())", "return int(self.frame_time.min())",
        ("tests/store/test_times.py",),
    ),
    "growth: a search by time passes over what only an older view has": Bug(
        "store/segment/newest.py", "if not is_room or begin > self._end or", "if not is_room or",
        ("tests/store/test_steps.py::test_a_search_by_time_knows_what_only_an_older_view_has",),
    ),
    "growth: a guess leaves the segment out that is looked for": Bug(
        "store/segment/groups.py", "            at, begins = middle + 1, found\n",
        "            at, begins = middle + 2, found\n",
        ("tests/store/test_guess.py",),
    ),
    "bulk commits: each copies the names of all streams": Bug(
        "store/segment/sealing.py", "        known = self._known\n        return names_of(",
        "        known = self._known\n        self.whole()\n        return names_of(",
        ("tests/store/shards/test_attaching.py::test_a_commit_takes_the_names_of_its_own_streams",),
    ),
}  # fmt: skip
