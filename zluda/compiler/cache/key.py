"""What an entry is found by: a digest of all that decides its machine code."""

from __future__ import annotations

import functools
import hashlib
import importlib.resources
import importlib.resources.abc
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from zluda.compiler.cache.normal import normal_form

if TYPE_CHECKING:
    from zluda.compiler.unit import Unit

# What compiled code is made by: a change in any of these files may change the code.
_SOURCES = ("zluda.compiler", "zluda.numerics", "zluda.ptx")
_SUFFIXES = (".py", ".ll", ".json", ".npz", ".ptx")


def kernel_key(unit: Unit, target: str, options: Mapping[str, object]) -> str:
    """The key of a kernel's code for ``target``; ``options`` are all that compilation is told beside it."""
    told = [target, repr(sorted(options.items())), compiler_version()]
    host = [host_version()] if target == "cpu" else []
    return _digest(("kernel", *told, *host, *normal_form(unit)))


def host_key(kind: str, parts: Iterable[str | bytes]) -> str:
    """The key of other code for this host: ``parts`` are all it depends on but compiler and processor."""
    return _digest((kind, compiler_version(), host_version(), *parts))


def target_key(kind: str, parts: Iterable[str | bytes]) -> str:
    """The key of other code for another machine: ``parts`` name that too."""
    return _digest((kind, compiler_version(), *parts))


@functools.cache
def compiler_version() -> str:
    """Digest of the compiler's own sources, and LLVM's version."""
    return f"{source_digest(*_SOURCES)} {llvm_version()}"


def source_digest(*packages: str) -> str:
    """Digest of all that packages' files hold which may change the code that they make."""
    digest = hashlib.blake2b(digest_size=16)
    for package in packages:
        for path, data in sorted(_files(package)):
            digest.update(f"{path}\0{len(data)}\0".encode() + data)
    return digest.hexdigest()


@functools.cache
def llvm_version() -> str:
    """llvmlite's version and that of the LLVM inside."""
    import llvmlite
    import llvmlite.binding as llvm

    return f"llvmlite {llvmlite.__version__} LLVM {'.'.join(map(str, llvm.llvm_version_info))}"


@functools.cache
def host_version() -> str:
    """The processor that host code is for."""
    import llvmlite.binding as llvm

    features = llvm.get_host_cpu_features().flatten()
    return f"{llvm.get_process_triple()} {llvm.get_host_cpu_name()} {features}"


def _files(package: str) -> Iterator[tuple[str, bytes]]:
    pending: list[tuple[str, importlib.resources.abc.Traversable]] = [
        (package, importlib.resources.files(package))
    ]
    while pending:
        name, place = pending.pop()
        for child in place.iterdir():
            path = f"{name}/{child.name}"
            if child.is_dir():
                pending.append((path, child))
            elif child.name.endswith(_SUFFIXES):
                yield path, child.read_bytes()


def _digest(parts: Iterable[str | bytes]) -> str:
    """Each part with its length, so that no two lists of parts are one text."""
    digest = hashlib.blake2b(digest_size=32)
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.hexdigest()
