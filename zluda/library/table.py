"""The table of CUDA's library functions, ``library_api.json``, read once.

``scripts/generate_library_api.py`` makes it from the libraries' headers and says what is in it.
"""

from __future__ import annotations

import json
from functools import cache
from importlib import resources
from typing import Any

EFFECT = "library"
"""What stands as ``effect`` in a library function's row: the driver calls inside it have the effects."""


@cache
def library_api() -> dict[str, Any]:
    """The file: ``libraries``, ``made``, ``parameters``, ``functions``."""
    text = resources.files("zluda.library").joinpath("library_api.json").read_text("utf-8")
    table: dict[str, Any] = json.loads(text)
    return table


def library_functions() -> list[dict[str, Any]]:
    """Every function as a row of ``driver_api.json`` has it, with its ``name`` and ``library``, and whether
    it has ``made`` something that the recorder asks for.
    """
    table = library_api()
    libraries, parameters = list(table["libraries"]), table["parameters"]
    return [
        {
            "name": name,
            "base": name,
            "library": libraries[library],
            "effect": EFFECT,
            "replay": False,
            "made": name in table["made"],
            "parameters": [parameters[number] for number in numbers],
        }
        for name, (library, *numbers) in table["functions"].items()
    ]
