"""What is inside a module image that an application handed to the driver."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

from zluda.errors import Error
from zluda.ptx import containers, parse_module
from zluda.ptx.elf import cubin_variables
from zluda.trace.assemblers import Assembled
from zluda.trace.provenance import PtxSources
from zluda.tracefile import SIGNATURES, Fidelity, ModuleKind
from zluda.tracefile.effects import FoundImage, ImageReader, ModuleContents

_KINDS = {
    containers.Container.PTX: ModuleKind.PTX,
    containers.Container.FATBIN: ModuleKind.FATBIN,
    containers.Container.CUBIN: ModuleKind.CUBIN,
    containers.Container.ELF: ModuleKind.ELF,
    containers.Container.UNKNOWN: ModuleKind.OTHER,
}


def image_reader(variables: Mapping[str, str], assembled: str | None) -> ImageReader:
    """What a recording reads modules with: for their PTX it looks where a program with this process's
    environment, and these variables, keeps it, and in the directory of what its children ``assembled``.
    """
    sources = PtxSources({**os.environ, **variables}, Assembled(Path(assembled)) if assembled else None)
    return lambda pieces, capability: read_module(pieces, capability, sources)


def read_module(
    pieces: list[bytes], compute_capability: int, sources: PtxSources | None = None
) -> ModuleContents:
    """The PTX that a device of this compute capability (90 for 9.0) would be given, and its variables; those
    of the machine code where there is no PTX.

    ``pieces`` are the images of one load, several where a wrapper pointed to several fat binaries. A damaged
    image is no error here: it is recorded as it is, and ``problem`` says what is wrong with it. PTX of
    machine code that was handed over alone is looked for in ``sources``.
    """
    contents = ModuleContents(kind=ModuleKind.OTHER, found=[], globals=[], fidelity=Fidelity.UNKNOWN)
    if pieces:
        contents.kind = _KINDS[containers.identify(pieces[0])]
    for ordinal, piece in enumerate(pieces):
        try:
            _read_piece(piece, ordinal, compute_capability, contents)
            if contents.fidelity is Fidelity.SIBLING and sources is not None and sources.forced_jit:
                contents.fidelity = Fidelity.SAME_PTX
        except Error as error:
            contents.problem = str(error)
    if sources is not None and contents.kind is ModuleKind.CUBIN and len(pieces) == 1:
        _look_elsewhere(pieces[0], sources, contents)
    return contents


def _look_elsewhere(cubin: bytes, sources: PtxSources, contents: ModuleContents) -> None:
    found = sources.find(cubin)
    if found is None:
        return
    contents.found.append(FoundImage(ModuleKind.PTX, found.text, found.architecture, found.origin))
    contents.fidelity = found.fidelity
    if found.signatures:
        told = json.dumps(dict(found.signatures)).encode()
        contents.found.append(FoundImage(ModuleKind.OTHER, told, SIGNATURES, "parameters' types, by Triton"))


def _read_piece(piece: bytes, ordinal: int, capability: int, contents: ModuleContents) -> None:
    kind = containers.identify(piece)
    if kind is containers.Container.UNKNOWN:
        return
    if kind is containers.Container.PTX:
        contents.fidelity = Fidelity.SAME_PTX
        contents.globals += _variables(piece)
        return
    image = containers.best_ptx(piece, capability)
    if image is None:  # PTX for newer GPUs only: this one runs machine code, a replay can translate the PTX
        image = min(containers.ptx_from(piece), key=lambda one: one.arch, default=None)
    if image is None:
        cubin = containers.best_cubin(piece, capability)
        contents.globals += cubin_variables(cubin) if cubin is not None else []
        return
    text = image.text.encode()
    origin = f"fat binary {ordinal}, PTX {image.ptx_version[0]}.{image.ptx_version[1]}"
    contents.found.append(FoundImage(ModuleKind.PTX, text, f"compute_{image.arch}", origin))
    contents.globals += _variables(text)
    native = any(entry.kind == containers.KIND_ELF for entry in containers.entries_of(piece))
    contents.fidelity = Fidelity.SIBLING if native else Fidelity.SAME_PTX


def _variables(text: bytes) -> list[str]:
    """Names of the module's variables in global and constant memory."""
    variables = parse_module(text).variables.values()
    return [v.name for v in variables if v.space in ("global", "const") and v.linkage != "extern"]
