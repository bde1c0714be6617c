"""The table of CUDA's driver entries, ``driver_api.json``, read once."""

from __future__ import annotations

import json
from functools import cache
from importlib import resources
from typing import Any


@cache
def driver_api() -> dict[str, Any]:
    """CUDA's version, layouts and every entry; ``scripts/generate_driver_api.py`` says what is in it."""
    text = resources.files("zluda.driver").joinpath("driver_api.json").read_text("utf-8")
    table: dict[str, Any] = json.loads(text)
    return table
