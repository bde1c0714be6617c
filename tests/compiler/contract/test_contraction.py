"""Contraction: as ptxas does it, and the same on every device."""

from __future__ import annotations

import gzip
import json
import struct
from pathlib import Path
from typing import Any

import numpy
import pytest

import zluda
from zluda.compiler.contract import contract_function
from zluda.compiler.contract.constants import bits_of
from zluda.compiler.contract.rewrite import rewrite
from zluda.compiler.contract.rule import decide
from zluda.compiler.unit import kernel_unit
from zluda.ptx import Function, parse_module
from zluda.ptx.printer import print_function
from zluda.ptx.types import ScalarType

CASES: list[dict[str, Any]] = json.loads(
    gzip.decompress((Path(__file__).parent / "data" / "ptxas_fusions.json.gz").read_bytes())
)
"""Kernels, and which operand of each floating ``add`` and ``sub`` ptxas 13.0 fused, read in machine code."""

HEAD = ".version 8.0\n.target {target}\n.address_size 64\n"
KERNEL = """.visible .entry k(.param .u64 p_in, .param .u64 p_out, .param .f32 p_c) {{
.reg .f32 %f<20>; .reg .f64 %d<9>; .reg .b32 %r<9>; .reg .b64 %in, %out; .reg .pred %p<3>;
ld.param.u64 %in, [p_in]; ld.param.u64 %out, [p_out];
ld.global.f32 %f1, [%in]; ld.global.f32 %f2, [%in+4]; ld.global.f32 %f3, [%in+8]; ld.global.f32 %f4, [%in+12];
{body}
st.global.f32 [%out], %f0;
ret;
}}
"""
DEVICES = ("cpu", "gfx1030", "gfx90a")
A = 1 + 2.0**-12  # A * A needs one bit more than f32 has
SQUARE = 1 + 2.0**-11  # what it rounds to


def _function(body: str, target: str = "sm_90") -> Function:
    return parse_module(HEAD.format(target=target) + KERNEL.format(body=body)).function("k")


def _contracted(body: str, mode: str = "auto") -> list[str]:
    """The instructions between the loads and the last store, as text."""
    function = contract_function(_function(body), mode)
    lines = [line.strip() for line in print_function(function).splitlines()]
    first = max(i for i, line in enumerate(lines) if line.startswith("ld.global.f32 %f4"))
    return lines[first + 1 : -3]


def _result(device: str, body: str, inputs: list[float], target: str = "sm_90", **options: Any) -> float:
    with zluda.open_device(device, **options) as opened:
        kernel = opened.load_module(HEAD.format(target=target) + KERNEL.format(body=body)).kernel("k")
        given = opened.array(numpy.array((inputs + [0.0] * 4)[:4], dtype=numpy.float32))
        out = opened.empty(1, numpy.float32)
        kernel.launch(grid=1, block=1, args=[given, out, numpy.float32(0)])
        return float(out.numpy()[0])


@pytest.mark.parametrize("kind", sorted({c["kind"] for c in CASES}))
def test_every_sum_is_fused_as_ptxas_fuses_it(kind: str) -> None:
    for case in (c for c in CASES if c["kind"] == kind):
        module = parse_module(case["ptx"])
        function = module.function(module.kernel_names[0])
        sums = [
            i
            for i, x in enumerate(function.instructions)
            if x.opcode in ("add", "sub") and x.type.kind == "f"
        ]
        fusions = decide(function).fusions
        assert [fusions[i].operand if i in fusions else None for i in sums] == case["fused"], case["ptx"]


@pytest.mark.parametrize("case", CASES[::25], ids=lambda case: case["kind"])
def test_the_outcome_is_ptx_in_which_nothing_is_left_open(case: dict[str, Any]) -> None:
    module = parse_module(case["ptx"])
    function = contract_function(module.function(module.kernel_names[0]))
    again = parse_module(HEAD.format(target="sm_90") + print_function(function)).function(function.name)
    assert not decide(again).fusions
    assert print_function(rewrite(again)) == print_function(again)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("mul.f32 %f5, %f1, %f1; add.f32 %f0, %f5, %f2;", 2.0**-11 + 2.0**-24),
        ("mul.f32 %f5, %f1, %f1; sub.f32 %f0, %f5, %f3;", 2.0**-11 + 2.0**-24),
        ("mul.f32 %f5, %f1, %f1; sub.f32 %f0, %f3, %f5;", -(2.0**-11) - 2.0**-24),
        ("mul.f32 %f5, %f1, %f1; neg.f32 %f6, %f5; sub.f32 %f0, %f2, %f6;", 2.0**-11 + 2.0**-24),
        ("mul.rn.f32 %f5, %f1, %f1; add.f32 %f0, %f5, %f2;", 2.0**-11),
        ("mul.f32 %f5, %f1, %f1; add.rn.f32 %f0, %f5, %f2;", 2.0**-11),
        ("mul.f32 %f5, %f1, %f1; add.f32 %f0, %f5, %f2; st.global.f32 [%in], %f5;", 2.0**-11),
        ("mul.f32 %f5, %f1, %f1; add.ftz.f32 %f0, %f5, %f2;", 2.0**-11),
        ("mul.f32 %f5, %f1, %f1; mov.f32 %f1, %f4; add.f32 %f0, %f5, %f2;", 2.0**-11 + 2.0**-24),
    ],
    ids=["add", "sub", "sub from", "neg", "mul.rn", "add.rn", "stored", "ftz", "factor overwritten"],
)
def test_a_product_and_a_sum_are_rounded_once_where_ptxas_would(
    device: str, body: str, expected: float
) -> None:
    assert _result(device, body, [A, -1.0, 1.0, 7.0]) == expected


def test_a_guarded_sum_keeps_its_guard() -> None:
    body = "setp.lt.f32 %p1, %f1, %f2; mov.f32 %f0, 0f00000000;"
    body += "mul.f32 %f5, %f1, %f1; @!%p1 add.f32 %f0, %f5, %f2;"
    assert _result("cpu", body, [A, -1.0]) == 2.0**-11 + 2.0**-24
    assert _result("cpu", body, [-4.0, 1.0]) == 0.0


def test_on_fuses_what_has_to_exist_too_and_off_fuses_nothing() -> None:
    body = "mul.f32 %f5, %f1, %f1; add.f32 %f0, %f5, %f2; st.global.f32 [%in], %f5;"
    assert any(line.startswith("fma.rn.f32 %f0, %f1, %f1, %f2") for line in _contracted(body, "on"))
    assert _contracted(body)[:2] == ["mul.rn.f32 %f5, %f1, %f1;", "add.rn.f32 %f0, %f5, %f2;"]
    function = _function("mul.f32 %f5, %f1, %f1; add.f32 %f0, %f5, %f2;")
    assert contract_function(function, "off") is function
    with pytest.raises(ValueError, match="contract='some'"):
        contract_function(function, "some")


@pytest.mark.parametrize("isolate", [False, True])
@pytest.mark.parametrize("device", ["cpu", "gfx1030"])
def test_a_device_is_opened_with_a_mode(device: str, isolate: bool) -> None:
    body = "mul.f32 %f5, %f1, %f1; add.f32 %f0, %f5, %f2;"
    kept = body + "st.global.f32 [%in], %f5;"
    once, twice = 2.0**-11 + 2.0**-24, 2.0**-11
    modes = {"auto": (once, twice), "on": (once, once), "off": (twice, twice)}
    for mode in ["off"] if isolate else modes:  # each of these is a process
        expected = modes[mode]
        for text, value in zip((body, kept), expected, strict=True):
            assert _result(device, text, [A, -1.0], contract=mode, isolate=isolate) == value


def test_a_module_for_a_debugger_is_left_alone() -> None:
    body = "mul.f32 %f5, %f1, %f1; add.f32 %f0, %f5, %f2;"
    for target, opcode in (("sm_90", "fma"), ("sm_90, debug", "mul")):
        module = parse_module(HEAD.format(target=target) + KERNEL.format(body=body))
        opcodes = {i.opcode for i in kernel_unit(module, "k", (1, 1, 1)).kernel.instructions}
        assert opcode in opcodes
        assert ("fma" in opcodes) == (target == "sm_90")


def test_functions_are_contracted_with_the_kernel_that_calls_them() -> None:
    body = ".reg .f32 %m; mul.f32 %m, %a, %a; add.f32 %d, %m, %a; ret;"
    called = f".func (.reg .f32 %d) f(.reg .f32 %a) {{ {body} }}\n"
    module = parse_module(HEAD.format(target="sm_90") + called + KERNEL.format(body="call (%f0), f, (%f1);"))
    unit = kernel_unit(module, "k", (1, 1, 1))
    assert "fma" in {i.opcode for i in unit.functions["f"].instructions}


# --- constants ---------------------------------------------------------------------------------------


def _hex(value: float) -> str:
    return f"0f{bits_of(value, ScalarType.F32):08X}"


@pytest.mark.parametrize(
    ("body", "value"),
    [
        (f"sin.approx.f32 %f0, {_hex(0.75)};", 0.6816387772560120),
        (f"mov.f32 %f5, {_hex(3.0)}; rcp.approx.ftz.f32 %f0, %f5;", 1 / 3),
        (f"mov.f32 %f5, {_hex(1.5)}; add.f32 %f6, %f5, %f5; lg2.approx.f32 %f0, %f6;", 1.584962500721156),
        (
            f"mov.b32 %r1, {bits_of(2.0, ScalarType.F32)}; mov.b32 %f5, %r1; rsqrt.approx.f32 %f0, %f5;",
            2**-0.5,
        ),
    ],
)
def test_an_approximation_of_a_constant_is_the_nearest_value(body: str, value: float) -> None:
    assert _result("cpu", body, []) == struct.unpack("<f", struct.pack("<f", value))[0]


def test_tanh_of_a_constant_is_the_units() -> None:
    assert any(line.startswith("tanh.approx") for line in _contracted(f"tanh.approx.f32 %f0, {_hex(0.5)};"))


@pytest.mark.parametrize(("compare", "fused"), [("lt", True), ("gt", True), ("le", False), ("eq", False)])
def test_what_is_chosen_by_a_number_below_itself_is_not_read(compare: str, fused: bool) -> None:
    """``x < x`` holds for no ``x``: so ``selp`` is its second operand, and the product has one use."""
    choice = f"setp.{compare}.f32 %p1, %f5, %f5; selp.f32 %f6, %f5, %f3, %p1;"
    lines = _contracted(f"mul.f32 %f5, %f1, %f2; {choice} add.f32 %f7, %f5, %f3; add.rn.f32 %f0, %f7, %f6;")
    assert any(line.startswith("fma.rn.f32") for line in lines) is fused


def test_a_quotient_by_a_constant_is_a_product_with_its_reciprocal() -> None:
    for form in ("approx.f32", "full.f32", "approx.ftz.f32", "full.ftz.f32"):
        ftz = ".ftz" if "ftz" in form else ""
        line = _contracted(f"div.{form} %f0, %f1, {_hex(3.0)};")[0]
        assert line.startswith(f"mul.rn{ftz}.f32 %f0, %f1, 0f3EAAAAAB") or "0F3EAAAAAB" in line.upper()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("form", ["approx.ftz", "approx", "full.ftz", "full"])
def test_a_quotient_is_fused_with_a_sum(device: str, form: str) -> None:
    apart = f"div.{form}.f32 %f5, %f1, %f2; add.rn{'.ftz' if 'ftz' in form else ''}.f32 %f0, %f5, %f3;"
    fused = f"div.{form}.f32 %f5, %f1, %f2; add{'.ftz' if 'ftz' in form else ''}.f32 %f0, %f5, %f3;"
    # 3 * RCP(3) is 1 + 2^-25 before rounding: only the fused sum shows it
    inverse = 0.3333333432674408
    assert _result(device, apart, [3.0, 3.0, -1.0]) == 0.0
    assert _result(device, fused, [3.0, 3.0, -1.0]) == 3 * inverse - 1


@pytest.mark.parametrize("device", DEVICES)
def test_a_fused_quotient_scales_its_operands(device: str) -> None:
    body = "div.full.f32 %f5, %f1, %f2; add.f32 %f0, %f5, %f3;"
    assert _result(device, body, [2.0**127, 2.0**127, 2.0]) == 3.0
    assert _result(device, body, [2.0**-130, 2.0**-130, 2.0]) == 3.0


@pytest.mark.parametrize("device", DEVICES)
def test_a_product_shifted_by_a_power_of_two_is_rounded_once(device: str) -> None:
    """The product alone is 2^-149 * 1.5, which rounds to 2^-148; four times that is not four times this."""
    body = "mul.f32 %f5, %f1, %f2; mul.f32 %f0, %f5, 0f40800000;"
    apart = "mul.rn.f32 %f5, %f1, %f2; mul.rn.f32 %f0, %f5, 0f40800000;"
    assert _result(device, body, [1.5, 2.0**-149]) == 2.0**-147 + 2.0**-148
    assert _result(device, apart, [1.5, 2.0**-149]) == 2.0**-146


# --- loops -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("step", "test", "fused"),
    [
        ("add.u32 %r1, %r1, 1;", "setp.lt.u32 %p1, %r1, 8;", True),
        ("add.s32 %r1, %r1, -1;", "setp.ne.s32 %p1, %r1, -3;", True),
        ("add.u32 %r1, %r1, 1;", "setp.lt.u32 %p1, %r1, %r2;", False),
        ("add.u32 %r1, %r1, 1;", "setp.lt.u32 %p1, %r1, 4000;", False),
        ("add.u32 %r1, %r1, 1; add.u32 %r1, %r1, 1;", "setp.lt.u32 %p1, %r1, 8;", False),
    ],
    ids=["up", "down", "unknown", "long", "two steps"],
)
def test_a_product_from_before_a_loop_that_is_unrolled_goes_into_its_sums(
    step: str, test: str, fused: bool
) -> None:
    """As ptxas 13.0 fuses it, or does not, in each of these."""
    body = f"""mov.u32 %r2, %tid.x; mul.f32 %f5, %f1, %f2; mov.f32 %f0, %f3; mov.u32 %r1, 0;
    L: add.f32 %f7, %f5, %f0; fma.rn.f32 %f0, %f7, %f4, %f3; {step} {test}
    @%p1 bra L;"""
    assert bool(decide(_function(body)).fusions) == fused
