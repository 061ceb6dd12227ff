"""Opening a subscription of several topics: all is checked before the first topic's subscription is made."""

from __future__ import annotations

from ..errors import InvalidMessage
from .members import Members
from .registry import Subscriptions
from .settings import Settings, check_dead_letters, check_settings, check_subscription
from .subscription import Subscription
from .topics_start import Topics, check_pattern, check_topics, check_topics_start, start_in
from .topics_subscription import TopicsSubscription


def subscribe_one_or_more(
    subscriptions: Subscriptions, topic: object, pattern: object, name: object, start: object, *chosen: object
) -> Subscription | TopicsSubscription:
    """An object of the subscription of a topic, of several ones, or of those that match a pattern, whichever is given.

    Raises as `MessageStore.subscribe` does.
    """
    if pattern is not None:
        if topic is not None:
            raise InvalidMessage("give a topic, a list of topics, or a pattern, not both")
        return subscribe_pattern(subscriptions, pattern, name, start, *chosen)
    if isinstance(topic, list | tuple | set | frozenset):
        return subscribe_topics(subscriptions, topic, name, start, *chosen)
    return subscriptions.subscribe(topic, name, start, *chosen)


def subscribe_topics(
    subscriptions: Subscriptions, topics: Topics, name: object, start: object, *chosen: object
) -> TopicsSubscription:
    """An object of the subscriptions of a name in some topics; makes those that are not there. `chosen`: see
    `check_settings`. Raises as `MessageStore.subscribe` does; then some may have been made.
    """
    parts = subscriptions.parts
    parts.check_open()
    parts.check_writes()
    names, who = check_topics(topics), check_subscription(name)
    settings, given = check_settings(*chosen)
    starts = check_topics_start(start, names)
    for topic in names:
        check_dead_letters(settings.dead_letter_topic, topic)
        _check_same(subscriptions, topic, who, settings, given)
    members = Members(parts, who, subscriptions.open, settings)
    try:
        for topic in names:
            members.join(topic, start_in(starts, topic), settings, given)
        return TopicsSubscription(members, None)
    except BaseException:  # passed on; an interrupt, too, leaves no object open
        members.close()
        raise


def subscribe_pattern(
    subscriptions: Subscriptions, pattern: object, name: object, start: object, *chosen: object
) -> TopicsSubscription:
    """As `subscribe_topics`, for the topics that match a pattern, also those that come later."""
    parts = subscriptions.parts
    parts.check_open()
    parts.check_writes()
    matches, who = check_pattern(pattern), check_subscription(name)
    settings, given = check_settings(*chosen)
    starts = check_topics_start(start, None)
    members = Members(parts, who, subscriptions.open, settings)
    members.follow(matches)  # first: a topic that comes now is told, or is in the list
    try:
        names = [topic for topic in parts.reads.topics() if members.wants(topic)]
        is_known = [_check_same(subscriptions, topic, who, settings, given) for topic in names]
        if any(is_known) and not isinstance(starts, dict):
            starts = {}  # it was there before: a topic without a subscription has come since
        for topic in names:
            members.join(topic, start_in(starts, topic), settings, given)
        return TopicsSubscription(members, str(pattern))
    except BaseException:  # passed on, as above
        members.close()
        raise


def _check_same(subscriptions: Subscriptions, topic: str, name: str, settings: Settings, given: list[str]) -> bool:
    """Whether there is a subscription of the name. Raises InvalidMessage if it has other settings."""
    known = subscriptions.settings_of(topic, name)
    if known is not None:
        try:
            known.check_same(settings, given, name)
        except InvalidMessage as error:
            raise InvalidMessage(f"topic {topic!r}: {error}") from None
    return known is not None
