"""What the compiler writes for NVIDIA GPUs: that ptxas takes it, and what is in it."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from zluda.compiler import compile_kernel
from zluda.compiler.nvptx.compile import ptx_text
from zluda.compiler.nvptx.surroundings import SYMBOLS
from zluda.compiler.nvptx.targets import target
from zluda.compiler.nvptx.unit import build_unit
from zluda.errors import DeviceError
from zluda.ptx import Module, parse_module
from zluda.tracefile import open_trace

ROOT = Path(__file__).resolve().parents[3]
TWELVE = ROOT / "bench" / "kernels" / "twelve.ptx"
DATA = ROOT / "tests" / "compiler" / "data"
HEADER = ".version 8.6\n.target sm_90\n.address_size 64\n"
PTXAS = shutil.which("ptxas")


def assembled(text: bytes, architecture: str, folder: Path) -> None:
    """Fails where ptxas, if there is one, does not take the text."""
    assert text.count(b".visible .entry") == 1
    if PTXAS is None:
        return
    path = folder / "written.ptx"
    path.write_bytes(text)
    command = [PTXAS, "-O0", "-arch", architecture, str(path), "-o", str(folder / "out.cubin")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def written(body: str, *, before: str = "", architecture: str = "sm_90", numerics: str = "nvidia") -> str:
    """The PTX made of a kernel ``k`` with one pointer ``%rd1``."""
    text = f"""{HEADER}{before}
.visible .entry k(.param .u64 p)
{{
    .reg .pred %p<8>; .reg .b16 %h<8>; .reg .b32 %r<8>; .reg .f32 %f<8>; .reg .b64 %rd<8>;
    ld.param.u64 %rd1, [p];
    {body}
    ret;
}}
"""
    unit = build_unit(parse_module(text), "k")
    unit.numerics = numerics
    return ptx_text(unit, architecture).decode()


class TestWhole:
    @pytest.mark.parametrize("name", parse_module(TWELVE.read_text()).kernel_names)
    def test_twelve_programs(self, name: str, tmp_path: Path) -> None:
        module = parse_module(TWELVE.read_text())
        assembled(compile_kernel(module, name, "sm_90").code, "sm_90", tmp_path)

    @pytest.mark.slow
    @pytest.mark.parametrize(
        "trace", sorted((ROOT / "corpus").glob("*/trace.bin")), ids=lambda p: p.parent.name
    )
    def test_the_corpus(self, trace: Path, tmp_path: Path) -> None:
        with open_trace(trace) as opened:
            texts = [text for m in opened.module_list if (text := opened.ptx(m)) is not None]
        assert texts
        for text in texts:
            every_kernel(parse_module(text), tmp_path)

    @pytest.mark.slow
    @pytest.mark.parametrize("path", sorted(DATA.glob("*.ptx")), ids=lambda p: p.stem)
    def test_features_tensor_cores_and_triton(self, path: Path, tmp_path: Path) -> None:
        every_kernel(parse_module(path.read_text(), file=path.name), tmp_path)


def every_kernel(module: Module, folder: Path) -> None:
    own = "a" if any(name.endswith("a") for name in module.target) else ""
    for name in module.kernel_names:
        assembled(compile_kernel(module, name, f"sm_90{own}").code, f"sm_90{own}", folder)


class TestPassedOn:
    @pytest.mark.parametrize(
        "instruction",
        [
            "shfl.sync.down.b32 %r2|%p1, %r1, 1, 31, -1;",
            "vote.sync.ballot.b32 %r2, %p1, -1;",
            "bar.sync 0;",
            "atom.global.add.u32 %r2, [%rd1+4], %r1;",
            "red.release.gpu.global.add.u32 [%rd1], %r1;",
            "ld.acquire.gpu.global.u32 %r2, [%rd1];",
            "ld.global.L1::no_allocate.v2.u32 {%r2, %r3}, [%rd1+8];",
            "st.volatile.global.u32 [%rd1], 7;",
            "fence.acq_rel.gpu;",
            "nanosleep.u32 20;",
            "setmaxnreg.inc.sync.aligned.u32 40;",
        ],
    )
    def test_it_stands_there_with_other_registers(self, instruction: str) -> None:
        setup = "ld.global.u32 %r1, [%rd1]; setp.eq.u32 %p1, %r1, 3;\n"
        target_name = "sm_90a" if "setmaxnreg" in instruction else "sm_90"
        text = written(f"{setup}{instruction} st.global.u32 [%rd1], %r2;", architecture=target_name)
        opcode = instruction.split()[0].rstrip(";")
        assert re.search(rf"^\s*(\{{.*)?{re.escape(opcode)}\b", text, re.MULTILINE)

    def test_plain_accesses_are_lowered(self) -> None:
        text = written("ld.global.nc.u32 %r1, [%rd1]; st.global.u32 [%rd1+4], %r1;")
        assert "ld.global.nc.b32" in text and "inline asm" not in text

    def test_a_barrier_does_not_move(self) -> None:
        text = written(
            "st.shared.u32 [s], 1; bar.sync 0; ld.shared.u32 %r1, [s+4]; st.global.u32 [%rd1], %r1;",
            before=".shared .align 4 .b8 s[8];",
        )
        assert text.index("st.shared") < text.index("bar.sync") < text.index("ld.shared")


class TestFloats:
    def test_nan_of_arithmetic_is_left_alone(self) -> None:
        body = "ld.global.f32 %f1, [%rd1]; fma.rn.f32 %f2, %f1, %f1, %f1; st.global.f32 [%rd1], %f2;"
        assert "setp.nan" not in written(body)

    def test_nan_that_was_moved_is_made_nvidias(self) -> None:
        body = "ld.global.b16 %h1, [%rd1]; cvt.ftz.f32.bf16 %f1, %h1; st.global.f32 [%rd1], %f1;"
        assert "setp.nan" in written(body)
        assert "setp.nan" not in written(body, numerics="native")

    def test_approximate_instructions_are_the_gpus(self) -> None:
        text = written("ld.global.f32 %f1, [%rd1]; ex2.approx.ftz.f32 %f2, %f1; st.global.f32 [%rd1], %f2;")
        assert "ex2.approx.ftz.f32" in text

    def test_what_is_rounded_twice_is_not_joined(self) -> None:
        body = "ld.global.f32 %f1, [%rd1]; mul.rn.f32 %f2, %f1, %f1; add.rn.f32 %f3, %f2, %f1;"
        text = written(f"{body} st.global.f32 [%rd1], %f3;")
        assert "mul.rn.f32" in text and "add.rn.f32" in text and "fma" not in text


class TestWhatIsDeclared:
    def test_variables_come_from_a_table_that_the_device_writes(self) -> None:
        body = "ld.global.u32 %r1, [g]; ld.const.u32 %r2, [c+4]; add.s32 %r3, %r1, %r2;"
        body += "st.global.u32 [%rd1], %r3;"
        variables = ".global .align 4 .b8 g[4];\n.const .align 4 .b8 c[8];"
        text = written(body, before=variables)
        assert re.search(rf"\.const \.align 8 \.b8 {SYMBOLS}\[16\]", text)
        assert text.count("ld.const.b64") == 2

    def test_directives(self) -> None:
        text = f"""{HEADER}
.visible .entry k(.param .u64 p) .maxntid 128, 1, 1 .minnctapersm 4 {{ ret; }}
"""
        made = ptx_text(build_unit(parse_module(text), "k"), "sm_90").decode()
        assert ".maxntid 128" in made and ".minnctapersm 4" in made

    @pytest.mark.parametrize("kept", [True, False])
    def test_loops_that_are_not_to_be_unrolled(self, kept: bool) -> None:
        pragma = '.pragma "nounroll";' if kept else ""
        body = f"""mov.u32 %r1, 0;
        LOOP: {pragma}
        st.global.u32 [%rd1], %r1; add.s32 %r1, %r1, 1; setp.lt.u32 %p1, %r1, 100; @%p1 bra LOOP;"""
        assert ('.pragma "nounroll"' in written(body)) == kept

    def test_parameters_keep_their_alignment(self) -> None:
        text = f"{HEADER}.visible .entry k(.param .align 64 .b8 m[128], .param .u32 n) {{ ret; }}"
        made = ptx_text(build_unit(parse_module(text), "k"), "sm_90").decode()
        assert re.search(r"\.param \.align 64 \.b8 k_param_0\[132\]", made)


class TestTargets:
    @pytest.mark.parametrize(
        ("name", "module", "version"),
        [("sm_70", (6, 0), 60), ("sm_90", (7, 0), 80), ("sm_90a", (8, 6), 86), ("sm_100f", (8, 6), 88)],
    )
    def test_the_version_is_no_newer_than_need_be(
        self, name: str, module: tuple[int, int], version: int
    ) -> None:
        assert target(name).ptx(module) == version

    @pytest.mark.parametrize("name", ["sm_35", "sm_80a", "sm_", "sm_90x", "sm_90f", "sm_90aa"])
    def test_others_are_refused_by_name(self, name: str) -> None:
        with pytest.raises(DeviceError, match=f"{name}.*no such NVIDIA target"):
            target(name)


class TestWhatLlvmLeavesOut:
    """NaNs that pass unchanged where an operation changes nothing else."""

    @pytest.mark.parametrize(
        "operation",
        [
            "mul.rn.f32 %f2, %f1, 0f3F800000;",
            "add.rn.f32 %f2, %f1, 0f80000000;",
            "sub.rn.f32 %f2, %f1, 0f00000000;",
            "div.rn.f32 %f2, %f1, 0fBF800000;",
        ],
    )
    def test_is_no_arithmetic(self, operation: str) -> None:
        assert "setp.nan" in written(f"ld.global.f32 %f1, [%rd1]; {operation} st.global.f32 [%rd1+4], %f2;")

    def test_what_is_not_left_out_is(self) -> None:
        body = "ld.global.f32 %f1, [%rd1]; sub.rn.f32 %f2, 0f3F800000, %f1; st.global.f32 [%rd1], %f2;"
        assert "setp.nan" not in written(body)
