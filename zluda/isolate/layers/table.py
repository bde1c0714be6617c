"""The decision table: what was seen, and which layer that speaks against. The first row that fits decides.

Facts are words. Of each run there is one: ``cpu holds``, ``cpu fails``, or ``cpu untold`` where it could not
be judged or was not at hand. The runs, each of the one launch from its recorded inputs:

``device``     where it went wrong, with the numerics that it had
``exact``      there, with exact models of NVIDIA's units (``--numerics nvidia``)
``cuda``       NVIDIA's driver and GPU, with the recorded code
``nvptx``      NVIDIA's GPU, with what this lowering makes of the PTX
``interpreter``  the PTX as it stands, executed without the compiler
``cpu``        the CPU, exact; ``cpu native``: with native numerics
``emulator``   an emulated AMD GPU, exact: the device's own target, where that is an AMD GPU
``hip``        an AMD GPU, exact
``others``     emulated GPUs of other generations, exact: ``others hold``, ``others fail``, ``others part``
``plain``      the device, exact, its code hardly optimised (``ZLUDA_OPTIMIZATION_LEVEL=0``)

The other facts:

``stream fails``, ``stream inherits``               the whole replay on the device
``record proved``, ``record unproved``              by ``zluda trace --verify``, or here by ``cuda``
``record contradicts``                              a later copy delivered other bytes than the record has
``on cpu``, ``on emulator``, ``on hip`` …           the device's kind
``is a copy``, ``dies``, ``unsupported``            the suspect; crash or hang; not translated
``translation refused``, ``emulation refused``      LLVM does not take the compiler's, the emulator's IR
``writes part``                                     a copy or fill before it leaves other bytes than on record
``memory parts``                                    the record's memory, put in place, reads otherwise
``objects part``                                    a module or texture is made otherwise than asked for
``rows hold``, ``rows fail``                        the emulator executes the kernel's AMD instructions as
                                                    AMD's pseudo-code says, as far as it tells; one otherwise
``varies``                                          its kernel's results depend on the order of threads
``alike``                                           the CPU and the AMD code leave the very same wrong bytes
``interpreter alike``                               the CPU and the interpreter leave the same wrong bytes
``needs scheduling``                                a hang of threads that wait for others of their warp
``shared seam``, ``own seam``                       the first instruction that differs is lowered by what all
                                                    targets share, or by the target's own operations
"""

from __future__ import annotations

from collections.abc import Set

from zluda.diff.blame import Layer, Sure
from zluda.records import dataclass

VERIFY = "an NVIDIA GPU, to run the record on: zluda trace --verify, or zluda isolate where one is"
EMULATOR = "the emulator: pip install 'zluda[emulator]'"
PSEUDOCODE = "AMD's pseudo-code of its instructions: pip install 'zluda[isolate]'"
AMD_GPU = "an AMD GPU: zluda isolate --device hip:0"
NOISE = "what NVIDIA varies: zluda replay --device cuda:0 --learn-noise, on the GPU that recorded it"
CPU = "a CPU run of the launch that can be judged"


@dataclass(frozen=True, slots=True)
class Row:
    """Where all facts in ``when`` were seen, the layer is this one; ``needs`` is what would make it surer."""

    when: frozenset[str]
    layer: Layer
    sure: Sure
    reason: str
    needs: str = ""

    def fits(self, facts: Set[str]) -> bool:
        return self.when <= facts


def _row(when: str, layer: Layer, sure: Sure, reason: str, *, needs: str = "") -> Row:
    """Facts are written with commas between them."""
    return Row(frozenset(word.strip() for word in when.split(",")), layer, sure, reason, needs)


_R, _L, _G, _T, _H = (
    Layer.RECORD,
    Layer.LOWERING,
    Layer.CODE_GENERATION,
    Layer.RUNTIME,
    Layer.HARDWARE,
)
_SURE, _LIKELY = Sure.CERTAIN, Sure.LIKELY

ROWS: tuple[Row, ...] = (
    # the device's memory, and what the driver makes
    _row(
        "exact fails, memory parts",
        _T,
        _SURE,
        "the record's memory before it, put into the device's memory, does not read as it was put",
    ),
    _row(
        "exact fails, objects part",
        _T,
        _SURE,
        "what the driver made for it is not what was asked for",
    ),
    # the record itself
    _row(
        "cuda fails, varies",
        Layer.UNKNOWN,
        _LIKELY,
        "its results depend on the order of threads, and NVIDIA's own GPU does not come to what is on "
        "record either: noise that was not learnt, or the record",
        needs=NOISE,
    ),
    _row(
        "cuda fails",
        _R,
        _SURE,
        "NVIDIA's own GPU does not come to what is on record from what is on record before it",
    ),
    _row(
        "record contradicts",
        _R,
        _SURE,
        "a copy that the program made after it delivered other bytes than the record has",
    ),
    _row(
        "record unproved",
        _R,
        _LIKELY,
        "it did not come out as recorded either when the recording GPU ran it again",
    ),
    # nothing to blame it for
    _row(
        "device holds, stream fails, writes part",
        _T,
        _SURE,
        "from its recorded inputs it holds, and a call before it leaves other bytes than on record",
    ),
    _row(
        "device holds, is a copy, stream fails",
        _T,
        _LIKELY,
        "from the record's memory it delivers what NVIDIA delivered: a call before it left memory wrong",
    ),
    _row(
        "device holds, stream inherits",
        Layer.INPUTS,
        _SURE,
        "from its recorded inputs it holds",
    ),
    _row(
        "device holds, stream fails",
        _T,
        _LIKELY,
        "from its recorded inputs it holds: what came before it left memory, an object or an order wrong",
    ),
    _row(
        "device holds",
        Layer.NONE,
        _SURE,
        "from its recorded inputs it holds",
    ),
    # what was not run to its end
    _row(
        "unsupported",
        _L,
        _SURE,
        "it is not translated",
    ),
    _row(
        "translation refused",
        _L,
        _SURE,
        "LLVM refuses what it is translated to",
    ),
    _row(
        "emulation refused",
        _H,
        _SURE,
        "LLVM refuses what the emulator makes of its machine code",
    ),
    _row(
        "device untold",
        Layer.UNKNOWN,
        _LIKELY,
        "it could not be judged",
    ),
    _row(
        "is a copy",
        _T,
        _LIKELY,
        "it delivers other bytes than memory holds on record",
    ),
    _row(
        "dies, needs scheduling, cpu holds",
        _H,
        _SURE,
        "its threads wait for each other inside a warp, and AMD GPUs do not schedule threads apart",
    ),
    # approximate units
    _row(
        "device fails, exact holds, cpu native fails",
        _L,
        _LIKELY,
        "with exact models it holds, with native numerics it is outside its envelope on the CPU too: "
        "how approximate instructions are written for native numerics",
    ),
    _row(
        "on cpu, device fails, exact holds",
        _L,
        _LIKELY,
        "with exact models it holds: how approximate instructions are written for native numerics",
    ),
    _row(
        "device fails, exact holds, cpu native holds, on emulator",
        _H,
        _LIKELY,
        "with exact models it holds, and on the CPU with native numerics too: an approximate unit, as "
        "it is emulated, or how the target uses it",
    ),
    _row(
        "device fails, exact holds",
        _H,
        _LIKELY,
        "with exact models of NVIDIA's units it holds: an approximate unit is further off than its bound",
    ),
    # the same wrong bytes everywhere
    _row(
        "nvptx fails, cpu holds",
        _L,
        _LIKELY,
        "NVIDIA's GPU comes to something else with what the PTX is lowered to, and the CPU does not: "
        "NVPTX's part of it",
    ),
    _row(
        "nvptx fails",
        _L,
        _SURE,
        "NVIDIA's GPU comes to something else with what the PTX is lowered to",
    ),
    _row(
        "cpu fails, emulator fails, interpreter holds",
        _L,
        _SURE,
        "the PTX as it stands gives what is on record; the CPU and the AMD code do not, and they share the "
        "lowering",
    ),
    _row(
        "on cpu, cpu fails, emulator untold, interpreter holds",
        _L,
        _LIKELY,
        "the PTX as it stands gives what is on record, and the CPU does not; whether AMD code is wrong too "
        "could not be seen",
        needs=EMULATOR,
    ),
    _row(
        "cpu fails, emulator fails, alike, interpreter alike, record proved",
        _T,
        _LIKELY,
        "the CPU, the AMD code and the interpreter leave the same wrong bytes: what surrounds kernels, or "
        "what all three are told (which sums are fused, what texture units do)",
    ),
    _row(
        "cpu fails, emulator fails, alike, interpreter alike",
        _R,
        _LIKELY,
        "the CPU, the AMD code and the interpreter, which shares no lowering with them, leave the same "
        "bytes, and others than on record, which was not proved",
        needs=VERIFY,
    ),
    _row(
        "cpu fails, emulator fails, alike, record proved",
        _L,
        _SURE,
        "the CPU and AMD code leave the same wrong bytes, and they share nothing but the lowering; the "
        "record is proved",
    ),
    _row(
        "cpu fails, emulator fails, alike",
        _L,
        _LIKELY,
        "the CPU and AMD code leave the same wrong bytes, and they share the lowering; or the record is "
        "wrong, which was not proved",
        needs=VERIFY,
    ),
    _row(
        "cpu fails, emulator fails, record proved",
        _L,
        _LIKELY,
        "the CPU and AMD code are both wrong, in different ways, and share the lowering",
    ),
    _row(
        "cpu fails, emulator fails, varies",
        Layer.UNKNOWN,
        _LIKELY,
        "its results depend on the order of threads, and each device is wrong in its own way: noise that "
        "the record does not have, or the lowering",
        needs=NOISE,
    ),
    _row(
        "cpu fails, emulator fails",
        _L,
        _LIKELY,
        "the CPU and AMD code are both wrong, in different ways, and share the lowering; or the record "
        "is wrong, which was not proved",
        needs=VERIFY,
    ),
    # the CPU alone
    _row(
        "on cpu, cpu fails, emulator holds, plain holds",
        _G,
        _SURE,
        "AMD code is right, and so is the CPU's when LLVM hardly optimises",
    ),
    _row(
        "on cpu, cpu fails, emulator holds, own seam",
        _L,
        _LIKELY,
        "AMD code is right, and what differs first is lowered by the CPU's own operations",
    ),
    _row(
        "on cpu, cpu fails, emulator holds, plain fails",
        _L,
        _LIKELY,
        "AMD code is right, and the CPU's is wrong however LLVM optimises: the CPU's own part of the "
        "lowering (vectors, masks, what its code is set up with), or LLVM's machine code",
    ),
    _row(
        "on cpu, cpu fails, emulator holds",
        _G,
        _LIKELY,
        "AMD code is right, with the same lowering of what each lane computes: the CPU's machine code, or "
        "its vectors and masks",
    ),
    _row(
        "on cpu, cpu fails, record proved",
        _L,
        _LIKELY,
        "the CPU is wrong and the record is proved; whether AMD code is wrong too could not be seen",
        needs=EMULATOR,
    ),
    _row(
        "on cpu, cpu fails",
        Layer.UNKNOWN,
        _LIKELY,
        "the CPU is not as recorded, and nothing else could run it",
        needs=f"{EMULATOR}; {VERIFY}",
    ),
    # AMD GPUs: the machine against its emulator
    _row(
        "on hip, exact fails, emulator holds, dies",
        _T,
        _LIKELY,
        "the same machine code runs to its end, and right, in the emulator: how HIP loads or launches it",
    ),
    _row(
        "on hip, exact fails, emulator holds, stream fails",
        _T,
        _LIKELY,
        "the same machine code is right in the emulator: HIP's runtime (memory, parameters, order), or "
        "the GPU",
    ),
    _row(
        "on hip, exact fails, emulator holds",
        _H,
        _LIKELY,
        "the same machine code is right in the emulator: the GPU, or how HIP loads and launches",
    ),
    _row(
        "on emulator, exact fails, hip holds",
        _H,
        _SURE,
        "the same machine code is right on an AMD GPU: the emulator",
    ),
    # AMD code alone
    _row(
        "on emulator, cpu holds, emulator fails, rows fail",
        _H,
        _SURE,
        "the CPU is right, and the emulator executes an instruction of the kernel's AMD code otherwise than "
        "AMD's pseudo-code says",
    ),
    _row(
        "cpu holds, emulator fails, plain holds",
        _G,
        _SURE,
        "the CPU is right, and so is AMD code when LLVM hardly optimises",
    ),
    _row(
        "cpu holds, emulator fails, own seam",
        _L,
        _LIKELY,
        "the CPU is right, and what differs first is lowered by AMD's own operations (memory, warps, "
        "barriers, registers)",
    ),
    _row(
        "cpu holds, emulator fails, plain fails, others fail, shared seam, rows hold",
        _L,
        _LIKELY,
        "the CPU is right with the same lowering of what differs first, and the emulator executes the "
        "kernel's AMD instructions as AMD's pseudo-code says: what AMD code is set up with (modes, "
        "registers), or how LLVM selects it",
        needs=AMD_GPU,
    ),
    _row(
        "cpu holds, emulator fails, plain fails, others fail, shared seam",
        _H,
        _LIKELY,
        "what differs first is lowered as on the CPU, which is right; it is wrong on every target, "
        "optimised or not: how the emulator executes it, or how LLVM selects it",
        needs=f"{PSEUDOCODE}; {AMD_GPU}",
    ),
    _row(
        "cpu holds, emulator fails, others hold",
        _G,
        _LIKELY,
        "the CPU and other AMD targets are right with the same lowering: this target's machine code, or "
        "how the emulator executes it",
    ),
    _row(
        "cpu holds, emulator fails, others part",
        _G,
        _LIKELY,
        "the CPU and some AMD targets are right with the same lowering: machine code, or how the "
        "emulator executes it",
    ),
    _row(
        "cpu holds, emulator fails, others fail",
        _L,
        _LIKELY,
        "the CPU is right and every AMD target wrong: AMD's part of the lowering, or the emulator",
        needs=AMD_GPU,
    ),
    _row(
        "cpu holds, emulator fails",
        _G,
        _LIKELY,
        "the CPU is right with the same lowering: AMD's part of it, its machine code, or the emulator",
        needs=AMD_GPU,
    ),
    _row(
        "emulator fails, record proved",
        _L,
        _LIKELY,
        "AMD code is wrong and the record proved; whether the CPU is wrong too could not be seen",
        needs=CPU,
    ),
)

_NOTHING = Row(frozenset(), Layer.UNKNOWN, _LIKELY, "what was seen does not single out a layer", VERIFY)


def decide(facts: Set[str]) -> Row:
    """The row that facts decide for; one that cannot tell where none fits."""
    return next((row for row in ROWS if row.fits(facts)), _NOTHING)
