"""A change of a subscription's settings, for all of its consumers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from .settings import Settings, check_dead_letters

if TYPE_CHECKING:
    from .shared import Shared


def change_settings(shared: Shared, known: Callable[[], Settings], *changes: object) -> None:
    """Change settings durably: `known` gives those of now, or raises; `changes` are the arguments of `changed`."""
    state = shared.state
    settings = known().changed(*changes)
    check_dead_letters(settings.dead_letter_topic, state.topic)
    links, receiving = shared.chains.changing(state.topic, settings.dead_letter_topic), shared.dispatcher.receiving
    with links as check, state.changing, receiving:
        before = known()
        settings = before.changed(*changes)
        if settings.dead_letter_topic != before.dead_letter_topic:
            check()
        if settings != before:
            shared.dispatcher.change(settings)
    shared.tell_precision()
    state.notify()
