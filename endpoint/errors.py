"""The errors of the endpoint. The text of each says what happened and what to do."""

from __future__ import annotations

from stratalog import StoreError


class EndpointError(StoreError):
    """Base of the errors of the endpoint."""


class AddressInUse(EndpointError):
    """Another program, or another endpoint, listens on this host and port. Take another port; 0 is any free one."""


class AddressUnusable(EndpointError):
    """The host and port cannot be listened on: no such address on this machine, or no permission."""


class CertificateUnusable(EndpointError):
    """The certificate or the key for TLS cannot be read, or cannot be made; the text says why."""


class EndpointClosed(EndpointError):
    """The endpoint was stopped. Start another one."""


class ConnectionLost(EndpointError):
    """The connection of a `stratalog.connect` has ended, or cannot be made. The next call connects again.

    If a call was under way, nobody knows what came of it. An append with a `message_id` may be repeated: the store
    keeps one message of an id.
    """
