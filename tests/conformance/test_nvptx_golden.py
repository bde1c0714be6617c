"""Instruction forms through the NVPTX back end: lowered, written as PTX, which the CPU device runs."""

from __future__ import annotations

from collections.abc import Iterator

import golden_file
import judge
import pytest
from cuda_on_cpu import CudaOnCpu
from isa_forms import all_forms
from isa_forms.kernels import Group, groups

from zluda.device import api
from zluda.device.cuda import libcuda
from zluda.device.cuda.nvptx import NvptxDevice

_GROUPS = groups(all_forms())
_QUICK, _SOME = 96, 12  # one kernel in so many
_LONG = ("tensor", "sparse_wgmma")  # families that are passed on whole, and take the CPU long


def _cases() -> Iterator[object]:
    for n, group in enumerate(_GROUPS):
        long = group.forms[0].family in _LONG or n % _SOME
        marks = (pytest.mark.nightly,) if long else (pytest.mark.slow,) if n % _QUICK else ()
        yield pytest.param(group, id=group.name, marks=marks)


@pytest.mark.parametrize("group", list(_cases()))
def test_forms_give_an_h200s_bits(group: Group, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = CudaOnCpu()
    monkeypatch.setattr(libcuda, "load", lambda: driver)
    golden, _ = golden_file.load()
    with api.Device(NvptxDevice()) as device:
        outcomes = judge.judge(device, group, golden)
    assert [one for one in outcomes if one.kind != "identical"] == []
