"""PTX modules on an AMD GPU: kernels compiled to code objects when they are first launched.

What loads a code object is the device's: the emulator, or AMD's HIP runtime.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Generic, Protocol, TypeVar

from zluda.compiler import compile_kernel
from zluda.compiler.amd import slow
from zluda.compiler.amd.linker import link
from zluda.compiler.amd.special import WORKSPACE
from zluda.compiler.amd.unit import MAX_THREADS
from zluda.compiler.layout import parameter_layout
from zluda.compiler.services import linked
from zluda.compiler.stops import FAULTS, REFUSAL, STOPPED
from zluda.compiler.target import APART, CompiledKernel, Together
from zluda.device.amd.clusters import ClusterMemory
from zluda.device.base import Dim3, KernelParameter
from zluda.device.limits import MAX_SHARED_BYTES, required_block, thread_limit, validate
from zluda.device.placement import FunctionAddresses, VariableMemory, Variables
from zluda.device.together import arrangement, check_room
from zluda.errors import Error, LaunchError, UnsupportedError
from zluda.ptx import Module
from zluda.records import dataclass

K_co = TypeVar("K_co", covariant=True)


class LoadedCode(Protocol[K_co]):
    """A code object on a device; ``K_co`` is what a launch is given."""

    def kernel(self, name: str) -> K_co: ...

    def unload(self) -> None: ...


class Loader(Protocol[K_co]):
    """What a module asks of its device.

    ``target_id`` is what code is built for (``gfx90a:xnack-``), ``code_object_version`` what is loaded.
    """

    @property
    def target_id(self) -> str: ...

    @property
    def wave_size(self) -> int: ...

    @property
    def code_object_version(self) -> int: ...

    @property
    def numerics(self) -> str: ...

    @property
    def contract(self) -> str: ...

    @property
    def check(self) -> str: ...

    @property
    def end_refused(self) -> bool:
        """Whether a wave that comes to what cannot be done ends, where a trap would end the process."""
        ...

    @property
    def variables(self) -> VariableMemory:
        """Where module variables live."""
        ...

    @property
    def functions(self) -> FunctionAddresses: ...

    @property
    def refusals(self) -> RefusalCell: ...

    def load_code_object(self, data: bytes, *, file: str) -> LoadedCode[K_co]: ...


class RefusalCell:
    """The device's memory for the number of what stopped a launch (``zluda.compiler.stops.REFUSAL``)."""

    def __init__(self, memory: VariableMemory) -> None:
        self._memory = memory
        self._address: int | None = None

    @property
    def address(self) -> int:
        """Where it is; made when first asked for."""
        if self._address is None:
            self._address = self._memory.allocate(4, None)
            self._memory.write(self._address, bytes(4))
        return self._address

    def take(
        self, compiled: CompiledKernel, failure: LaunchError | None = None
    ) -> UnsupportedError | LaunchError | None:
        """What stopped a launch, if its code has said so; the cell is cleared.

        ``failure`` is what the device knows of it.
        """
        if self._address is None or REFUSAL not in compiled.symbols:
            return None
        number = int.from_bytes(self._memory.read(self._address, 4), "little")
        self._memory.write(self._address, bytes(4))
        if not number:
            return None
        if number >= STOPPED:
            # HIP does not say which block it was; a failure without one would be that of a refused launch.
            block, thread = (failure.block, failure.thread) if failure is not None else ((0, 0, 0), None)
            return LaunchError(FAULTS[number - STOPPED], kernel=compiled.name, block=block, thread=thread)
        refusal = compiled.refusals[number - 1]
        return UnsupportedError(refusal.what, refusal.where, began=True)


K = TypeVar("K")


@dataclass(frozen=True, slots=True)
class Dispatch(Generic[K]):
    """A launch as the machine sees it: the workgroup, the explicit kernarg segment, dynamic LDS in bytes."""

    compiled: CompiledKernel
    loaded: K
    block: Dim3
    parameters: bytes
    shared_bytes: int


class AmdKernel(Generic[K]):
    """Implements :class:`zluda.device.base.Kernel`. Nothing is compiled before the first launch."""

    def __init__(self, code: AmdCode[K], name: str) -> None:
        function = code.module.function(name)
        slots, self.parameter_bytes = parameter_layout(function.parameters)
        self.code, self.name = code, name
        self.parameters = tuple(KernelParameter(s.name, s.offset, s.size, s.align) for s in slots)
        self.max_threads_per_block = thread_limit(function.directives)
        self.required_block = required_block(function.directives)
        self.directives = function.directives
        self._shared_bytes: int | None = None
        self._clusters = ClusterMemory(code.device.variables)
        self._loaded: dict[Together, tuple[CompiledKernel, LoadedCode[K]]] = {}

    @property
    def shared_bytes(self) -> int:
        """Static shared memory of a block, in bytes."""
        if self._shared_bytes is None:
            from zluda.compiler.amd.unit import build_unit

            self._shared_bytes = build_unit(self.code.module, self.name, "off").shared.static_bytes
        return self._shared_bytes

    def load(self, together: Together = APART) -> tuple[CompiledKernel, K]:
        """Compile, link against the module's variables, and load. Raises PtxError or UnsupportedError."""
        if together not in self._loaded:
            device = self.code.device
            compiled = compile_kernel(
                self.code.module,
                self.name,
                device.target_id,
                wave_size=device.wave_size,
                code_object_version=device.code_object_version,
                numerics=device.numerics,
                contract=device.contract,
                check=device.check,
                end_refused=device.end_refused,
                together=together,
            )
            addresses = {name: self._address(name) for name in compiled.symbols}
            linked = link(compiled.code, addresses)
            self._loaded[together] = compiled, device.load_code_object(linked, file=self.name)
        compiled, code = self._loaded[together]
        return compiled, code.kernel(compiled.entry)

    def dispatch(
        self,
        grid: Dim3,
        block: Dim3,
        parameters: bytes,
        shared_bytes: int,
        *,
        max_shared: int,
        together: Together = APART,
    ) -> Dispatch[K]:
        """What a launch is to give the machine.

        Raises LaunchError for one that CUDA would refuse, and what :meth:`load` raises.
        """
        together = arrangement(self, grid, together)
        max_shared = MAX_SHARED_BYTES if together.blocks > 1 else max_shared  # not LDS but device memory
        validate(self, grid, block, parameters, shared_bytes, max_shared=max_shared)
        compiled, loaded = self.load(together)
        check_room(self, grid, block, compiled.dynamic_shared_offset + shared_bytes, together)
        explicit = compiled.parameter_bytes
        if together.blocks > 1:
            size = compiled.dynamic_shared_offset + shared_bytes
            parameters = self._clusters.parameters(parameters[:explicit], grid, together, size, shared_bytes)
            explicit, shared_bytes = len(parameters), 0
        block, parameters = dispatched(compiled, block, parameters, explicit)
        # The packet names static and dynamic memory together: what lies between them is asked for as dynamic.
        gap = compiled.dynamic_shared_offset - compiled.shared_bytes if shared_bytes else 0
        return Dispatch(compiled, loaded, block, parameters, shared_bytes + gap)

    def _address(self, symbol: str) -> int:
        if symbol == REFUSAL:
            return self.code.device.refusals.address
        if symbol == WORKSPACE:
            return self._clusters.workspace()
        return self.code.address(symbol)

    def unload(self) -> None:
        """Free the code object."""
        for _, code in self._loaded.values():
            code.unload()
        self._loaded.clear()
        self._clusters.free()


def dispatched(compiled: CompiledKernel, block: Dim3, parameters: bytes, explicit: int) -> tuple[Dim3, bytes]:
    """A workgroup's shape, and the parameters its code reads: ``explicit`` bytes, and what is put behind.

    Raises UnsupportedError for a block of more warps than a workgroup has room for, at one warp a wave.
    """
    if not compiled.one_warp:
        return block, parameters
    shape, extended = slow.dispatch(block, parameters, explicit)
    if shape[0] > MAX_THREADS:
        what = (
            f"a block of {block[0] * block[1] * block[2]} threads at one warp a wave, which takes at most 512"
        )
        why = f"kernel {compiled.name}: {compiled.one_warp}; ZLUDA_WAVE64_SLOW_MODE=0 puts two into a wave"
        raise UnsupportedError(what, why)
    return shape, extended


class AmdCode(Generic[K]):
    """Implements :class:`zluda.device.base.Code`."""

    def __init__(self, device: Loader[K], module: Module, globals_at: Mapping[str, int]) -> None:
        self.device, self.module = device, linked(module)
        self.kernel_names = tuple(module.kernel_names)
        self._variables = Variables(device.variables, device.functions, self.module, globals_at)
        self._kernels: dict[str, AmdKernel[K]] = {}

    def kernel(self, name: str) -> AmdKernel[K]:
        """Raises Error when the module has no such kernel, PtxError when its text is wrong."""
        if name not in self.kernel_names:
            known = ", ".join(self.kernel_names) or "none"
            raise Error(f"{self.module.file} has no kernel {name}; it has {known}")
        if name not in self._kernels:
            self._kernels[name] = AmdKernel(self, name)
        return self._kernels[name]

    def global_variable(self, name: str) -> tuple[int, int]:
        """Address and size in bytes of a ``.global`` or ``.const`` variable."""
        return self._variables[name]

    def address(self, symbol: str) -> int:
        """Where what a kernel names by ``symbol`` is."""
        return self._variables.address(symbol)

    def unload(self) -> None:
        """Free variables and code."""
        self._variables.free()
        for kernel in self._kernels.values():
            kernel.unload()
        self._kernels.clear()
