"""Kernel launches."""

from __future__ import annotations

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


_ALIGNED = 64  # bytes of a parameter that may ask for more than 16 bytes' alignment: a tensor map


def _placed(state: Playback, launch: Launch, function: int, parameters: bytes) -> bytes:
    """The parameters where this driver's kernel has them.

    NVIDIA's driver aligns a parameter in its constant bank, in which parameters begin at 0x210 on sm_90: one
    of 64 bytes' alignment that comes first is at offset 112. Translated code has it at 0.
    """
    if not any(size >= _ALIGNED for _, size in launch.layout or ()):
        return parameters
    slots = state.driver.parameter_layout(function)
    if launch.layout is None or len(slots) != len(launch.layout):
        return parameters
    placed = bytearray(max((s.offset + s.size for s in slots), default=0))
    for slot, (offset, size) in zip(slots, launch.layout, strict=True):
        placed[slot.offset : slot.offset + size] = parameters[offset : offset + size]
    return bytes(placed)


def launch_attributes(call: Call, launch: Launch) -> tuple[LaunchAttribute, ...]:
    """As recorded, and the one that an entry's name says."""
    recorded = attributes(launch.attributes)
    if entry_name(call.function).base != "cuLaunchCooperativeKernel":
        return recorded
    from zluda.compiler.target import Together  # reads PTX, which most replays need not on this side
    from zluda.device import together

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
    stream = state.known_stream(recorded)
    state.driver.cuLaunchKernel(
        function,
        launch.grid,
        launch.block,
        launch.shared_bytes,
        stream,
        _placed(
            state,
            launch,
            function,
            _exchanged(state, launch, state.memory.translate_words(launch.parameters)),
        ),
        attributes=launch_attributes(call, launch),
    )
    state.driver.cuStreamSynchronize(stream)
