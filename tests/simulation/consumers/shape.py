"""What kind of run a seed gives: lanes and sizes, the subscriptions, and how often each call is made."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Final, Literal

from stratalog.store import StoreConfig, TopicSettings
from stratalog.store.testing import TunedConfig
from stratalog.store.topics.settings import Keep

from ..shape import KIB
from .dead import DEAD
from .ledger import FILTERS_OF_TAGGED, Kind

TOPIC: Final = "t"
NEVER_MS: Final = 1 << 49  # no message of a run is so old
KINDS: Final = (
    Kind("plain", {}),
    Kind("again", {"max_attempts": 2, "dead_letter_topic": DEAD}),
    Kind("lines", {"mode": "ordered"}),
    Kind("keys", {"mode": "ordered", "order_by": "key"}),
    Kind("tagged", {"filter": FILTERS_OF_TAGGED[0]}),
    Kind("other", {"precision_ms": 20}),
    Kind("patient", {"backoff_ms": [40, 300]}),
)
CALLS: Final[dict[str, int]] = {  # how often, against each other
    "append": 8, "append_some": 3, "submit": 2, "receive": 10, "ack": 6, "ack_some": 5, "submit_acks": 2, "nack": 4,
    "extend": 3, "change": 2, "set_clock": 2, "seek": 1, "skip_all": 1, "compact_cursors": 2, "subscribe": 4,
    "close_one": 1, "delete": 1, "trim": 1, "cancel": 4, "move": 4, "pass_time": 5, "work": 4, "checkpoint": 2,
    "compact_changes": 1, "drop_copies": 1, "fill": 3, "upkeep": 6, "flush": 1, "reopen": 1, "come": 2, "stall": 1,
    "force_one": 4, "configure": 3, "send_back": 4,
}  # fmt: skip
# A power cut may take these back, and the ledger does not know to what.
NOT_LOSSY: Final = frozenset({"change", "move", "configure"})
OF_DELAYS: Final = frozenset({"cancel", "move", "work", "checkpoint", "compact_changes", "drop_copies"})


@dataclass(frozen=True)
class Shape:
    """What kind of run it is.

    Attributes:
        delayed: the share of messages that are delayed; with 0 no call is about delays.
        durability: with "os" a power cut takes of each lane what was not forced: only what comes later is certain then.
        trims: how often trims are made; transactions: how often some.
        configures: topics get settings, and lose them.
        keeps: the topic keeps what is not acknowledged, whatever retention wants.
        age_ms: the topic's own `retention_ms`.
        expires: the topic has a `ttl_ms`, which no message reaches: its consumers go the longer way.
        sends_back: dead letters of other topics are sent back.
        several: some consumers receive from another topic as well, by one object; not where the topic keeps all.
        by_queue: some calls receive from one queue only.
        is_queue: it keeps nothing else, as soon as all have acknowledged it; what fills segments is consumed at once.
        lives: how often the store is opened; all but the last end by a crash.
    """

    lanes: int = 1
    queues: int = 2
    kinds: tuple[Kind, ...] = KINDS[:1]
    large_bytes: int = 1000
    delayed: float = 0.5
    retention_ms: int | None = 400
    durability: Literal["force", "os"] = "force"
    frame_kib: int = 4
    trims: int = 1
    configures: bool = False
    transactions: int = 0
    keeps: bool = False
    age_ms: int | None = None
    expires: bool = False
    sends_back: bool = False
    several: bool = False
    by_queue: bool = False
    is_queue: bool = False
    steps: int = 60
    lives: int = 2

    @property
    def settings(self) -> TopicSettings:
        """Of the topic."""
        keep: Keep = self.keep if self.keeps else "retention"
        return TopicSettings(keep=keep, retention_ms=self.age_ms, ttl_ms=NEVER_MS if self.expires else None)

    @property
    def is_lossy(self) -> bool:
        """May a power cut take what was acknowledged?"""
        return self.durability == "os"

    @property
    def keep(self) -> Literal["unacknowledged", "until_acknowledged"]:
        """The topic's setting, if it keeps anything."""
        return "until_acknowledged" if self.is_queue else "unacknowledged"

    def config(self) -> StoreConfig:
        """For the store."""
        return TunedConfig(
            lanes=self.lanes, segment_bytes=64 * KIB, max_message_bytes=4 * KIB,
            max_frame_bytes=self.frame_kib * KIB, recent_bytes=0, retention_ms=self.retention_ms, memory_limit_bytes=0,
            durability=self.durability,
        )  # fmt: skip

    def weights(self) -> dict[str, int]:
        """How often each call is made."""
        unwanted = (OF_DELAYS if not self.delayed else set()) | (NOT_LOSSY if self.is_lossy else {"force_one"})
        unwanted |= set() if self.configures else {"configure"}
        unwanted |= set() if self.sends_back else {"send_back"}
        weights = {call: count for call, count in CALLS.items() if call not in unwanted}
        changed = {"trim": self.trims} | ({"transact": self.transactions} if self.transactions else {})
        return weights | changed | ({"append_side": 4, "come_together": 4} if self.several and not self.keeps else {})


def draw_shape(chance: random.Random) -> Shape:
    """A shape for a seed."""
    is_lossy = chance.random() < 0.15
    shape = Shape(
        lanes=chance.choice((2, 3)) if is_lossy else chance.choice((1, 1, 2)),
        durability="os" if is_lossy else "force",
        frame_kib=chance.choice((4, 4, 16)),
        trims=chance.choice((1, 1, 5)),
        queues=chance.choice((1, 2, 3)),
        kinds=tuple(chance.sample(KINDS, chance.choice((1, 1, 2, 2, 3)))),
        large_bytes=chance.choice((20, 1000, 3500)),
        delayed=chance.choice((0.0, 0.3, 0.6, 0.9)),
        retention_ms=chance.choice((None, 200, 400, 400)),
        steps=chance.choice((40, 80, 120)),
        lives=chance.choice((1, 2, 3)),
        configures=chance.random() < 0.4,
        transactions=chance.choice((0, 4, 12)),
        keeps=chance.random() < 0.4 and not is_lossy,
        age_ms=None if is_lossy else chance.choice((None, None, 150, 600)),
        expires=chance.random() < 0.3,
    )
    shape = replace(shape, is_queue=shape.keeps and chance.random() < 0.6)
    shape = replace(shape, sends_back=shape.retention_ms is None and shape.lanes == 1)
    return replace(shape, several=chance.random() < 0.3 and not is_lossy, by_queue=chance.random() < 0.5)
