"""Structures of textures and arrays on record that are cut short: each a gap that names itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

from zluda.driver import descriptors
from zluda.replay.handlers.arrays import _decoded
from zluda.replay.handles import Unplayable
from zluda.tracefile import Call


class _Recorded:
    function = "cuTexObjectCreate"

    def __init__(self, data: bytes) -> None:
        self.pointees = {"pDesc": data}


@pytest.mark.parametrize(
    ("decode", "size"),
    [
        (descriptors.decode_resource, 144),
        (descriptors.decode_texture, 104),
        (descriptors.decode_view, 112),
    ],
)
def test_a_structure_that_was_cut_is_a_gap(decode: Callable[[bytes], Any], size: int) -> None:
    _decoded(cast(Call, _Recorded(bytes(size))), "pDesc", decode)
    for short in (0, 3, 8):
        with pytest.raises(Unplayable, match=f"cuTexObjectCreate: the {short} bytes of pDesc are no such"):
            _decoded(cast(Call, _Recorded(b"\x02" * short)), "pDesc", decode)
