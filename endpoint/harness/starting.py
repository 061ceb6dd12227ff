"""The start of an endpoint on a port that another program may have for a moment."""

from __future__ import annotations

import time
from collections.abc import Callable

from ..errors import AddressInUse
from ..rocketmq.endpoint import RocketMQEndpoint

POLL_MS = 1000  # how long a push consumer's call waits: some clients end only after it
SAME_PORT_S = 5.0
AGAIN_S = 0.05


def started(make: Callable[[], RocketMQEndpoint]) -> RocketMQEndpoint:
    """An endpoint, made and started; a port that is in use is asked for again. Raises AddressInUse after 5 seconds."""
    end_s = time.monotonic() + SAME_PORT_S
    while True:
        endpoint = make()
        try:
            endpoint.start()
            return endpoint
        except AddressInUse:
            if time.monotonic() > end_s:
                raise
        time.sleep(AGAIN_S)
