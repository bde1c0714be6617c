"""Texture and surface objects and references: what they name becomes a descriptor that compiled code reads.

A handle that a caller asks for is given out as it is, so that handles which a recorded program stored in
memory name the same objects; others count up from 1, as NVIDIA's do.
"""

from __future__ import annotations

from zluda.driver.descriptors import Resource, Texture, View, texture_of
from zluda.driver.errors import CudaError
from zluda.driver.translated.resources import descriptor_of
from zluda.driver.translated.state import Handles, Reference, State, TextureObject, entry
from zluda.errors import Error
from zluda.tracefile.arrays import SURFACE, ArrayShape

_OVERRIDE_FORMAT = 0x1  # CU_TRSA_OVERRIDE_FORMAT, which cuTexRefSetArray wants
_LINEAR_ALIGNMENT = 512  # CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT of an H200


class TextureEntries:
    """``cuTexObject*``, ``cuSurfObject*``, ``cuTexRef*``, ``cuSurfRef*``."""

    _state: State

    # --- objects ----------------------------------------------------------------------------------------

    @entry()
    def cuTexObjectCreate(
        self, resource: Resource, texture: Texture, view: View | None = None, *, handle: int | None = None
    ) -> int:
        state = self._state
        made = TextureObject(
            state.current(), Resource(*resource), texture_of(texture), None if view is None else View(*view)
        )
        return self._make(state.texture_objects, made, handle)

    @entry()
    def cuTexObjectDestroy(self, handle: int) -> None:
        drop_object(self._state, self._state.texture_objects, handle)

    @entry()
    def cuTexObjectGetResourceDesc(self, handle: int) -> Resource:
        return self._state.texture_objects[handle].resource

    @entry()
    def cuTexObjectGetTextureDesc(self, handle: int) -> Texture:
        texture = self._state.texture_objects[handle].texture
        assert texture is not None
        return texture

    @entry()
    def cuTexObjectGetResourceViewDesc(self, handle: int) -> View:
        view = self._state.texture_objects[handle].view
        if view is None:
            raise CudaError("CUDA_ERROR_INVALID_VALUE", detail=f"texture {handle:#x} has no resource view")
        return view

    @entry()
    def cuSurfObjectCreate(self, resource: Resource, *, handle: int | None = None) -> int:
        state = self._state
        return self._make(state.surface_objects, TextureObject(state.current(), Resource(*resource)), handle)

    @entry()
    def cuSurfObjectDestroy(self, handle: int) -> None:
        drop_object(self._state, self._state.surface_objects, handle)

    @entry()
    def cuSurfObjectGetResourceDesc(self, handle: int) -> Resource:
        return self._state.surface_objects[handle].resource

    def _make(self, objects: Handles[TextureObject], made: TextureObject, handle: int | None) -> int:
        state = self._state
        descriptor = descriptor_of(state, made.resource, made.texture, made.view)
        taken = {h for one in (state.texture_objects, state.surface_objects) for h, _ in one.items()}
        if handle is None:
            handle = next(number for number in range(1, len(taken) + 2) if number not in taken)
        elif handle in taken or not handle:
            raise CudaError("CUDA_ERROR_INVALID_HANDLE", detail=f"handle {handle:#x} is another object's")
        state.services.textures.set(handle, descriptor)
        return objects.add(made, handle)

    # --- references -------------------------------------------------------------------------------------

    @entry()
    def cuModuleGetTexRef(self, module: int, name: str) -> int:
        return self._reference(module, name, surface=False)

    @entry()
    def cuModuleGetSurfRef(self, module: int, name: str) -> int:
        return self._reference(module, name, surface=True)

    @entry()
    def cuTexRefCreate(self) -> int:
        return self._state.references.add(Reference(self._state.current(), 0, surface=False))

    @entry()
    def cuTexRefDestroy(self, reference: int) -> None:
        self._state.references.remove(reference)

    @entry()
    def cuTexRefSetArray(self, reference: int, array: int, flags: int) -> None:
        self._bind(reference, Resource(0, array), flags)

    @entry()
    def cuTexRefSetMipmappedArray(self, reference: int, array: int, flags: int) -> None:
        self._bind(reference, Resource(1, array), flags)

    @entry()
    def cuSurfRefSetArray(self, reference: int, array: int, flags: int) -> None:
        if not self._state.arrays[array].shape.flags & SURFACE:
            detail = f"array {array:#x} was made without CUDA_ARRAY3D_SURFACE_LDST"
            raise CudaError("CUDA_ERROR_INVALID_VALUE", detail=detail)
        self._bind(reference, Resource(0, array), _OVERRIDE_FORMAT)

    @entry()
    def cuTexRefSetAddress(self, reference: int, address: int, size: int) -> int:
        offset = address % _LINEAR_ALIGNMENT
        format, channels = self._format(reference)
        self._set(reference, Resource(2, address - offset, format, channels, size + offset))
        return offset

    @entry()
    def cuTexRefSetAddress2D(self, reference: int, shape: ArrayShape, address: int, pitch: int) -> None:
        shape = ArrayShape(*shape)
        size = (shape.width, shape.height, pitch)
        self._set(reference, Resource(3, address, shape.format, shape.channels, 0, *size))

    @entry()
    def cuTexRefSetFormat(self, reference: int, format: int, channels: int) -> None:
        self._state.references[reference].format = (format, channels)
        self._changed(reference)

    @entry()
    def cuTexRefSetAddressMode(self, reference: int, dimension: int, mode: int) -> None:
        if not 0 <= dimension < 3:
            raise CudaError("CUDA_ERROR_INVALID_VALUE", detail=f"dimension {dimension}; expected 0 to 2")
        x, y, z = self._state.references[reference].texture.address_modes
        modes = (mode if dimension == 0 else x, mode if dimension == 1 else y, mode if dimension == 2 else z)
        self._read_as(reference, address_modes=modes)

    @entry()
    def cuTexRefSetFilterMode(self, reference: int, mode: int) -> None:
        self._read_as(reference, filter_mode=mode)

    @entry()
    def cuTexRefSetMipmapFilterMode(self, reference: int, mode: int) -> None:
        self._read_as(reference, mipmap_filter_mode=mode)

    @entry()
    def cuTexRefSetMipmapLevelBias(self, reference: int, bias: float) -> None:
        self._read_as(reference, mipmap_level_bias=bias)

    @entry()
    def cuTexRefSetMipmapLevelClamp(self, reference: int, least: float, most: float) -> None:
        self._read_as(reference, min_mipmap_level_clamp=least, max_mipmap_level_clamp=most)

    @entry()
    def cuTexRefSetMaxAnisotropy(self, reference: int, anisotropy: int) -> None:
        self._read_as(reference, max_anisotropy=anisotropy)

    @entry()
    def cuTexRefSetBorderColor(self, reference: int, color: tuple[float, float, float, float]) -> None:
        self._read_as(reference, border_color=tuple(color))

    @entry()
    def cuTexRefSetFlags(self, reference: int, flags: int) -> None:
        self._read_as(reference, flags=flags)

    def _reference(self, module: int, name: str, *, surface: bool) -> int:
        """The same handle however often a module is asked."""
        state = self._state
        loaded = state.modules[module]
        try:
            address, _ = loaded.code.global_variable(name)
        except Error as error:
            raise CudaError("CUDA_ERROR_NOT_FOUND", detail=f"no reference {name!r} in the module") from error
        for handle, one in state.references.items():
            if one.address == address:
                return handle
        return state.references.add(Reference(state.current(), address, surface))

    def _bind(self, reference: int, resource: Resource, flags: int) -> None:
        if flags != _OVERRIDE_FORMAT:
            detail = f"flags {flags:#x}; expected CU_TRSA_OVERRIDE_FORMAT"
            raise CudaError("CUDA_ERROR_INVALID_VALUE", detail=detail)
        _ = self._state.arrays[resource.at]
        self._set(reference, resource)

    def _format(self, reference: int) -> tuple[int, int]:
        found = self._state.references[reference].format
        if found is None:
            raise CudaError("CUDA_ERROR_INVALID_VALUE", detail="the reference's format was not set")
        return found

    def _set(self, reference: int, resource: Resource) -> None:
        self._state.references[reference].resource = resource
        self._changed(reference)

    def _read_as(self, reference: int, **changes: object) -> None:
        found = self._state.references[reference]
        found.texture = found.texture._replace(**changes)  # type: ignore[arg-type]
        self._changed(reference)

    def _changed(self, reference: int) -> None:
        """Tell compiled code, where the reference is a module's and something is bound to it."""
        found = self._state.references[reference]
        if not found.address or found.resource is None:
            return
        texture = None if found.surface else found.texture
        descriptor = descriptor_of(self._state, found.resource, texture, None)
        self._state.services.textures.set(found.address, descriptor)


def drop_object(state: State, objects: Handles[TextureObject], handle: int) -> None:
    """Forget an object: code that uses its handle from now on is stopped."""
    objects.remove(handle)
    state.services.textures.remove(handle)


def drop_objects_of(state: State, context: int) -> None:
    """Forget the objects and references that were made in a context."""
    for objects in (state.texture_objects, state.surface_objects):
        for handle, one in objects.items():
            if one.context == context:
                drop_object(state, objects, handle)
    for handle, reference in state.references.items():
        if reference.context == context:
            drop_reference(state, handle)


def drop_references_in(state: State, addresses: range) -> None:
    """Forget the references of a module's variables: their memory is about to be another's."""
    for handle, reference in state.references.items():
        if reference.address in addresses:
            drop_reference(state, handle)


def drop_reference(state: State, handle: int) -> None:
    """Forget one reference."""
    gone = state.references.remove(handle)
    if gone.address:
        state.services.textures.remove(gone.address)
