"""What the driver makes of modules and textures, against what was asked of it."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from container_writer import Entry, fatbin
from kernels import HEADER
from seeding import Change, run

from zluda.device.cpu import CpuDevice
from zluda.device.images import ptx_text
from zluda.isolate.layers.objects import image_fault, texture_fault, unlike_asked, variables_fault
from zluda.ptx import parse_module
from zluda.tracefile import open_trace

VARIABLES = (
    HEADER
    + """
.visible .global .align 4 .b8 zeros[64];
.visible .const .align 4 .u32 some[4] = {7, 11};
.visible .global .align 8 .u64 where = zeros;
.visible .entry k() { ret; }
"""
)


def of_architecture(number: int) -> bytes:
    return f".version 8.0\n.target sm_{number}\n.address_size 64\n.visible .entry k() {{ ret; }}\n".encode()


@pytest.fixture
def device() -> Iterator[CpuDevice]:
    opened = CpuDevice(threads=1)
    yield opened
    opened.close()


def test_the_newest_image_that_a_gpu_can_be_given_is_loaded(device: CpuDevice) -> None:
    data = fatbin(*(Entry(of_architecture(number), number) for number in (70, 90, 75)))
    taken = ptx_text(data, device)
    assert taken is not None and image_fault(data, taken, device) == ""
    older = of_architecture(75).decode()
    assert image_fault(data, older, device) == (
        "of the images for sm_70, sm_90, sm_75 that for sm_75 was loaded"
    )


def test_where_there_is_no_choice_there_is_no_fault(device: CpuDevice) -> None:
    text = of_architecture(70)
    assert image_fault(text, "another text", device) == ""
    newer = fatbin(Entry(of_architecture(200), 200))  # above the GPU's: the driver takes what there is
    assert image_fault(newer, of_architecture(200).decode(), device) == ""


def test_variables_hold_their_values_when_loaded(device: CpuDevice) -> None:
    assert variables_fault(parse_module(VARIABLES), device) == ""


SCRIPT = f"""
import json
from zluda.device.cpu import CpuDevice
from zluda.isolate.layers.objects import variables_fault
from zluda.ptx import parse_module
device = CpuDevice(threads=1)
print(json.dumps(variables_fault(parse_module({VARIABLES!r}), device)))
"""


@pytest.mark.parametrize(
    ("new", "told"),
    [
        ('.ljust(size, b"\\xa5")', "variable zeros+0x0 holds 0xa5 when loaded, not 0x00"),
        ('[1:].ljust(size, b"\\0")', "variable some+0x0 holds 0x00 when loaded, not 0x07"),
    ],
)
def test_a_variable_that_is_not_what_it_should_be_is_named(new: str, told: str) -> None:
    change = Change("zluda.device.placement", '.ljust(size, b"\\0")', new)
    assert run((change,), SCRIPT) == told


def description(**fields: Any) -> SimpleNamespace:
    """A recorded ``cuTexObjectCreate``."""
    values = {
        "modes": (0, 1, 3), "filter": 1, "flags": 0x12, "anisotropy": 4, "between": 1,
        "levels": (0.5, 0.0, 7.0), "border": (1.0, 0.5, 0.25, 0.0), **fields,
    }  # fmt: skip
    data = struct.pack(
        "<3i i 3I 3f 4f 12i",
        *values["modes"],
        *(values["filter"], values["flags"], values["anisotropy"], values["between"]),
        *(*values["levels"], *values["border"], *12 * (0,)),
    )
    return SimpleNamespace(sequence=9, pointees={"pTexDesc": data})


@pytest.mark.parametrize("fields", [{}, {"modes": (2, 2, 2)}, {"flags": 0}, {"filter": 0, "between": 0}])
def test_a_texture_is_sampled_as_it_was_asked_for(fields: dict[str, Any]) -> None:
    call: Any = description(**fields)
    assert texture_fault(call) == ""


@pytest.mark.parametrize(
    ("field", "other", "told"),
    [
        ("address_modes", (0, 1, 1), "the texture of #9 has address modes (0, 1, 1), not (0, 1, 3)"),
        ("filter_mode", 0, "the texture of #9 has filter 0, not 1"),
        ("flags", 0x10, "the texture of #9 has normalised coordinates False, not True"),
        ("border_color", (0.0,) * 4, "the texture of #9 has border colour"),
        ("mipmap_level_bias", 0.0, "the texture of #9 has levels"),
    ],
)
def test_a_texture_that_is_sampled_otherwise_is_named(
    field: str, other: object, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from zluda.isolate.layers import objects

    made = objects.sampled
    monkeypatch.setattr(
        objects, "sampled", lambda plain, texture: made(plain, texture._replace(**{field: other}))
    )
    call: Any = description()
    assert texture_fault(call).startswith(told)


def test_nothing_that_the_corpus_asks_for_is_made_otherwise() -> None:
    """Whatever else may fail there, the driver's objects are not to be blamed for it."""
    traces = sorted((Path(__file__).parents[2] / "corpus").glob("*/trace.bin"))
    assert len(traces) > 10
    for path in traces:
        with open_trace(path) as trace:
            last = {one.module: one for one in trace.iter_launches()}
            assert [unlike_asked(trace, launch) for launch in last.values()] == [""] * len(last), path
