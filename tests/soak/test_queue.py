"""The soak of a queue of jobs in its short form, and that its ledger sees what it is there to see."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import pytest

from stratalog.store import MessageStore
from stratalog.store.testing import TunedConfig
from tests.seeds import draw_seed

from . import run as soak
from .child import Plan, message
from .ledger import Violation
from .plan import QUEUE
from .queue_child import AUDIT, BILL_BYTES, BILLS, DEAD, JOBS, TOPIC_OF, UNDERTAKER, WORKERS, settings_of
from .queue_ledger import LATE_SAMPLES, QueueLedger

SEGMENT = 64 << 10


def test_killed_queue_loses_no_job_and_its_disk_stays_flat(tmp_path: Path) -> None:
    counts = ("acknowledged", "consumed")
    tally = soak.run(tmp_path, minutes=0, seed=draw_seed(), life_s=1.0, kinds=(QUEUE, QUEUE), until=counts)
    assert tally.violations == []
    assert tally.kills + tally.closes >= 2
    assert tally.acknowledged and tally.consumed


@pytest.fixture
def ledger(tmp_path: Path) -> QueueLedger:
    """A store with five jobs, all noted; the workers have done the first."""
    made = QueueLedger(tmp_path / "store")
    made.begin(Plan("", 0, {"lanes": 1, "segment_bytes": SEGMENT}))
    with MessageStore.open(made.path, TunedConfig(segment_bytes=SEGMENT, recent_bytes=0)) as store:
        for topic in (JOBS, DEAD, BILLS):
            store.configure_topic(topic, keep="until_acknowledged")
        subs = {who: store.subscribe(topic, who, **settings_of(who)) for who, topic in TOPIC_OF.items()}
        for seed in range(5):
            store.append(JOBS, 1, message(1, seed, 100))
            made.note("sent", [[seed, 100]])
        made.note("asked", [WORKERS, 0])
        subs[WORKERS].ack(subs[WORKERS].receive(1)[0])
        made.note("acked", [WORKERS, 0])
    return made


def test_ledger_finds_all_jobs(ledger: QueueLedger) -> None:
    assert ledger.check() == 4 + 5
    assert ledger.carried()[AUDIT] - ledger.carried()[WORKERS] > 100


def test_ledger_gives_a_store_that_no_life_came_to_make_its_lanes(tmp_path: Path) -> None:
    made = QueueLedger(tmp_path / "store")
    made.begin(Plan("", 0, {"lanes": 2, "segment_bytes": SEGMENT}))
    made.path.mkdir()  # and its first life ended
    assert made.check() == 0
    with MessageStore.open(made.path, TunedConfig(lanes=2)) as store:
        assert len(store._lanes) == 2


@pytest.mark.parametrize(("who", "sees"), [(WORKERS, "the workers never get"), (AUDIT, "the audit never gets")])
def test_ledger_misses_a_lost_job(ledger: QueueLedger, who: str, sees: str) -> None:
    ledger.note("sent", [[99, 100]])
    ledger.note("asked", [AUDIT if who == WORKERS else WORKERS, 99])
    with pytest.raises(Violation, match=sees):
        ledger.check()


def test_ledger_sees_a_job_that_comes_again(ledger: QueueLedger) -> None:
    with pytest.raises(Violation, match=r"workers gets \[0\] again"):
        ledger.note("came", [WORKERS, 1, 3, 0])
    ledger.note("came", [WORKERS, 0, 3, 0])  # it was received before the other consumer acknowledged it
    ledger.begin(Plan("", 0, {"lanes": 1, "segment_bytes": SEGMENT}))
    with pytest.raises(Violation, match=r"workers gets \[0\] again"):
        ledger.note("came", [WORKERS, 0, 3, 0])
    ledger.note("acked", [WORKERS, 3])
    with pytest.raises(Violation, match=r"workers gets \[3\] again"):
        ledger.check()


def test_ledger_sees_a_dead_letter_that_the_workers_have_too(ledger: QueueLedger) -> None:
    with MessageStore.open(ledger.path, TunedConfig(segment_bytes=SEGMENT, recent_bytes=0)) as store:
        store.append(DEAD, 1, message(1, 2, 100))
    with pytest.raises(Violation, match=r"dead letters, .*\[2\]"):
        ledger.check()
    ledger.note("acked", [UNDERTAKER, 2])
    with pytest.raises(Violation, match="again"):
        ledger.check()


def test_ledger_makes_no_dead_letters_of_jobs_that_its_own_look_gives_out_for_the_last_time(
    ledger: QueueLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    with MessageStore.open(ledger.path, TunedConfig(segment_bytes=SEGMENT, recent_bytes=0)) as store:
        for _ in range(2):
            with store.subscribe(JOBS, WORKERS, **settings_of(WORKERS)) as sub:
                assert len(sub.receive(10)) == 4

    take_all, given = QueueLedger._take_all, list[Counter[int]]()

    def take_and_save(self: QueueLedger, store: MessageStore, who: str, *rest: ExitStack) -> Counter[int]:
        given.append(take_all(self, store, who, *rest))
        assert store._subscriptions().save_used_up(JOBS, 1, 0, 5), "as before a segment goes"
        return given[-1]

    monkeypatch.setattr(QueueLedger, "_take_all", take_and_save)
    assert ledger.check() == 4 + 5
    assert set(given[0]) == {1, 2, 3, 4}, "the workers come first"


def bill(ledger: QueueLedger, seed: int) -> None:
    """Store the bill of a job."""
    with MessageStore.open(ledger.path, TunedConfig(segment_bytes=SEGMENT, recent_bytes=0)) as store:
        store.append(BILLS, 1, message(1, seed, BILL_BYTES))


def test_ledger_finds_the_bill_of_a_job_that_is_done(ledger: QueueLedger) -> None:
    ledger.note("billing", [0])
    bill(ledger, 0)
    ledger.note("billed", [0])
    assert ledger.check() == 4 + 5 + 1
    bill(ledger, 0)
    with pytest.raises(Violation, match=r"clerk gets .* several times"):
        ledger.check()


def test_ledger_sees_half_of_a_transaction(ledger: QueueLedger) -> None:
    ledger.note("billing", [3])
    bill(ledger, 3)
    with pytest.raises(Violation, match=r"there is a bill, and the job is not done: \[3\]"):
        ledger.check()


def test_ledger_misses_a_bill(ledger: QueueLedger) -> None:
    ledger.note("billing", [0])
    ledger.note("billed", [0])
    with pytest.raises(Violation, match=r"clerk never gets the bills of \[0\]"):
        ledger.check()


def test_ledger_sees_a_job_that_an_id_has_not_kept_from_coming_twice(ledger: QueueLedger) -> None:
    ledger.note("sending", [[1, 4, 100]])
    assert ledger.cut() == [(1, 4, 100)]
    with MessageStore.open(ledger.path, TunedConfig(segment_bytes=SEGMENT, recent_bytes=0)) as store:
        store.append(JOBS, 1, message(1, 4, 100))
    ledger.note("sent", [[4, 100]])
    assert ledger.cut() == []
    with pytest.raises(Violation, match="several times"):
        ledger.check()


def test_ledger_sees_a_log_that_is_too_large_for_long(ledger: QueueLedger, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger.note("disk", [10, 5])
    ledger.note("disk", [10, 5])  # for a moment it may
    assert ledger.disk_share == 2
    monkeypatch.setattr("tests.soak.queue_ledger.LATE_S", -1.0)
    for _ in range(2):
        ledger.note("disk", [5, 5])
        for _ in range(LATE_SAMPLES - 1):
            ledger.note("disk", [10, 5])
    with pytest.raises(Violation, match="takes 10 bytes, and may take 5"):
        ledger.note("disk", [10, 5])


def test_ledger_sees_an_error_of_the_child(ledger: QueueLedger) -> None:
    with pytest.raises(Violation, match="work raised StoreFull: no space"):
        ledger.note("error", ["work", "StoreFull", "no space"])
