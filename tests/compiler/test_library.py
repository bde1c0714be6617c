"""Texture functions compiled apart: each once, for many kernels."""

from __future__ import annotations

import pytest

from zluda.compiler import cache, library
from zluda.compiler.services import (
    compiled_apart,
    texture_callees,
    texture_functions,
    texture_library,
)
from zluda.compiler.unit import kernel_unit
from zluda.ptx import Module, parse_module

KERNEL = """
.version 8.0
.target sm_90
.address_size 64
.visible .entry {name}(.param .u64 out, .param .u64 handle)
{{
  .reg .b64 %rd<3>; .reg .f32 %f<6>;
  ld.param.u64 %rd1, [out]; ld.param.u64 %rd2, [handle];
  mov.f32 %f5, 0f3f000000;
  tex.2d.v4.f32.f32 {{%f1, %f2, %f3, %f4}}, [%rd2, {{%f5, %f5}}];
  st.global.f32 [%rd1], %f1;
  ret;
}}
"""


def _module(name: str) -> Module:
    return parse_module(KERNEL.format(name=name))


def test_a_kernel_is_compiled_without_what_it_samples_by() -> None:
    module = _module("sample")
    unit = kernel_unit(module, "sample", (32, 1, 1), outside=compiled_apart(module))
    assert set(unit.outside) == {"__zluda_tex_2d"} and not unit.functions
    assert unit.instructions < 30 < 500 < kernel_unit(module, "sample", (32, 1, 1)).instructions


def test_a_module_without_textures_has_nothing_compiled_apart() -> None:
    text = KERNEL.format(name="plain").replace(
        "tex.2d.v4.f32.f32 {%f1, %f2, %f3, %f4}, [%rd2, {%f5, %f5}]", ""
    )
    assert compiled_apart(parse_module(text.replace("; ;", ";"))) == frozenset()


def test_functions_of_a_module_s_own_are_not_the_library_s() -> None:
    own = "".join(
        f".visible .func {name}() {{ ret; }}\n" for name in ("__zluda_descriptor", "__zluda_tex_2d")
    )
    header = ".version 8.0\n.target sm_90\n.address_size 64\n"
    assert compiled_apart(parse_module(header + own)) == frozenset()


def test_every_function_of_the_library_is_known_by_name() -> None:
    assert texture_functions() == {
        n for n in texture_library().function_names if texture_library().defines(n)
    } - {"__zluda_nothing"}


@pytest.mark.parametrize("name", sorted(texture_functions()))
def test_a_function_apart_names_the_others_that_it_calls(name: str) -> None:
    unit = library.export(kernel_unit(texture_library(), "__zluda_nothing", (32, 1, 1)), name)
    assert list(unit.functions) == [name]
    assert set(unit.outside) <= texture_functions() - {name}
    assert unit.symbols == list(texture_library().variables)


def test_what_was_compiled_is_not_compiled_again() -> None:
    made = []

    def make() -> library.LibraryFunction:
        made.append(1)
        return library.LibraryFunction("f", b"code", ("a", "b"), ("g",), '"amdgpu-no-queue-ptr"')

    with cache.using(None):
        first = library.library_function("test key", "f", make, label="nothing")
        assert library.library_function("test key", "f", make, label="nothing") is first
    assert made == [1]
    assert first == library.LibraryFunction("f", b"code", ("a", "b"), ("g",), '"amdgpu-no-queue-ptr"')


def test_functions_are_reached_through_others_and_each_once() -> None:
    calls = {"a": ("b", "c"), "b": ("c",), "c": (), "d": ()}
    asked: list[tuple[str, bool]] = []

    def get(name: str, wait: bool) -> library.LibraryFunction | None:
        asked.append((name, wait))
        return None if name == "b" and not wait else library.LibraryFunction(name, b"", (), calls[name])

    assert sorted(f.name for f in library.reached(["a"], get, calls.__getitem__)) == ["a", "b", "c"]
    assert asked[-1] == ("b", True)  # what another process was at comes last
    assert sorted(asked[:-1]) == [("a", False), ("b", False), ("c", False)]


def test_a_texture_functions_callees_are_those_that_its_text_calls() -> None:
    for name in ("__zluda_tex_2d", "__zluda_query"):
        calls = set(texture_library().function(name).callees)
        assert set(texture_callees(name)) == calls & texture_functions()
    assert "__zluda_descriptor" in texture_callees("__zluda_tex_2d")
