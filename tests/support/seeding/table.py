"""Faults by name: of the lowerings, LLVM's part, AMD's machine code, the emulator and the runtime."""

from __future__ import annotations

from seeding import Change

_LOWER, _AMD = "zluda.compiler.lower", "zluda.compiler.amd"
_EMULATOR = "zluda.device.amd.emulator.table"


def _native(unit: str, factor: float) -> Change:
    """One of AMD's approximate instructions that is off."""
    return Change(
        f"{_AMD}.approximate",
        'return lambda b, x: b.intrinsic(f"amdgcn.{name}", x)',
        'return lambda b, x: b.fmul(b.intrinsic(f"amdgcn.{name}", x), '
        f'{factor!r} if name == "{unit}" else 1.0)',
    )


FAULTS: dict[str, tuple[Change, ...]] = {
    "nothing": (),
    # what all targets share
    "add_is_sub": (
        Change(
            f"{_LOWER}.floating",
            'return b.binary(f"f{op}", xs[0], xs[1])',
            'return b.binary({"add": "fsub"}.get(op, f"f{op}"), xs[0], xs[1])',
        ),
    ),
    "fma_rounds_twice": (
        Change(
            f"{_LOWER}.floating",
            'return b.intrinsic("fma", *xs)\n    return b.binary',
            "return b.fadd(b.fmul(xs[0], xs[1]), xs[2])\n    return b.binary",
        ),
    ),
    "fma_rounds_down": (
        Change(
            f"{_LOWER}.floating",
            'mode, ftz = inst.slots.get("rnd", "rn"), inst.has("ftz")\n    if mode not in rounding.MODES:',
            'mode, ftz = "rm" if op == "fma" else inst.slots.get("rnd", "rn"), inst.has("ftz")\n'
            "    if mode not in rounding.MODES:",
        ),
    ),
    "square_root_is_off_by_one": (
        Change(
            f"{_LOWER}.approximate",
            'lanewise("sqrt")(_or_exact(floating.square_root))',
            'lanewise("sqrt")(lambda b, inst, operands: b.bitcast(b.add(as_bits(b, found := '
            "_or_exact(floating.square_root)(b, inst, operands), found.width), 1), found.type))",
        ),
    ),
    "reciprocal_square_root_is_off_by_one": (
        Change(
            f"{_LOWER}.mufu",
            "result = b.add(b.shl(b.sub(125, half), 23), b.lshr(_rsqrt_core(b, argument), 2))",
            "result = b.add(b.shl(b.sub(125, half), 23), b.add(b.lshr(_rsqrt_core(b, argument), 2), 1))",
        ),
    ),
    "shuffle_ignores_the_lane": (
        Change(
            f"{_LOWER}.warp",
            "f.read_bits(lane, 32), f.read_bits(clamp, 32)",
            'uniform(f.b.const("i32", 0)), f.read_bits(clamp, 32)',
        ),
    ),
    "ballot_is_inverted": (
        Change(f"{_LOWER}.warp", '"ballot": lambda: ayes,', '"ballot": lambda: b.xor(ayes, voters),'),
    ),
    "atomic_add_is_or": (Change(f"{_LOWER}.read_modify_write", '"add": "add",', '"add": "or",'),),
    "atomic_maximum_is_minimum": (
        Change(
            f"{_LOWER}.read_modify_write",
            '("max", "s"): "max", ("min", "u"): "umin", ("max", "u"): "umax"',
            '("max", "s"): "min", ("min", "u"): "umin", ("max", "u"): "umin"',
        ),
    ),
    "terms_are_rounded": (
        Change(
            f"{_LOWER}.tensor_step",
            'b.cast("fptosi", b.fmul(term.significand, scale), "i32")',
            'b.cast("fptosi", b.intrinsic("rint", b.fmul(term.significand, scale)), "i32")',
        ),
    ),
    "metadata_is_of_the_next_chunk": (
        Change(
            f"{_LOWER}.tensor_mma",
            "metadata_place(kind, self.op.k, half, chunk, self.selector)",
            "metadata_place(kind, self.op.k, half, chunk ^ 1, self.selector)",
        ),
    ),
    "matrices_are_not_turned": (
        Change(
            f"{_LOWER}.tensor_memory",
            "rows = _rows_of_halves(access, instruction)\n    registers = []",
            'rows = _rows_of_halves(access, __import__("dataclasses").replace(instruction, slots='
            '{name: word for name, word in instruction.slots.items() if name != "trans"}))\n'
            "    registers = []",
        ),
    ),
    "barrier_does_nothing": (
        Change(
            f"{_LOWER}.control",
            "    f.ops.require_whole_warp(f)\n    reduce =",
            "    return\n    reduce =",
        ),
    ),
    # AMD's and the CPU's own operations
    "amd_shuffle_takes_the_lane_beside": (
        Change(
            f"{_AMD}.warp",
            "one(self.from_lane(f, value.parts[0], chosen)), one(in_range)",
            "one(self.from_lane(f, value.parts[0], f.b.xor(chosen, 1))), one(in_range)",
        ),
    ),
    "amd_shuffle_takes_even_lanes": (
        Change(
            f"{_AMD}.warp",
            "one(self.from_lane(f, value.parts[0], chosen)), one(in_range)",
            "one(self.from_lane(f, value.parts[0], f.b.and_(chosen, 30))), one(in_range)",
        ),
    ),
    "native_power_is_off": (
        _native("exp2", 1 + 1e-4),
        Change(
            "zluda.compiler.cpu.approximate",
            'Row("polynomial", _FLUSHED, "0.96 ULP", unary(flushed(_exp2)))',
            'Row("polynomial", _FLUSHED, "0.96 ULP", '
            "unary(flushed(lambda b, x: b.fmul(_exp2(b, x), 1.0001))))",
        ),
    ),
    "native_logarithm_is_off": (_native("log", 1 + 1e-4),),
    "native_root_is_off": (_native("rsq", 1 - 1e-4),),
    # LLVM, and what it makes
    "optimiser_makes_differences_of_sums": (
        Change(
            f"{_AMD}.llvm",
            "else passes, level=level)\n    return module",
            "else passes, level=level)\n"
            '    return parse(str(module).replace(" fadd ", " fsub ")) if level else module',
        ),
    ),
    # the first v_add_f32 (VOP2, opcode 3) of a code object multiplies (opcode 7)
    "flipped_bit_in_gfx1030_code": (
        Change(
            f"{_AMD}.llvm",
            "    return bytes(emitted)\n",
            "    code = bytearray(emitted)\n"
            '    if options.target == "gfx1030" and options.kind == "obj":\n'
            "        sums = (at for at in range(0x100, len(code) - 3, 4) if code[at + 3] >> 1 == 3)\n"
            "        if (first := next(sums, None)) is not None:\n"
            "            code[first + 3] ^= 1 << 3\n"
            "    return bytes(code)\n",
        ),
    ),
    # the emulator
    "v_add_f32_subtracts": (
        Change(f"{_EMULATOR}.vector_float", "D.f32 = S0.f32 + S1.f32", "D.f32 = S0.f32 - S1.f32"),
    ),
    "v_and_b32_reads_one_source": (
        Change(
            f"{_EMULATOR}.vector_integer",
            "v_and_b32                               | D.u32 = S0.u32 & S1.u32",
            "v_and_b32                               | D.u32 = S1.u32 & S1.u32",
        ),
    ),
    "v_bfrev_b32_is_wrong_for_200": (
        Change(
            f"{_EMULATOR}.vector_integer",
            "D.u32 = reverse(S0.u32)",
            "D.u32 = select(S0.u32 == 200, reverse(S0.u32) ^ 4, reverse(S0.u32))",
        ),
    ),
    "v_bfrev_b32_is_wrong_for_some": (
        Change(
            f"{_EMULATOR}.vector_integer",
            "D.u32 = reverse(S0.u32)",
            "D.u32 = reverse(S0.u32) ^ (S0.u32 >> 2 & 1)",
        ),
    ),
    "v_lshl_add_u32_subtracts": (
        Change(
            f"{_EMULATOR}.vector_integer",
            "D.u32 = (S0.u32 << S1.u32) + S2.u32",
            "D.u32 = (S0.u32 << S1.u32) - S2.u32",
        ),
    ),
    # the runtime
    "fills_with_another_value": (
        Change(
            "zluda.driver.translated.memory",
            "pattern = (value & ((1 << 8 * width) - 1))",
            "pattern = ((value ^ 1) & ((1 << 8 * width) - 1))",
        ),
    ),
}
