"""The fault table: what a test wants to go wrong with the calls of clients."""

from __future__ import annotations

import math
import threading
from collections.abc import AsyncIterator
from typing import Any, Unpack

import grpc

from ..server.calls import Around, Call, Proceed, chained
from ..wire import Code
from .actions import black_holing, delaying, dropping, failing, tearing, through
from .fault import Action, CallFault, is_whole
from .selection import Selected, Selection
from .watched import watched


class FaultTable:
    """Faults in front of every handler of an endpoint. From any thread, while clients call.

        endpoint.faults.fail(Code.TOO_MANY_REQUESTS, times=2, method="SendMessage", topic="orders")

    Each method adds a fault, and returns it. `times` is how many calls it strikes, None for all until it is removed;
    `skip` is how many calls that fit go by before; `share` strikes only a part of them, chosen by the seed. The
    fields of `Selected` say which calls fit: method, topic, group, client_id, where. A fault that can strike no call
    is a ValueError. A call may meet several faults, the oldest first. A call of a stream counts once, when it begins.
    """

    def __init__(self, seed: int = 0) -> None:
        """`seed`: of what `share` chooses. The same seed, faults and order of calls give the same strikes."""
        self.seed = seed
        self._lock = threading.Lock()
        self._made = 0
        self._faults: tuple[CallFault, ...] = ()
        self._holes: tuple[CallFault, ...] = ()

    def fail(
        self, code: int | grpc.StatusCode, text: str = "a fault of the test", *, times: int | None = 1, skip: int = 0,
        share: float = 1.0, **selected: Unpack[Selected],
    ) -> CallFault:  # fmt: skip
        """Answer calls with a code: one of RocketMQ's (`stratalog.endpoint.Code`), in the answer's status, or one of
        gRPC's in place of an answer. The store hears nothing of them.

        Raises ValueError for what is neither, and for OK: a call that is answered with it must have been handled.
        """
        if isinstance(code, grpc.StatusCode):
            is_failure = code is not grpc.StatusCode.OK
        else:
            is_failure = is_whole(code, 0) and code in set(Code) and code not in (Code.OK, Code.MULTIPLE_RESULTS)
        if not is_failure:
            raise ValueError(
                f"a code is one of stratalog.endpoint.Code or of grpc.StatusCode, and not OK, not {code!r}"
            )
        if not isinstance(text, str):
            raise ValueError(f"text is a str, not {text!r}")
        return self._add("fail", failing(code, text), Selection(**selected), times, skip, share)

    def delay(
        self, ms: int, *, times: int | None = 1, skip: int = 0, share: float = 1.0, **selected: Unpack[Selected]
    ) -> CallFault:
        """Let calls wait `ms` milliseconds of the machine's time before they are handled."""
        if not isinstance(ms, int | float) or isinstance(ms, bool) or not 0 <= ms < math.inf:
            raise ValueError(f"ms is at least 0, not {ms!r}")
        return self._add("delay", delaying(ms), Selection(**selected), times, skip, share)

    def drop(
        self, *, after_answers: int = 0, times: int | None = 1, skip: int = 0, share: float = 1.0,
        **selected: Unpack[Selected],
    ) -> CallFault:  # fmt: skip
        """Break calls off before they are handled; the client hears what it hears of a broken connection.

        With `after_answers` a call that answers with a stream is handled, and breaks after so many of its messages. An
        answer of ReceiveMessage begins with a status, and then has the messages.
        """
        if not is_whole(after_answers, 0):
            raise ValueError(f"after_answers is at least 0, not {after_answers!r}")
        return self._add("drop", dropping(after_answers), Selection(**selected), times, skip, share)

    def tear(
        self, *, times: int | None = 1, skip: int = 0, share: float = 1.0, **selected: Unpack[Selected]
    ) -> CallFault:  # fmt: skip
        """Handle calls, and lose their answers: what they asked is done, and the client does not know."""
        return self._add("tear", tearing(), Selection(**selected), times, skip, share)

    def black_hole(self, **selected: Unpack[Selected]) -> CallFault:
        """Let nothing through, in both directions, until the fault is removed: neither new calls, nor answers of calls
        and streams that are open. The client hears nothing, not even an error, before its own deadline."""
        fault = self._add("black hole", black_holing(), Selection(**selected), None, 0, 1.0)
        with self._lock:
            self._holes = (*self._holes, fault)
        return fault

    def clear(self) -> None:
        """Remove all faults."""
        with self._lock:
            gone, self._faults, self._holes = self._faults, (), ()
        for fault in gone:
            fault.remove()

    def __iter__(self) -> Any:
        return iter([fault for fault in self._faults if not fault.removed.is_open])

    def _add(
        self, name: str, action: Action, selection: Selection, times: int | None, skip: int, share: float
    ) -> CallFault:  # fmt: skip
        with self._lock:
            seed = f"{self.seed}/{self._made}"
            fault = CallFault(name, action, selection, times=times, skip=skip, share=share, seed=seed)
            self._made += 1
            self._faults = (*(one for one in self._faults if not one.removed.is_open), fault)
            self._holes = tuple(one for one in self._holes if not one.removed.is_open)
        return fault

    async def around(self, call: Call, proceed: Proceed) -> Any:
        """The interceptor."""
        if call.requests is not None:
            call.requests = self._each_through(call, call.requests)
        if call.request is None or call.method == "ReceiveMessage":  # it may be open when a black hole comes
            watched(call).gates.append(lambda message: through(self._holes, call) if self._holes else None)
        faults = self._faults
        met: list[Around] = [fault.strike for fault in faults if fault.meets(call)] if faults else []
        chain = chained(met)
        answer = await (proceed() if chain is None else chain(call, proceed))
        if self._holes:
            await through(self._holes, call)
        return answer

    async def _each_through(self, call: Call, requests: AsyncIterator[Any]) -> AsyncIterator[Any]:
        async for request in requests:
            if self._holes:
                await through(self._holes, call)
            yield request
