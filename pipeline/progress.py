"""The progress of Spark's tasks, and the store's errors inside Spark's."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from .. import store
from ..store import StoreCorrupt, StoreError
from . import errors

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Progress = Callable[[int, int], object]  # finished tasks, and all tasks
LOOK_S = 0.3
_NAMED = re.compile(r"\bstratalog\.[\w.]*?(\w+): (.+)")
_PLACE = re.compile(r"(.+?) in (/.+) at byte (\d+)\. (.*)")  # the sentence of a StoreCorrupt


@contextmanager
def watched(spark: SparkSession, progress: Progress | None) -> Iterator[None]:
    """Until the block ends, call `progress` now and then with the tasks of the running stages."""
    if progress is None:
        yield
        return
    tracker, ended = spark.sparkContext.statusTracker(), threading.Event()

    def look() -> None:
        while not ended.wait(LOOK_S):
            stages = [tracker.getStageInfo(number) for number in tracker.getActiveStageIds()]
            there = [stage for stage in stages if stage is not None]
            if there:
                progress(sum(one.numCompletedTasks for one in there), sum(one.numTasks for one in there))

    thread = threading.Thread(target=look, name="stratalog-spark-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@contextmanager
def unwrapped() -> Iterator[None]:
    """Raise the store's own error, if Spark has made one of its errors of it."""
    from pyspark.errors import PySparkException  # noqa: PLC0415  # an extra: the console imports this module without it

    try:
        yield
    except PySparkException as error:
        found = store_error_in(str(error))
        if found is None:
            raise
        raise found from error


def store_error_in(text: str) -> StoreError | None:
    """The store's error in a text of Spark's, if there is one: its sentence, kind and attributes."""
    for name, sentence in reversed(_NAMED.findall(text)):
        kind = getattr(errors, name, None) or getattr(store, name, None)
        if isinstance(kind, type) and issubclass(kind, StoreError):
            return _made_again(kind, sentence)
    return None


def _made_again(kind: type[StoreError], sentence: str) -> StoreError:
    """An error made from its sentence; a plain StoreError if the sentence lacks the attributes of the kind."""
    place = _PLACE.fullmatch(sentence) if kind is StoreCorrupt else None
    if place is not None:
        what, file, position, advice = place.groups()
        return StoreCorrupt(what, file, int(position), advice)
    try:
        return kind(sentence)
    except TypeError:  # it has other arguments
        return StoreError(sentence)
