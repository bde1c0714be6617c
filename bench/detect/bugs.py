"""The bugs that were written by hand: kinds that translators of GPU code have had."""

# ruff: noqa: E501 (a row is a line)
from __future__ import annotations

from bench.detect.support import Change
from zluda.records import dataclass

LOWERING, GENERATION, RUNTIME, HARDWARE, RECORD = (
    "lowering",
    "code generation",
    "runtime",
    "hardware unit",
    "record",
)


@dataclass(frozen=True, slots=True)
class Bug:
    """``changes`` are texts that are read otherwise when their modules are imported (``tests/support/seeding``).

    ``layer`` is what is at fault, ``instructions`` the PTX that it spoils: beginnings of instructions, empty
    where no instruction is at fault. ``program`` is what is replayed, on ``device``.
    """

    name: str
    program: str
    layer: str
    instructions: tuple[str, ...]
    changes: tuple[Change, ...]
    device: str = "gfx1030"


def _row(name: str, program: str, layer: str, instructions: str, module: str, *change: str, device: str = "gfx1030") -> Bug:  # fmt: skip
    return Bug(
        name, program, layer, tuple(instructions.split()), (Change(f"zluda.{module}", *change),), device
    )


_LANEWISE, _AMD, _EMULATOR = "compiler.lower", "compiler.amd", "device.amd.emulator"

BUGS = (
    # what all targets share
    _row("shuffle delta not masked", "shuffles", LOWERING, "shfl.sync.idx", f"{_LANEWISE}.warp",
         "by, limit, segment = b.and_(by, 31), ", "by, limit, segment = by, "),
    _row("clz of 64 bits counts the low word", "bits", LOWERING, "clz.b64", f"{_LANEWISE}.logic",
         'return b.resize(b.intrinsic("ctlz", x, False), "i32")',
         'return b.intrinsic("ctlz", b.resize(x, "i32"), False)'),
    _row("popc of 64 bits counts the low word", "bits", LOWERING, "popc.b64", f"{_LANEWISE}.logic",
         'return b.resize(b.intrinsic("ctpop", x), "i32")', 'return b.intrinsic("ctpop", b.resize(x, "i32"))'),
    _row("every rounding is to nearest", "rounding", LOWERING, "fma.rz fma.rm add.rp mul.rz", f"{_LANEWISE}.floating",
         'mode, ftz = inst.slots.get("rnd", "rn"), inst.has("ftz")\n    if mode not in rounding.MODES:',
         'mode, ftz = "rn", inst.has("ftz")\n    if mode not in rounding.MODES:'),
    _row("a root is a product with its reciprocal", "roots", LOWERING, "sqrt.rn sqrt.rz", f"{_LANEWISE}.floating",
         'nearest = b.intrinsic("sqrt", x)', 'nearest = b.fmul(x, b.fdiv(1.0, b.intrinsic("sqrt", x)))'),
    _row("a quotient is a product with the reciprocal", "roots", LOWERING, "div.rn", f"{_LANEWISE}.floating",
         "nearest = b.fdiv(x, y)", "nearest = b.fmul(x, b.fdiv(1.0, y))"),
    _row("division by a constant rounds down", "integers", LOWERING, "div.s32", f"{_LANEWISE}.integer",
         "return b.sdiv(x, y) if signed else b.udiv(x, y)",
         "return b.add(b.sdiv(x, y), b.ashr(x, x.width - 1)) if signed else b.udiv(x, y)"),
    _row("addc forgets the carry", "integers", LOWERING, "addc", f"{_LANEWISE}.integer",
         "total = b.add(partial, b.zext(carry, x.type))", "total = partial"),
    _row("subnormals flushed without .ftz", "subnormals", LOWERING, "add.rn.f32 mul.rn.f32 fma.rn.f32",
         f"{_LANEWISE}.floating", 'result = _nearest(b, op, xs)\n        if not ftz:\n            return result',
         'result = _nearest(b, op, xs)\n        if not ftz:\n            return rounding.flush(b, result)'),
    _row("cvt.sat does not clamp from above", "conversions", LOWERING, "cvt.sat", f"{_LANEWISE}.convert",
         "if high < source_high:", "if high < source_high and signed and destination.kind == source.kind:"),
    _row("cvt.rni rounds towards zero", "conversions", LOWERING, "cvt.rni", f"{_LANEWISE}.convert",
         '"rni": "roundeven"', '"rni": "trunc"'),
    _row("unordered comparisons are ordered", "halves", LOWERING, "setp.ltu.f16", f"{_LANEWISE}.compare",
         '**{f"{name}u": f"u{name}"', '**{f"{name}u": f"o{name}"'),
    _row("max.NaN loses NaN", "halves", LOWERING, "max.NaN.f16", f"{_LANEWISE}.floating",
         'intrinsic = f"{name}imum" if inst.has("NaN") else f"{name}imumnum"', 'intrinsic = f"{name}imumnum"'),
    _row("atomic maximum is unsigned", "atomics", LOWERING, "atom.shared.max.s32", f"{_LANEWISE}.read_modify_write",
         '("max", "s"): "max"', '("max", "s"): "umax"'),
    _row("parameters by value are not aligned", "structures", LOWERING, "ld.param", "compiler.layout",
         "offset = round_up(offset, max(p.align, 1))", "offset = round_up(offset, min(max(p.align, 1), 4))"),
    # AMD's own operations
    _row("vote ignores the member mask", "votes", LOWERING, "vote.sync.ballot", f"{_AMD}.warp",
         "return one(bits if members is None else f.b.and_(bits, members.parts[0]))", "return one(bits)"),
    _row("shuffle across the halves of a wave", "shuffles", LOWERING, "shfl", f"{_AMD}.machine",
         "if self.two_warps:\n            lane = f.b.or_(lane, f.b.and_(self.hardware_lane(f), 32))",
         "if self.two_warps:\n            lane = f.b.xor(lane, 32)", device="gfx90a"),
    _row("a barrier does not wait", "barriers", LOWERING, "barrier.sync", f"{_AMD}.barriers",
         'f.b.call("llvm.amdgcn.s.barrier", [])', "pass"),
    _row("the number of a barrier is ignored", "partners", LOWERING, "barrier.sync barrier.arrive", f"{_AMD}.barriers",
         "number, count = f.b.and_(identifier.parts[0], _NUMBERS - 1), threads.parts[0]",
         'number, count = constant("i32", 0), threads.parts[0]'),
    _row("f32 subnormals are flushed by the kernel's mode", "subnormals", LOWERING, "add.rn.f32 mul.rn.f32 fma.rn.f32", f"{_AMD}.compile",
         'f"attributes #1 = {{ convergent nounwind {unread} {attributes} }}"',
         """f'attributes #1 = {{ convergent nounwind "denormal-fp-math-f32"="preserve-sign" {unread} {attributes} }}'"""),
    _row("the thread's mode of subnormals is another's", "subnormals", LOWERING, "add.rn.f32 mul.rn.f32 fma.rn.f32", "compiler.cpu.compile",
         "    b = Builder(unit.ir)\n    if unit.uses_fibers:",
         '    b = Builder(unit.ir)\n    unit.ir.declare("llvm.x86.sse.ldmxcsr", "void (ptr)")\n'
         '    b.emit("%mxcsr = alloca i32")\n    b.emit("store i32 40896, ptr %mxcsr")\n'
         '    b.emit("call void @llvm.x86.sse.ldmxcsr(ptr %mxcsr)")\n    if unit.uses_fibers:', device="cpu"),
    _row("stores at some offsets are 4 bytes off", "integers", LOWERING, "st.global", f"{_AMD}.memory",
         "kind = self.spaces[space]\n", 'kind = self.spaces[space]\n            offset ^= 4 if space == "global" and offset >= 32 else 0\n'),
    # LLVM
    _row("arithmetic shifts fill with zeros", "bits", GENERATION, "shr.s32 bfind.s32 bfe.s32", f"{_AMD}.llvm",
         "else passes, level=level)\n    return module",
         'else passes, level=level)\n    return parse(str(module).replace(" ashr i32", " lshr i32")) if level else module'),
    _row("products are sums", "rounding", GENERATION, "mul.rn.f32", f"{_AMD}.llvm",
         "else passes, level=level)\n    return module",
         'else passes, level=level)\n    return parse(str(module).replace(" fmul float", " fadd float")) if level else module'),
    # what surrounds kernels
    _row("a fill writes another value", "bits", RUNTIME, "", "driver.translated.memory",
         "pattern = (value & ((1 << 8 * width) - 1))", "pattern = (value & ((1 << 8 * width) - 3))"),
    _row("a copy on the device stops short", "rounding", RUNTIME, "", "driver.translated.memory",
         "self._state.device.copy(destination, source, size)", "self._state.device.copy(destination, source, size - 64)"),
    _row("a copy to the device stops short", "doubles", RUNTIME, "", "driver.translated.memory",
         "self._state.device.write(destination, data)", "self._state.device.write(destination, bytes(data)[:-32])"),
    _row("a copy to the host stops short", "integers", RUNTIME, "", "driver.translated.memory",
         "return self._do(lambda: self._state.device.read(source, size))",
         "return self._do(lambda: self._state.device.read(source, size - 4)) + bytes(4)"),
    _row("variables without a value are not zeroed", "globals", RUNTIME, "", "device.placement",
         'bytearray(variable.initializer or b"").ljust(size, b"\\0")',
         'bytearray(variable.initializer or b"").ljust(size, b"\\xa5")'),
    _row("the oldest image of a fatbin is taken", "images", RUNTIME, "", "device.images",
         "    if best is None:\n        best = min(", "    if best is not None:\n        best = min("),
    _row("texels beyond a border are the last ones", "corpus/textures", RUNTIME, "", "driver.translated.resources",
         "(Address(mode) for mode in texture.address_modes)",
         "(Address(1 if mode == 3 else mode) for mode in texture.address_modes)"),
    # what executes instructions
    _row("v_bfrev_b32 forgets the lowest bit", "bits", HARDWARE, "brev", f"{_EMULATOR}.table.vector_integer",
         "D.u32 = reverse(S0.u32)", "D.u32 = reverse(S0.u32 | 1)"),
    _row("v_mul_hi_u32 is signed", "integers", HARDWARE, "mul.hi.u32 div.u32", f"{_EMULATOR}.table.vector_integer",
         "D.u32 = mul_hi(S0.u32, S1.u32)", "D.i32 = mul_hi(S0.i32, S1.i32)"),
    _row("v_max_u32 is signed", "integers", HARDWARE, "max.u32", f"{_EMULATOR}.table.vector_integer",
         "v_max_u32                               | D.u32 = larger(S0.u32, S1.u32)",
         "v_max_u32                               | D.i32 = larger(S0.i32, S1.i32)"),
    _row("v_exp_f32 is off by 2^-12", "approximations", HARDWARE, "ex2.approx", f"{_EMULATOR}.approximate",
         '"exp2": elementary.exp2,', '"exp2": lambda b, x: b.fmul(elementary.exp2(b, x), 1.000244140625),'),
    _row("MODE is what another kernel left", "subnormals", HARDWARE, "add.rn.f32 mul.rn.f32 fma.rn.f32", f"{_EMULATOR}.lift",
         "self.modes = {kernel.address: kernel.descriptor.float_mode}",
         "self.modes = {kernel.address: kernel.descriptor.float_mode & ~0x30}"),
    # the trace
    Bug("a byte of the record is not as it was", "damaged/integers", RECORD, (), ()),
)  # fmt: skip
"""The last changes no source: the trace is damaged (:func:`bench.detect.programs.record`)."""
