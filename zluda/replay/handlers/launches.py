"""Kernel launches."""

from __future__ import annotations

from zluda.compiler.target import Together
from zluda.device import together
from zluda.driver.base import LaunchAttribute
from zluda.replay.handlers.table import Phase, handles
from zluda.replay.names import entry_name
from zluda.replay.playback import Playback
from zluda.tracefile import Call, Launch

# sizeof(CUlaunchAttribute) of cuda.h: the id, padding, then a value union of 64 bytes at 8.
_ATTRIBUTE_BYTES, _VALUE_OFFSET = 72, 8
_PER_THREAD_STREAM = 2  # CU_STREAM_PER_THREAD


def attributes(data: bytes) -> tuple[LaunchAttribute, ...]:
    """The attributes of ``cuLaunchKernelEx``, from the array as recorded."""
    return tuple(
        LaunchAttribute(
            int.from_bytes(data[at : at + 4], "little"), data[at + _VALUE_OFFSET : at + _ATTRIBUTE_BYTES]
        )
        for at in range(0, len(data) - _ATTRIBUTE_BYTES + 1, _ATTRIBUTE_BYTES)
    )


def _exchanged(state: Playback, launch: Launch, parameters: bytes) -> bytes:
    """The parameters with the replay's handles of texture and surface objects, where they are others.

    So it is on NVIDIA's own driver, which gives out its own. Exchanged are parameters of eight bytes, and
    words of structures, that are such a handle; one in memory, which cannot be told from a number, is not.
    """
    elsewhere = state.memory.arrays.elsewhere()
    if not elsewhere:
        return parameters
    moved = bytearray(parameters)
    for offset, size in launch.layout or ():
        for at in range(-(-offset // 8) * 8, offset + size - 7, 8):
            recorded = int.from_bytes(launch.parameters[at : at + 8], "little")
            if recorded in elsewhere:
                moved[at : at + 8] = elsewhere[recorded].to_bytes(8, "little")
                state.exchanged[recorded] = elsewhere[recorded]
    return bytes(moved)


def launch_attributes(call: Call, launch: Launch) -> tuple[LaunchAttribute, ...]:
    """As recorded, and the one that an entry's name says."""
    recorded = attributes(launch.attributes)
    if entry_name(call.function).base != "cuLaunchCooperativeKernel":
        return recorded
    return (*recorded, *(LaunchAttribute(*a) for a in together.launch_attributes(Together(cooperative=True))))


@handles("cuLaunchKernel", "cuLaunchKernelEx", "cuLaunchCooperativeKernel", phase=Phase.LAUNCH)
def issue_recorded(state: Playback, call: Call) -> None:
    issue(state, call, state.record.trace.launch(call.sequence))


def issue(state: Playback, call: Call, launch: Launch) -> None:
    """Launch a recorded launch's kernel and wait for its end."""
    function = state.function(launch.handle, launch.function)
    recorded = launch.stream
    if recorded == 0 and entry_name(call.function).per_thread:
        recorded = _PER_THREAD_STREAM
    stream = state.handles.live("stream", recorded)
    state.driver.cuLaunchKernel(
        function,
        launch.grid,
        launch.block,
        launch.shared_bytes,
        stream,
        _exchanged(state, launch, state.memory.translate_words(launch.parameters)),
        attributes=launch_attributes(call, launch),
    )
    state.driver.cuStreamSynchronize(stream)
