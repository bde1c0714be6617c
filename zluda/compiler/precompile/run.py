"""Compiling modules' kernels into the cache, each in a process of its own, and what became of each."""

from __future__ import annotations

import hashlib
import importlib
import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any

from zluda.compiler import apart, cache, compile_kernel
from zluda.compiler.cache.store import Store
from zluda.compiler.precompile.sources import Shape, Source
from zluda.compiler.target import CompiledKernel, Dim3, Together
from zluda.errors import Error
from zluda.ptx import Module, parse_module
from zluda.records import dataclass

Progress = Callable[[int, int], None]
"""Called with (kernels done, kernels in all)."""

DEFAULT_BLOCK: Dim3 = (256, 1, 1)


@dataclass(frozen=True, slots=True)
class Task:
    """One kernel for one target; the shape's block matters to the CPU alone. ``module`` counts sources."""

    module: int
    kernel: str
    target: str
    shape: Shape
    numerics: str


@dataclass(frozen=True, slots=True)
class KernelResult:
    """What became of a kernel: ``status`` is ``compiled``, ``cached``, or a failure's kind, with a reason.

    ``code`` is a digest of the machine code; of the compiler's version too, where the code calls functions
    that are compiled apart from it.
    """

    kernel: str
    target: str
    block: Dim3 | None
    status: str
    seconds: float = 0.0
    reason: str = ""
    cluster: Dim3 | None = None
    code: str = ""

    @property
    def failed(self) -> bool:
        return self.status not in ("compiled", "cached")


@dataclass(slots=True)
class ModuleResult:
    """One module: its kernels, or the problem that kept all of it from being compiled."""

    name: str
    problem: str = ""
    kernels: list[KernelResult] = field(default_factory=list)

    @property
    def failed(self) -> bool:
        return bool(self.problem) or any(k.failed for k in self.kernels)

    def counts(self) -> Counter[str]:
        """How many kernels came to which status."""
        return Counter(k.status for k in self.kernels)

    def as_dict(self) -> dict[str, Any]:
        """For ``--json``."""
        kernels = [
            {
                "kernel": k.kernel,
                "target": k.target,
                "block": k.block,
                "cluster": k.cluster,
                "status": k.status,
                "seconds": round(k.seconds, 4),
                "reason": k.reason,
                "code": k.code,
            }
            for k in self.kernels
        ]
        return {"module": self.name, "problem": self.problem, "kernels": kernels}


class _Watched:
    """The store, and whether it had what it was asked for. What it cannot keep fails (Error)."""

    def __init__(self, behind: Store) -> None:
        self._behind, self.hit = behind, False

    def get(self, key: str) -> bytes | None:
        found = self._behind.get(key)
        self.hit = found is not None
        return found

    def put(self, key: str, payload: bytes, *, label: str = "") -> None:
        self._behind.keep(key, payload, label=label)


def precompile(
    sources: Iterable[Source],
    targets: Mapping[str, str],
    *,
    blocks: Sequence[Dim3] = (DEFAULT_BLOCK,),
    every_kernel: bool = False,
    jobs: int = 0,
    progress: Progress | None = None,
) -> list[ModuleResult]:
    """Compile all kernels of all sources for all targets; ``jobs`` at once (0: one a processor).

    ``targets`` maps each target to its numerics. For the CPU, ``blocks`` are the shapes of kernels that
    neither a trace nor ``.reqntid`` gives one; ``every_kernel`` compiles a trace's other kernels as well.
    Nothing that fails keeps the rest from being compiled. Raises Error where there is no cache to fill,
    DeviceError for an unknown target.
    """
    store = cache.current()
    if not isinstance(store, Store):
        raise Error(
            "there is no kernel cache to fill: ZLUDA_CACHE_POLICY is off, or its directory cannot be made"
        )
    _set_up(targets)
    results: list[ModuleResult] = []
    modules: dict[int, Module] = {}
    tasks: list[Task] = []
    for number, source in enumerate(sources):
        module, problem = _module(source)
        results.append(ModuleResult(source.name, problem))
        if module is not None:
            modules[number] = module
            tasks += _tasks(number, module, source, targets, blocks, every_kernel)

    def work(task: Task) -> bytes:
        watched = _Watched(store)
        began = time.perf_counter()
        with cache.using(watched):
            made = _compile(modules[task.module], task)
        seconds = time.perf_counter() - began
        return json.dumps([watched.hit, seconds, _code_digest(modules[task.module], made)]).encode()

    for done, (task, outcome) in enumerate(apart.each_apart(tasks, work, jobs=jobs), 1):
        results[task.module].kernels.append(_result(task, outcome))
        if progress is not None:
            progress(done, len(tasks))
    for result in results:
        result.kernels.sort(key=lambda k: (k.kernel, k.target, k.block or (), k.cluster or ()))
    return results


def _code_digest(module: Module, made: CompiledKernel) -> str:
    from zluda.compiler.cache.key import compiler_version
    from zluda.compiler.services import compiled_apart

    digest = hashlib.blake2b(made.code, digest_size=16)
    digest.update(repr((made.symbols, made.shared_bytes, made.dynamic_shared_offset, made.refusals)).encode())
    if compiled_apart(module):
        digest.update(compiler_version().encode())
    return digest.hexdigest()


def _compile(module: Module, task: Task) -> CompiledKernel:
    wave_size = 0
    if task.target != "cpu":
        from zluda.compiler.amd.targets import default_wave_size, target_id

        wave_size = default_wave_size(target_id(task.target).target)
    return compile_kernel(
        module,
        task.kernel,
        task.target,
        block=task.shape.block,
        wave_size=wave_size,
        numerics=task.numerics,
        together=task.shape.together,
    )


def _set_up(targets: Iterable[str]) -> None:
    """What is done once, before the first fork, so that no process does it again."""
    cache.prepare()
    importlib.import_module("zluda.compiler.lower.families")
    for target in targets:
        importlib.import_module(f"zluda.compiler.{'cpu' if target == 'cpu' else 'amd'}.compile")
        if target == "cpu":
            from zluda.compiler.cpu.llvm import target_machine

            target_machine()
        else:
            from zluda.compiler.amd.targets import target_id

            target_id(target)


def _module(source: Source) -> tuple[Module | None, str]:
    """The module, or what is wrong with it."""
    if source.problem:
        return None, source.problem
    try:
        return parse_module(source.text, file=source.name), ""
    except Error as error:
        return None, str(error)


def _tasks(
    number: int,
    module: Module,
    source: Source,
    targets: Mapping[str, str],
    blocks: Sequence[Dim3],
    every_kernel: bool,
) -> Iterator[Task]:
    launched, given = source.launched, [Shape(block) for block in blocks]
    for kernel in module.kernel_names:
        if launched is not None and kernel not in launched and not every_kernel:
            continue
        shapes = _shapes(module, kernel, (launched or {}).get(kernel, given))
        for target, numerics in targets.items():
            for shape in _of_target(target, shapes):
                yield Task(number, kernel, target, shape, numerics)


def _of_target(target: str, shapes: Sequence[Shape]) -> list[Shape]:
    """As its devices tell them apart: the CPU not whether a grid is cooperative, AMD GPUs not by blocks."""
    if target == "cpu":
        told = [Shape(block, Together(together.cluster)) for block, together in shapes]
    else:
        told = [Shape(shapes[0].block, together) for _, together in shapes]
    return list(dict.fromkeys(told))


def _shapes(module: Module, kernel: str, otherwise: Sequence[Shape]) -> Sequence[Shape]:
    """With what the kernel's ``.reqntid`` and ``.reqnctapercluster`` say."""
    try:
        directives = module.function(kernel).directives
    except Error:
        return otherwise[:1]  # compiling it says what is wrong with it
    block, cluster = (_whole(directives.get(name, ())) for name in ("reqntid", "reqnctapercluster"))
    shapes = [
        Shape(block or shape.block, Together(shape.together.cluster or cluster, shape.together.cooperative))
        for shape in otherwise
    ]
    return list(dict.fromkeys(shapes))


def _whole(shape: Sequence[int]) -> Dim3 | None:
    """All three dimensions of a directive's shape; None for none."""
    if not shape:
        return None
    x, y, z = (*shape, 1, 1)[:3]
    return (x, y, z)


def _result(task: Task, outcome: apart.Outcome) -> KernelResult:
    block, cluster = task.shape.block if task.target == "cpu" else None, task.shape.together.cluster
    told = (task.kernel, task.target, block)
    if outcome.failure is not None:
        failure = outcome.failure
        return KernelResult(*told, failure.kind, reason=failure.reason, cluster=cluster)
    hit, seconds, code = json.loads(outcome.value)
    return KernelResult(*told, "cached" if hit else "compiled", seconds, cluster=cluster, code=code)
