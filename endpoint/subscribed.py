"""One subscription of a store, by its topic and name."""

from __future__ import annotations

from stratalog import MessageStore, SubscriptionInfo


def subscription_of(store: MessageStore, topic: str, name: str) -> SubscriptionInfo | None:
    """What the store says of a subscription; None if there is none. Errors: as for `MessageStore.subscriptions`.

    It goes through the subscriptions of the topic, as the store has no other call. So it is for openings and for
    dashboards, and not for each message.
    """
    return next((info for info in store.subscriptions(topic) if info.name == name), None)
