"""Objects put together: code and tables of each stay its own, and calls find what another defines."""

from __future__ import annotations

import ctypes
import itertools

import llvmlite.binding as llvm
import pytest

from zluda.compiler.cpu.llvm import FUNCTION_ATTRIBUTES, emit_object, target_machine
from zluda.compiler.relocatable import merge
from zluda.errors import Error

CALLER = """
declare i32 @scaled(i32)
@table = internal constant [4 x i32] [i32 1, i32 2, i32 3, i32 4]
define i32 @entry(i32 %x) {
  %place = getelementptr i32, ptr @table, i32 %x
  %value = load i32, ptr %place
  %result = call i32 @scaled(i32 %value)
  ret i32 %result
}
"""
SCALED = """
declare i32 @moved(i32)
@table = internal constant [4 x i32] [i32 10, i32 20, i32 30, i32 40]
define internal i32 @own(i32 %x) noinline { %y = mul i32 %x, 3  ret i32 %y }
define i32 @scaled(i32 %x) {
  %tripled = call i32 @own(i32 %x)
  %moved = call i32 @moved(i32 %tripled)
  %at = and i32 %x, 3
  %place = getelementptr i32, ptr @table, i32 %at
  %more = load i32, ptr %place
  %sum = add i32 %moved, %more
  ret i32 %sum
}
"""
MOVED = "define i32 @moved(i32 %x) { %y = add i32 %x, 7000  ret i32 %y }"

_number = itertools.count()


def _object(text: str) -> bytes:
    return emit_object(f"{text}\n{FUNCTION_ATTRIBUTES}\n")


def _called(code: bytes, *arguments: int) -> int:
    builder = llvm.JITLibraryBuilder().add_object_img(code).add_current_process().export_symbol("entry")
    library = builder.link(llvm.create_lljit_compiler(target_machine()), f"merged-{next(_number)}")
    result: int = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)(library["entry"])(*arguments)
    return result


@pytest.mark.parametrize("order", [(SCALED, MOVED), (MOVED, SCALED)])
def test_calls_go_from_object_to_object_and_local_names_stay_apart(order: tuple[str, ...]) -> None:
    merged = merge(_object(CALLER), [_object(text) for text in order])
    expected = [3 * (x + 1) + 7000 + (10, 20, 30, 40)[(x + 1) & 3] for x in range(4)]
    assert [_called(merged, x) for x in range(4)] == expected


def test_what_is_merged_can_be_merged_again() -> None:
    merged = merge(merge(_object(CALLER), [_object(SCALED)]), [_object(MOVED)])
    assert _called(merged, 0) == 3 + 7000 + 20


def test_two_definitions_of_a_name_are_refused() -> None:
    with pytest.raises(Error, match="two objects define moved"):
        merge(_object(CALLER), [_object(SCALED), _object(MOVED), _object(MOVED)])


@pytest.mark.parametrize("data", [b"", b"\x7fELF", b"no object at all" * 8])
def test_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(Error, match="not an ELF object"):
        merge(_object(MOVED), [data])


def test_a_name_made_local_can_be_defined_again() -> None:
    first = merge(_object(CALLER), [_object(SCALED), _object(MOVED)], local=frozenset({"moved"}))
    assert _called(first, 0) == 3 + 7000 + 20
    with pytest.raises(Error, match="two objects define scaled"):
        merge(first, [_object(MOVED), _object(SCALED)])
