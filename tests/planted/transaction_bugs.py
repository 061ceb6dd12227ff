"""Bugs of transactions: an ATOMIC frame, and acknowledgements that share its outcome."""

from __future__ import annotations

from .plant import Bug

FRAMES = "tests/store/test_transactions.py"
ACKS = "tests/store/subscriptions/test_transactions.py"

TRANSACTIONS: dict[str, Bug] = {
    "transactions: a torn atomic frame keeps its whole messages": Bug(
        "store/segment/checksums.py", "return 0 if frame.header.flags & ATOMIC else index", "return index",
        (f"{FRAMES}::test_a_torn_transaction_at_the_logs_end_is_gone_as_a_whole",),
    ),
    "transactions: verify keeps the whole messages of a torn atomic frame": Bug(
        "store/verify/frames.py", "whole = 0 if header.flags & ATOMIC else int(bad[0])", "whole = int(bad[0])",
        (f"{FRAMES}::test_a_torn_transaction_at_the_logs_end_is_gone_as_a_whole",),
    ),
    "transactions: the flag is left out of the frame's head": Bug(
        "store/log/row_build.py", "flags = columns.flags | ATOMIC if is_atomic else columns.flags",
        "flags = columns.flags",
        (f"{FRAMES}::test_a_torn_transaction_at_the_logs_end_is_gone_as_a_whole",),
    ),
    "transactions: an atomic frame is shown message by message": Bug(
        "store/log/row_build.py", "ends = [lane.tail] * len(sizes) if is_atomic else", "ends =",
        (f"{FRAMES}::test_of_a_frame_that_is_durable_in_part_nothing_is_shown_answered_or_vouched_for",),
    ),
    "transactions: with columns beside it, a frame is not atomic": Bug(
        "store/log/column_build.py", "    is_atomic = are_atomic(requests)\n", "    is_atomic = False\n",
        (f"{FRAMES}::test_a_transaction_beside_columns_is_in_an_atomic_frame",),
    ),
    "transactions: one that has users' messages takes the reserve": Bug(
        "store/subscriptions/committing.py",
        "AtomicGroup(streams, datas, extras, self._settle)",
        "AtomicGroup(streams[::-1], datas[::-1], extras[::-1], self._settle)",
        (f"{ACKS}::test_on_a_full_disk_acknowledgements_alone_are_stored_and_bills_are_not",),
    ),
    "transactions: a stale receipt, and the append stays": Bug(
        "store/subscriptions/joint_acks.py",
        "            if missing:\n                raise stale(state.name, missing)\n", "",
        (f"{ACKS}::test_with_a_stale_receipt_nothing_is_stored_and_the_others_keep_their_deadlines",),
    ),
    "transactions: the first subscription is marked before the second is asked": Bug(
        "store/subscriptions/committing.py", "            if len(joints) > 1:\n", "            if not joints:\n",
        (f"{ACKS}::test_with_a_stale_receipt_nothing_is_stored_and_the_others_keep_their_deadlines",),
    ),
    "transactions: an interrupt gives messages back whose record is on its way": Bug(
        "store/subscriptions/joint_acks.py",
        "if self.request is None or not self.request.is_accepted:", "if True:",
        (f"{ACKS}::test_an_interrupted_commit_is_stored_with_its_acknowledgements_or_leaves_none",),
    ),
    "transactions: a commit that is refused keeps its messages": Bug(
        "store/subscriptions/committing.py",
        "            self._settle(error)\n            raise\n", "            raise\n",
        (f"{ACKS}::test_a_full_publish_buffer_or_a_poisoned_store_gives_the_messages_back",),
    ),
    "transactions: a dead letter is appended, and then acknowledged": Bug(
        "store/subscriptions/moving.py",
        "        if committing.fits:\n", "        if committing.fits and not batches:\n",
        ("tests/store/subscriptions/test_dead_letters.py::test_no_crash_makes_a_dead_letter_twice_or_loses_one",),
    ),
    "transactions: one that leaves the line keeps its messages": Bug(
        "store/api/batches.py",
        "        if self.future.cancelled():\n            for group in reversed(self._lined):\n"
        "                error = group.queue.withdraw(group)\n",
        "        if self.future.cancelled():\n            for group in reversed(self._lined):\n"
        "                error = group.queue.withdraw(group) and None\n",
        (f"{ACKS}::test_a_cancelled_commit_in_line_gives_the_messages_back",),
    ),
}  # fmt: skip
