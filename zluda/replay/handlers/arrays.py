"""CUDA arrays, and the texture and surface objects and references over them."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TypeVar

from zluda.driver import descriptors
from zluda.driver.descriptors import Resource, ResourceType
from zluda.replay.arrays import LiveArray
from zluda.replay.handlers.table import bind, created, gap, handles, signed
from zluda.replay.playback import Playback
from zluda.tracefile import AllocationKind, Call
from zluda.tracefile.arrays import ArrayShape, created_shape

_Structure = TypeVar("_Structure")
_ARRAY = ("array", "pHandle")
_LEVEL = ("array", "pLevelArray")
_TEXTURE = ("texture", "pTexObject")
_SURFACE = ("surface", "pSurfObject")
_TEXTURE_REFERENCE = ("reference", "pTexRef")
_SURFACE_REFERENCE = ("reference", "pSurfRef")


def _structure(call: Call, parameter: str) -> bytes:
    """What a parameter points to."""
    data = call.pointees.get(parameter)
    if not isinstance(data, bytes):
        raise gap(f"{call.function}: what {parameter} points to was not captured")
    return data


def _decoded(call: Call, parameter: str, decode: Callable[[bytes], _Structure]) -> _Structure:
    """The same decoded; a gap for bytes that are no such structure."""
    data = _structure(call, parameter)
    try:
        return decode(data)
    except (ValueError, struct.error) as error:
        told = f"{call.function}: the {len(data)} bytes of {parameter} are no such structure"
        raise gap(told) from error


# --- arrays ------------------------------------------------------------------------------------------


def _create(entry: str, descriptor: str, create: Callable[[Playback, ArrayShape], int]) -> None:
    @handles(entry, creates=_ARRAY)
    def run(state: Playback, call: Call) -> None:
        rest = [call.arguments["numMipmapLevels"]] if "numMipmapLevels" in call.arguments else []
        try:
            shape = created_shape(entry, _structure(call, descriptor), rest)
        except ValueError as error:
            raise gap(str(error)) from error
        if not shape.texel_bytes:
            raise gap(f"{call.function}: the contents of an {shape.text} are not captured")
        live = create(state, shape)
        recorded = bind(state, call, _ARRAY, live)
        made = [one for one in state.record.born[call.sequence] if one.kind is AllocationKind.ARRAY]
        for allocation in made:
            if allocation.size != shape.size:
                raise gap(f"{shape.text} has {shape.size} bytes, the record {allocation.size}")
            # Memory of a HIP device is not shared with this process: an address would be of no use.
            address = 0 if state.relocates else state.driver.array_address(live)
            array = LiveArray(shape, live, address, state.context)
            state.memory.add_array(allocation, recorded, array)


_create("cuArrayCreate", "pAllocateArray", lambda state, shape: state.driver.cuArrayCreate(shape))
_create("cuArray3DCreate", "pAllocateArray", lambda state, shape: state.driver.cuArray3DCreate(shape))
_create(
    "cuMipmappedArrayCreate",
    "pMipmappedArrayDesc",
    lambda state, shape: state.driver.cuMipmappedArrayCreate(shape),
)


@handles("cuMipmappedArrayGetLevel", creates=_LEVEL)
def get_level(state: Playback, call: Call) -> None:
    whole, level = call.arguments["hMipmappedArray"], call.arguments["level"]
    live = state.driver.cuMipmappedArrayGetLevel(state.handles.live("array", whole), level)
    state.memory.arrays.add_level(bind(state, call, _LEVEL, live), whole, level)


@handles("cuArrayDestroy")
def destroy_array(state: Playback, call: Call) -> None:
    _destroy(state, call.arguments["hArray"], state.driver.cuArrayDestroy)


@handles("cuMipmappedArrayDestroy")
def destroy_mipmapped(state: Playback, call: Call) -> None:
    _destroy(state, call.arguments["hMipmappedArray"], state.driver.cuMipmappedArrayDestroy)


def _destroy(state: Playback, recorded: int, destroy: Callable[[int], None]) -> None:
    live = state.handles.live("array", recorded)
    state.handles.release("array", recorded)
    state.memory.arrays.remove(recorded)
    destroy(live)


# --- objects -----------------------------------------------------------------------------------------


def _live_resource(state: Playback, resource: Resource) -> tuple[Resource, int]:
    """A resource with the replay's handle or address, and what of the record's memory is behind it."""
    if resource.type in (ResourceType.ARRAY, ResourceType.MIPMAPPED_ARRAY):
        live = state.handles.live("array", resource.at)
        return resource._replace(at=live), state.memory.arrays.base_of(resource.at)
    if state.memory.find(resource.at) is None:
        raise state.memory.not_there(resource.at)
    return resource._replace(at=state.memory.translate(resource.at)), resource.at


@handles("cuTexObjectCreate", creates=_TEXTURE)
def create_texture(state: Playback, call: Call) -> None:
    recorded = created(call, "pTexObject")
    resource, behind = _live_resource(state, _decoded(call, "pResDesc", descriptors.decode_resource))
    texture = _decoded(call, "pTexDesc", descriptors.decode_texture)
    seen = isinstance(call.pointees.get("pResViewDesc"), bytes)
    decoded = _decoded(call, "pResViewDesc", descriptors.decode_view) if seen else None
    live = state.driver.cuTexObjectCreate(resource, texture, decoded, handle=recorded)
    state.memory.arrays.add_object("texture", bind(state, call, _TEXTURE, live), live, behind)


@handles("cuSurfObjectCreate", creates=_SURFACE)
def create_surface(state: Playback, call: Call) -> None:
    recorded = created(call, "pSurfObject")
    resource, behind = _live_resource(state, _decoded(call, "pResDesc", descriptors.decode_resource))
    live = state.driver.cuSurfObjectCreate(resource, handle=recorded)
    state.memory.arrays.add_object("surface", bind(state, call, _SURFACE, live), live, behind)


@handles("cuTexObjectDestroy")
def destroy_texture(state: Playback, call: Call) -> None:
    _drop_object(state, "texture", call.arguments["texObject"], state.driver.cuTexObjectDestroy)


@handles("cuSurfObjectDestroy")
def destroy_surface(state: Playback, call: Call) -> None:
    _drop_object(state, "surface", call.arguments["surfObject"], state.driver.cuSurfObjectDestroy)


def _drop_object(state: Playback, kind: str, recorded: int, destroy: Callable[[int], None]) -> None:
    live = state.handles.live(kind, recorded)
    state.handles.release(kind, recorded)
    state.memory.arrays.remove_object(kind, recorded)
    destroy(live)


# --- references --------------------------------------------------------------------------------------


def _reference(state: Playback, call: Call) -> int:
    name = "hTexRef" if "hTexRef" in call.arguments else "hSurfRef"
    return state.handles.live("reference", call.arguments[name])


@handles("cuModuleGetTexRef", creates=_TEXTURE_REFERENCE)
def get_texture_reference(state: Playback, call: Call) -> None:
    module = state.handles.live("module", call.arguments["hmod"])
    live = state.driver.cuModuleGetTexRef(module, state.string(call, "name"))
    bind(state, call, _TEXTURE_REFERENCE, live)


@handles("cuModuleGetSurfRef", creates=_SURFACE_REFERENCE)
def get_surface_reference(state: Playback, call: Call) -> None:
    module = state.handles.live("module", call.arguments["hmod"])
    live = state.driver.cuModuleGetSurfRef(module, state.string(call, "name"))
    bind(state, call, _SURFACE_REFERENCE, live)


@handles("cuTexRefCreate", creates=_TEXTURE_REFERENCE)
def create_reference(state: Playback, call: Call) -> None:
    bind(state, call, _TEXTURE_REFERENCE, state.driver.cuTexRefCreate())


@handles("cuTexRefDestroy")
def destroy_reference(state: Playback, call: Call) -> None:
    live = _reference(state, call)
    state.handles.release("reference", call.arguments["hTexRef"])
    state.memory.arrays.remove_object("reference", call.arguments["hTexRef"])
    state.driver.cuTexRefDestroy(live)


def _bind_array(entry: str, reference: str, array: str) -> None:
    @handles(entry, spoils=("reference", reference))
    def run(state: Playback, call: Call) -> None:
        recorded = call.arguments[array]
        live = state.handles.live("array", recorded) if recorded else 0
        getattr(state.driver, entry)(_reference(state, call), live, call.arguments["Flags"])
        behind = state.memory.arrays.base_of(recorded) if recorded else 0
        state.memory.arrays.add_object("reference", call.arguments[reference], 0, behind)


_bind_array("cuTexRefSetArray", "hTexRef", "hArray")
_bind_array("cuTexRefSetMipmappedArray", "hTexRef", "hMipmappedArray")
_bind_array("cuSurfRefSetArray", "hSurfRef", "hArray")


@handles("cuTexRefSetAddress", spoils=("reference", "hTexRef"))
def bind_address(state: Playback, call: Call) -> None:
    address = call.arguments["dptr"]
    live = state.memory.translate(address)
    state.driver.cuTexRefSetAddress(_reference(state, call), live, call.arguments["bytes"])
    state.memory.arrays.add_object("reference", call.arguments["hTexRef"], 0, address)


@handles("cuTexRefSetAddress2D", spoils=("reference", "hTexRef"))
def bind_address_2d(state: Playback, call: Call) -> None:
    address = call.arguments["dptr"]
    shape = _decoded(call, "desc", lambda data: created_shape("cuArrayCreate", data, ()))
    live = state.memory.translate(address)
    state.driver.cuTexRefSetAddress2D(_reference(state, call), shape, live, call.arguments["Pitch"])
    state.memory.arrays.add_object("reference", call.arguments["hTexRef"], 0, address)


@handles("cuTexRefSetBorderColor", spoils=("reference", "hTexRef"))
def set_border_color(state: Playback, call: Call) -> None:
    r, g, b, a = _decoded(call, "pBorderColor", struct.Struct("<4f").unpack)
    state.driver.cuTexRefSetBorderColor(_reference(state, call), (r, g, b, a))


def _set(entry: str, *parameters: str) -> None:
    @handles(entry, spoils=("reference", "hTexRef"))
    def run(state: Playback, call: Call) -> None:
        values = [signed(call.arguments[name]) for name in parameters]
        getattr(state.driver, entry)(_reference(state, call), *values)


_set("cuTexRefSetFormat", "fmt", "NumPackedComponents")
_set("cuTexRefSetAddressMode", "dim", "am")
_set("cuTexRefSetFilterMode", "fm")
_set("cuTexRefSetMipmapFilterMode", "fm")
_set("cuTexRefSetMaxAnisotropy", "maxAniso")
_set("cuTexRefSetFlags", "Flags")


@handles("cuTexRefSetMipmapLevelBias", "cuTexRefSetMipmapLevelClamp", spoils=("reference", "hTexRef"))
def set_levels(state: Playback, call: Call) -> None:
    """Their floats are not on record."""
    raise gap(f"{call.function}: floating-point arguments are not on record")
