"""Where the PTX of a module is that was handed over as machine code only.

Frameworks that compile at run time leave the PTX beside the machine code:

* Triton, and torch.compile through it, keep ``KERNEL.cubin`` and ``KERNEL.ptx`` in one directory of a cache
  (``TRITON_CACHE_DIR``, else ``~/.triton/cache``; Inductor: ``TORCHINDUCTOR_CACHE_DIR``, else
  ``torchinductor_USER`` in the directory for temporary files). The cubin that was loaded is known by its
  digest, so this PTX is what it was assembled from.
* ``ptxas``, run as a child, is given it (assemblers.py).
* XLA writes the PTX of each program it compiles to the directory of ``--xla_dump_to`` (``XLA_FLAGS``),
  without the machine code. It is taken where exactly one text there has the module's kernels, and then only
  called a sibling of what ran.
"""

from __future__ import annotations

import getpass
import os
import re
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path

from zluda.errors import Error
from zluda.ptx import elf
from zluda.records import dataclass
from zluda.trace.assemblers import Assembled
from zluda.trace.cubin_index import CubinIndex
from zluda.trace.triton import signatures
from zluda.tracefile import Fidelity

FORCE_JIT = ("CUDA_FORCE_PTX_JIT", "CUDA_FORCE_JIT")
"""Make the driver compile PTX although machine code for the GPU is beside it. Both did on an H200 with driver
580.159, tried with a fat binary whose PTX and machine code store different numbers.
"""

_ENTRY = re.compile(rb"^\s*(?:\.\w+\s+)*\.entry\s+([\w$]+)", re.MULTILINE)
_TARGET = re.compile(rb"^\s*\.target\s+sm_(\w+)", re.MULTILINE)
_DUMP = re.compile(r"--xla_dump_to=(\S+)")
_MOST_TEXTS = 10_000  # of a dump directory: one that is larger belongs to more than this program


def forces_jit(environment: Mapping[str, str]) -> bool:
    """Whether the driver is told to compile PTX although machine code is beside it."""
    return any(environment.get(name) == "1" for name in FORCE_JIT)


@dataclass(frozen=True)
class Found:
    """PTX text, where it was, and how near it is to what ran; ``signatures``: kernels' parameters, where the
    framework says what they are.
    """

    text: bytes
    architecture: str
    origin: str
    fidelity: Fidelity
    signatures: Mapping[str, list[str]] = field(default_factory=dict)


class PtxSources:
    """The places of one process's environment. Looked through again when something new is asked for, since
    they fill while the program runs.
    """

    def __init__(
        self, environment: Mapping[str, str] | None = None, assembled: Assembled | None = None
    ) -> None:
        """``assembled`` has what children of the program made."""
        self._assembled = assembled
        environment = os.environ if environment is None else environment
        self._caches = CubinIndex(_cache_directories(environment))
        dump = _DUMP.search(environment.get("XLA_FLAGS", ""))
        self._dump = Path(dump[1]) if dump else None
        self.forced_jit = forces_jit(environment)
        self._entries: dict[Path, frozenset[bytes]] = {}

    def find(self, cubin: bytes) -> Found | None:
        """The PTX of a cubin; None where it is in none of the places, or which one it is cannot be told."""
        return self._in_caches(cubin) or self._among_children(cubin) or self._in_dump(cubin)

    def _among_children(self, cubin: bytes) -> Found | None:
        text = None if self._assembled is None else self._assembled.find(cubin)
        if text is None:
            return None
        return Found(text, _architecture(text), "what ptxas made it of, a child process", Fidelity.SAME_PTX)

    def _in_caches(self, cubin: bytes) -> Found | None:
        for path in self._caches.find(cubin):
            try:
                text = path.with_suffix(".ptx").read_bytes()
            except OSError:
                continue  # evicted while it was looked at, or kept without its PTX
            origin = f"beside the same machine code in {path.parent}"
            return Found(text, _architecture(text), origin, Fidelity.SAME_PTX, _triton_signatures(path))
        return None

    def _in_dump(self, cubin: bytes) -> Found | None:
        if self._dump is None:
            return None
        names = _kernels_of(cubin)
        texts = {}
        for path in sorted(self._dump.glob("*.ptx"))[:_MOST_TEXTS]:
            try:
                if path not in self._entries:
                    self._entries[path] = frozenset(_ENTRY.findall(path.read_bytes()))
                if names and names <= self._entries[path]:
                    texts[path.read_bytes()] = path
            except OSError:
                continue
        if len(texts) != 1:
            return None
        ((text, path),) = texts.items()
        return Found(
            text, _architecture(text), f"the only text in {path.parent} with its kernels", Fidelity.SIBLING
        )


def _triton_signatures(cubin: Path) -> Mapping[str, list[str]]:
    try:
        return signatures(cubin.with_suffix(".ttir").read_text("utf-8", "replace"))
    except OSError:
        return {}  # not Triton's, or kept without it


def _cache_directories(environment: Mapping[str, str]) -> list[Path]:
    home = Path(environment.get("HOME", "~")).expanduser()
    triton = environment.get("TRITON_CACHE_DIR") or str(
        Path(environment.get("TRITON_HOME", str(home))) / ".triton" / "cache"
    )
    # As Python's `tempfile` chooses it, which Inductor asks.
    told = (environment.get(name) for name in ("TMPDIR", "TEMP", "TMP"))
    temporary = next(filter(None, told), "/tmp")
    inductor = environment.get("TORCHINDUCTOR_CACHE_DIR") or f"{temporary}/torchinductor_{_user()}"
    return [Path(triton), Path(inductor)]


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # no entry in the password database, as in many containers
        return str(os.getuid())


def _kernels_of(cubin: bytes) -> frozenset[bytes]:
    """Names of a cubin's kernels: each has its code in a section of its own."""
    try:
        names = [section.name for section in elf.sections(cubin)]
    except Error:
        return frozenset()
    return frozenset(name[len(".text.") :].encode() for name in names if name.startswith(".text."))


def _architecture(text: bytes) -> str:
    target = _TARGET.search(text)
    return f"compute_{target[1].decode()}" if target else ""
