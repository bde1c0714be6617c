"""What every part of the translated driver shares.

**Handles** are integers that never repeat, so a destroyed one is known to be destroyed and one of the wrong
kind is refused.

**Errors that stick.** As on a GPU, the failure of a running kernel spoils the contexts: from then on every
entry returns the same error, until ``TranslatedDriver.recover``. Errors found before a kernel starts (a bad
argument, a bad configuration, an unsupported instruction) do not stick.
"""

from __future__ import annotations

import functools
import itertools
import threading
from collections.abc import Callable
from dataclasses import field
from typing import Concatenate, Generic, ParamSpec, Protocol, TypeVar, cast

from zluda.device.base import Code, Device, GpuDevice
from zluda.device.results import KERNEL_FAILURES
from zluda.device.services import Services
from zluda.driver.descriptors import Resource, Texture, View
from zluda.driver.errors import CudaError
from zluda.records import dataclass
from zluda.tracefile.arrays import ArrayShape

T = TypeVar("T")
P = ParamSpec("P")
R = TypeVar("R")


PREDEFINED_STREAMS = (0, 1, 2)  # default, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD


class Handles(Generic[T]):
    """Live objects of one kind by handle; ``error`` is the CUresult name for a handle that is not live."""

    _next = itertools.count(0x1000, 0x10)  # shared by all kinds

    def __init__(self, error: str = "CUDA_ERROR_INVALID_HANDLE") -> None:
        self._error = error
        self._live: dict[int, T] = {}

    def add(self, item: T, handle: int | None = None) -> int:
        """A handle for an object: a new one, or one that it had before."""
        if handle is None:
            handle = next(Handles._next)
        self._live[handle] = item
        return handle

    def __getitem__(self, handle: int) -> T:
        try:
            return self._live[handle]
        except KeyError:
            raise CudaError(self._error, detail=f"handle {handle:#x} is not live") from None

    def remove(self, handle: int) -> T:
        item = self[handle]
        del self._live[handle]
        return item

    def items(self) -> list[tuple[int, T]]:
        return list(self._live.items())


@dataclass(slots=True)
class Context:
    """A context: primary or made by ``cuCtxCreate``."""

    flags: int
    primary: bool
    limits: dict[int, int]
    cache_config: int = 0


@dataclass(slots=True)
class Stream:
    """A stream; ``native`` is the GPU's own, 0 on a device without any."""

    context: int
    flags: int
    priority: int
    native: int = 0


@dataclass(slots=True)
class Event:
    """An event; ``recorded_ns`` is the time of the last record, None before the first.

    ``native`` is the GPU's own, 0 on a device without any.
    """

    context: int
    flags: int
    recorded_ns: int | None = None
    native: int = 0


@dataclass(slots=True)
class LoadedModule:
    """A module or library: the device's code and the functions handed out so far, by name."""

    context: int
    code: Code
    variables: tuple[str, ...]
    functions: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class Function:
    """A kernel, which is both a CUkernel and a CUfunction; compiled when first used."""

    name: str
    module: int
    attributes: dict[int, int] = field(default_factory=dict)


@dataclass(slots=True)
class Allocation:
    """Device or page-locked host memory."""

    size: int
    context: int
    host: bool = False


@dataclass(slots=True)
class Array:
    """An array, in device memory without gaps. Of a mipmapped array ``levels`` are the arrays that are its
    levels; of such a level, ``whole`` is the mipmapped array, which owns the memory.
    """

    shape: ArrayShape
    address: int
    context: int
    levels: tuple[int, ...] = ()
    whole: int = 0


@dataclass(slots=True)
class TextureObject:
    """A texture object or, without ``texture``, a surface object."""

    context: int
    resource: Resource
    texture: Texture | None = None
    view: View | None = None


@dataclass(slots=True)
class Reference:
    """A texture or surface reference: the module's variable at ``address`` (0: of no module), what is bound
    to it, and how it is to be read.
    """

    context: int
    address: int
    surface: bool
    resource: Resource | None = None
    format: tuple[int, int] | None = None  # CUarray_format and channels, where the program set them
    texture: Texture = field(default_factory=Texture)


class State:
    """The driver's tables; one of it for a driver."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.gpu = device if isinstance(device, GpuDevice) else None
        self.services = Services(device)
        self.printed: list[str] = []  # by kernels, not yet asked for
        self.print_complaint = ""
        self.closed = False
        self.initialised = False
        self.sticky: CudaError | None = None
        self.contexts: Handles[Context] = Handles("CUDA_ERROR_INVALID_CONTEXT")
        self.modules: Handles[LoadedModule] = Handles()
        self.functions: Handles[Function] = Handles()
        self.streams: Handles[Stream] = Handles()
        self.events: Handles[Event] = Handles()
        self.arrays: Handles[Array] = Handles()
        self.texture_objects: Handles[TextureObject] = Handles()
        self.surface_objects: Handles[TextureObject] = Handles()
        self.references: Handles[Reference] = Handles()
        self.allocations: dict[int, Allocation] = {}
        self.bases: list[int] = []  # of the allocations, sorted
        self.primary: int | None = None
        self.primary_handle: int | None = None  # the same each time the primary context comes to life
        self.primary_flags = 0
        self.primary_retained = 0
        self._thread = threading.local()

    @property
    def stack(self) -> list[int]:
        """The calling thread's stack of contexts; the last is current."""
        stack: list[int] | None = getattr(self._thread, "stack", None)
        if stack is None:
            stack = self._thread.stack = []
        return stack

    def current(self) -> int:
        """The current context's handle; CUDA_ERROR_INVALID_CONTEXT where there is none."""
        if not self.stack:
            raise CudaError("CUDA_ERROR_INVALID_CONTEXT", detail="no context is current")
        handle = self.stack[-1]
        try:
            self.contexts[handle]
        except CudaError:
            raise CudaError("CUDA_ERROR_CONTEXT_IS_DESTROYED") from None
        return handle

    def check_stream(self, stream: int) -> None:
        """CUDA_ERROR_INVALID_HANDLE for a stream that is not live."""
        if stream not in PREDEFINED_STREAMS:
            _ = self.streams[stream]

    def native_stream(self, stream: int) -> int:
        """The GPU's own handle of a stream that is live."""
        return stream if stream in PREDEFINED_STREAMS else self.streams[stream].native

    def await_stream(self, stream: int) -> None:
        """Wait for what a GPU has been given on a live stream."""
        self.check_stream(stream)
        if self.gpu is not None:
            self.gpu.streams.synchronize(self.native_stream(stream))


class HasState(Protocol):
    """What the entries' classes have in common."""

    _state: State


S = TypeVar("S", bound=HasState)
Method = Callable[Concatenate[S, P], R]


def entry(*, context: bool = True, initialised: bool = True) -> Callable[[Method[S, P, R]], Method[S, P, R]]:
    """A driver entry: checks what CUDA checks first, and puts the entry's name on the error it raises."""

    def decorate(method: Method[S, P, R]) -> Method[S, P, R]:
        name = method.__name__

        @functools.wraps(method)
        def call(self: S, *args: P.args, **kwargs: P.kwargs) -> R:
            state = self._state
            if state.closed:
                raise CudaError("CUDA_ERROR_DEINITIALIZED", name)
            if initialised and not state.initialised:
                raise CudaError("CUDA_ERROR_NOT_INITIALIZED", name)
            if state.sticky is not None and context:
                raise _named(state.sticky, name) from state.sticky
            try:
                if context:
                    state.current()
                return method(self, *args, **kwargs)
            except CudaError as error:
                if error.result in KERNEL_FAILURES and state.sticky is None:
                    state.sticky = error
                if error.call:
                    raise
                raise _named(error, name) from error.__cause__

        return cast(Method[S, P, R], call)

    return decorate


def _named(error: CudaError, name: str) -> CudaError:
    return CudaError(error.result, name, error.detail, reason=error.reason, launch=error.launch)
