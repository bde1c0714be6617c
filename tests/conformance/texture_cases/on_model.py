"""Texture cases by the reference model."""

from __future__ import annotations

import re

import numpy as np

from texture_cases.on_device import descriptor_of
from texture_cases.spec import Array, Case
from zluda.numerics.texture.layout import Geometry
from zluda.numerics.texture.reference import Image, sample

_FORM = re.compile(r"tex\.(?:(level|grad|base)\.)?(\w+)\.v4\.[usf]32\.(\w+) ")
_OFFSETS = re.compile(r"\][^;]*\{")


def image_of(case: Case) -> Image:
    d, t = descriptor_of(case.texture, 0)[0], case.texture
    return Image(
        *(d.geometry, d.format, [t.texels(v) for v in range(t.levels)]),
        flags=d.flags,
        address=d.address,
        filter=d.filter,
        mip_filter=d.mip_filter,
        mip_bias=d.mip_bias,
        max_anisotropy=d.max_anisotropy,
        min_lod=d.min_lod,
        max_lod=d.max_lod,
        border=d.border,
    )


def run_on_model(case: Case) -> Array | None:
    """The words the model gives; None for instructions that it does not have."""
    form = _FORM.match(case.form)
    if (
        _OFFSETS.search(case.form)
        or form is None
        or form.group(3) != "f32"
        or form.group(1) == "grad"
        or "cube" in form.group(2)
    ):
        return None
    image = image_of(case)
    columns = [np.ascontiguousarray(c).view(np.float32) for c in case.words.T]
    n = image.dimensions
    layer = None
    if image.geometry & Geometry.LAYERED:
        columns = columns[1:]
        layer = np.minimum(case.words[:, 0], case.texture.slices - 1).astype(np.int64)
    lod = columns[-1] if form.group(1) == "level" else None
    return sample(image, columns[:n], lod=lod, layer=layer)[:, : case.results]
