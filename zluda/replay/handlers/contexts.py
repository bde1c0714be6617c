"""Initialisation and contexts.

Which context is current is a matter of the recorded thread; a replay has one thread, so these keep each
recorded thread's stack and the player makes its top current before it issues a call of that thread.
"""

from __future__ import annotations

from zluda.replay.handlers.table import Phase, bind, device, handles
from zluda.replay.playback import Playback
from zluda.tracefile import Call

_MADE = ("context", "pctx")


@handles("cuInit")
def init(state: Playback, call: Call) -> None:
    state.driver.cuInit(call.arguments["Flags"])


@handles("cuDevicePrimaryCtxRetain", creates=_MADE)
def primary_retain(state: Playback, call: Call) -> None:
    bind(state, call, _MADE, state.driver.cuDevicePrimaryCtxRetain(device(call)))


@handles("cuDevicePrimaryCtxRelease")
def primary_release(state: Playback, call: Call) -> None:
    state.driver.cuDevicePrimaryCtxRelease(device(call))


@handles("cuDevicePrimaryCtxReset")
def primary_reset(state: Playback, call: Call) -> None:
    primary = state.primary
    state.driver.cuDevicePrimaryCtxReset(device(call))
    state.retain_primary()
    state.drop_freed(primary)


@handles("cuDevicePrimaryCtxSetFlags")
def primary_set_flags(state: Playback, call: Call) -> None:
    state.driver.cuDevicePrimaryCtxSetFlags(device(call), call.arguments["flags"])


@handles("cuCtxCreate", creates=_MADE)
def create(state: Playback, call: Call) -> None:
    live = state.driver.cuCtxCreate(call.arguments["flags"], device(call))
    state.push_context(call.thread, bind(state, call, _MADE, live), live)


@handles("cuCtxDestroy")
def destroy(state: Playback, call: Call) -> None:
    recorded = call.arguments["ctx"]
    live = state.handles.live("context", recorded)
    state.driver.cuCtxDestroy(live)
    state.handles.release("context", recorded)
    state.drop_context(recorded)
    state.drop_freed(live)


@handles("cuCtxSetCurrent")
def set_current(state: Playback, call: Call) -> None:
    state.pop_context(call.thread)
    if call.arguments["ctx"]:
        state.push_context(call.thread, call.arguments["ctx"])


@handles("cuCtxPushCurrent")
def push(state: Playback, call: Call) -> None:
    state.push_context(call.thread, call.arguments["ctx"])


@handles("cuCtxPopCurrent")
def pop(state: Playback, call: Call) -> None:
    state.pop_context(call.thread)


@handles("cuCtxSynchronize", phase=Phase.SYNC)
def synchronize(state: Playback, call: Call) -> None:
    state.driver.cuCtxSynchronize()


@handles("cuCtxSetLimit")
def set_limit(state: Playback, call: Call) -> None:
    state.driver.cuCtxSetLimit(call.arguments["limit"], call.arguments["value"])


@handles("cuCtxSetCacheConfig")
def set_cache_config(state: Playback, call: Call) -> None:
    state.driver.cuCtxSetCacheConfig(call.arguments["config"])
