"""The table of handlers against the table of driver entries."""

from __future__ import annotations

import pytest
from trace_builder import FUNCTIONS

from zluda.replay.handlers import HANDLERS, UNIFIED_COPIES
from zluda.replay.names import changes_state, entry_name


def test_every_replayable_entry_has_a_handler_and_no_other() -> None:
    replayable = {entry_name(name).base for name, row in FUNCTIONS.items() if row["replay"]}
    assert replayable - set(HANDLERS) - UNIFIED_COPIES == set()
    assert set(HANDLERS) - {entry_name(name).base for name in FUNCTIONS} == set()


@pytest.mark.parametrize(
    ("function", "base", "per_thread"),
    [
        ("cuMemcpyHtoDAsync_v2_ptsz", "cuMemcpyHtoDAsync", True),
        ("cuMemsetD8_v2_ptds", "cuMemsetD8", True),
        ("cuStreamGetCaptureInfo_v3", "cuStreamGetCaptureInfo", False),
        ("cuLaunchKernel", "cuLaunchKernel", False),
        ("cuMemcpyHtoD_v2", "cuMemcpyHtoD", False),
    ],
)
def test_suffixes_are_split_off(function: str, base: str, per_thread: bool) -> None:
    assert entry_name(function) == (base, per_thread)


def test_only_calls_with_an_effect_can_make_a_gap() -> None:
    assert changes_state("cuGraphLaunch_ptsz")
    assert changes_state("cuMemcpy2DAsync_v2")
    assert changes_state("cuOfALaterCuda")
    assert not changes_state("cuDeviceGetAttribute")
    assert not changes_state("cuMemAdvise_v2")
    assert not changes_state("cuGetExportTable")
