"""What faults do to a call, each an `Action`."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc

from ..server.calls import Call, Proceed, Refusal
from .fault import Action, CallFault
from .watched import break_off, watched


def failing(code: int | grpc.StatusCode, text: str) -> Action:
    """The call is answered with a code, and the store hears nothing of it."""

    async def fail(fault: CallFault, call: Call, proceed: Proceed) -> Any:
        if isinstance(code, grpc.StatusCode):
            await call.context.abort(code, text)
        raise Refusal(grpc.StatusCode.UNKNOWN, text, status=int(code))

    return fail


def delaying(ms: int) -> Action:
    """The call waits before it is handled, by the machine's time: so do the clients' deadlines."""

    async def delay(fault: CallFault, call: Call, proceed: Proceed) -> Any:
        await asyncio.sleep(ms / 1000)
        return await proceed()

    return delay


def dropping(after_answers: int) -> Action:
    """The connection seems to break before the call is handled, or after some messages of a stream of answers."""

    async def drop(fault: CallFault, call: Call, proceed: Proceed) -> Any:
        if not after_answers:
            await break_off(call)
        left = after_answers

        async def gate(message: Any) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                await break_off(call)

        watched(call).gates.append(gate)
        return await proceed()

    return drop


def tearing() -> Action:
    """The call is handled, and its answer gets lost: the connection seems to break."""

    async def tear(fault: CallFault, call: Call, proceed: Proceed) -> Any:
        watched(call).is_lost = True
        answers = await proceed()
        if hasattr(answers, "__aiter__"):
            async for _ in answers:
                pass
        await break_off(call)

    return tear


def black_holing() -> Action:
    """Nothing comes through, neither to the handler nor to the client, until the fault is removed."""

    async def hold(fault: CallFault, call: Call, proceed: Proceed) -> Any:
        await _held(fault, call)
        return await proceed()

    return hold


async def _held(fault: CallFault, call: Call) -> None:
    """Wait until the fault is removed; a stop of the endpoint breaks the call off."""
    removed = asyncio.ensure_future(fault.removed.wait())
    stopping = asyncio.ensure_future(call.stopping.wait())
    try:
        await asyncio.wait([removed, stopping], return_when=asyncio.FIRST_COMPLETED)
    finally:
        removed.cancel()
        stopping.cancel()
    if not fault.removed.is_open:
        await break_off(call)


async def through(holes: tuple[CallFault, ...], call: Call) -> None:
    """Wait while one of the black holes has the client of a call, or what the call is about."""
    for hole in holes:
        if not hole.removed.is_open and hole.selection.fits(call):
            await _held(hole, call)
