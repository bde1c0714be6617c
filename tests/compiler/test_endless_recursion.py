"""Recursion without an end: found in the call graph, and stopped with the thread that went too far."""

from __future__ import annotations

import pytest

import zluda
from zluda.compiler.analysis.recursion import recursive
from zluda.errors import LaunchError

PTX = """
.version 8.0
.target sm_80
.address_size 64
.func down(.param .b32 n);
.func step(.param .b32 n)
{
    .reg .b32 %n;
    .reg .b64 %f;
    ld.param.b32 %n, [n];
    mov.u64 %f, down;
    {
    .param .b32 to;
    st.param.b32 [to], %n;
    call %f, (to), again;
    }
    ret;
    again: .callprototype _ (.param .b32 _);
}
.func down(.param .b32 n)
{
    .reg .b32 %n;
    .reg .pred %p;
    ld.param.b32 %n, [n];
    setp.eq.s32 %p, %n, 0;
    @%p ret;
    sub.s32 %n, %n, 1;
    {
    .param .b32 to;
    st.param.b32 [to], %n;
    call step, (to);
    }
    ret;
}
.visible .entry run(.param .b32 n)
{
    .reg .b32 %n, %x;
    .reg .pred %p;
    ld.param.b32 %n, [n];
    mov.u32 %x, %tid.x;
    setp.ne.u32 %p, %x, 37;
    @%p mov.b32 %n, 1;
    {
    .param .b32 to;
    st.param.b32 [to], %n;
    call down, (to);
    }
    ret;
}
"""


def test_it_ends_the_launch_and_names_the_thread() -> None:
    with zluda.open_device("cpu") as device:
        kernel = device.load_module(PTX).kernel("run")
        for _ in range(2):  # the device goes on
            kernel.launch(grid=2, block=64, args=[20])
            with pytest.raises(LaunchError, match="recursion beyond the stack") as failed:
                kernel.launch(grid=2, block=64, args=[-1])
            assert failed.value.kernel == "run" and failed.value.thread == (37, 0, 0)


@pytest.mark.parametrize(
    ("calls", "found"),
    [
        ({"a": {"b"}, "b": {"c"}, "c": set()}, ""),
        ({"a": {"a"}}, "a"),
        ({"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": {"printf"}}, "bc"),
        ({"a": {"b"}, "b": {"a", "c"}, "c": {"d"}, "d": {"c"}, "e": {"a"}}, "abcd"),
    ],
    ids=["a chain", "itself", "a loop within", "two loops"],
)
def test_functions_that_call_themselves(calls: dict[str, set[str]], found: str) -> None:
    assert recursive(calls) == set(found)
