"""PTX modules on an AMD GPU: kernels compiled to code objects when they are first launched.

What loads a code object is the device's: the emulator, or AMD's HIP runtime.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from zluda.compiler import compile_kernel
from zluda.compiler.amd import slow
from zluda.compiler.amd.linker import link
from zluda.compiler.amd.special import WORKSPACE
from zluda.compiler.amd.unit import MAX_THREADS
from zluda.compiler.stops import REFUSAL
from zluda.compiler.target import APART, CompiledKernel, Together
from zluda.device.amd.clusters import ClusterMemory
from zluda.device.base import Dim3
from zluda.device.limits import MAX_SHARED_BYTES, validate
from zluda.device.modules import CompiledModule, CompiledOnLaunch
from zluda.device.placement import FunctionAddresses, VariableMemory
from zluda.device.refusals import RefusalCell
from zluda.device.together import arrangement, check_room
from zluda.errors import UnsupportedError
from zluda.ptx import Module
from zluda.records import dataclass

if TYPE_CHECKING:
    from zluda.compiler.unit import Unit

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


K = TypeVar("K")


@dataclass(frozen=True, slots=True)
class Dispatch(Generic[K]):
    """A launch as the machine sees it: the workgroup, the explicit kernarg segment, dynamic LDS in bytes."""

    compiled: CompiledKernel
    loaded: K
    block: Dim3
    parameters: bytes
    shared_bytes: int


class AmdKernel(CompiledOnLaunch, Generic[K]):
    """A kernel of an AMD GPU: a code object for each way of launching blocks together."""

    def __init__(self, code: AmdCode[K], name: str) -> None:
        super().__init__(code.module, name)
        self.code = code
        self._clusters = ClusterMemory(code.device.variables)
        self._loaded: dict[Together, tuple[CompiledKernel, LoadedCode[K]]] = {}

    def _unit(self) -> Unit:
        from zluda.compiler.amd.unit import build_unit

        return build_unit(self.module, self.name, "off")

    def load(self, together: Together = APART) -> tuple[CompiledKernel, K]:
        """Compile, link against the module's variables, and load. Raises PtxError or UnsupportedError."""
        if together not in self._loaded:
            device = self.code.device
            compiled = compile_kernel(
                self.module,
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


class AmdCode(CompiledModule[AmdKernel[K]], Generic[K]):
    """A module on an AMD GPU."""

    def __init__(self, device: Loader[K], module: Module, globals_at: Mapping[str, int]) -> None:
        super().__init__(device.variables, device.functions, module, globals_at)
        self.device = device

    def _kernel(self, name: str) -> AmdKernel[K]:
        return AmdKernel(self, name)
