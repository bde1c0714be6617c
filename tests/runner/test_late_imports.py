"""What is imported where it is used is there before a runner is confined: then no file can be opened."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

from zluda.runner.devices import _DEVICES, _PACKAGES

ELSEWHERE = {
    "platformdirs",  # the cache's directory: the near side's
    "llvmlite",  # an attribute of it is, as part of keys in the cache; its modules are loaded by the warm-up
    "llvmlite.binding",
    "numpy",
    "msgpack",  # of messages
}


def late_imports(package: str) -> set[str]:
    """Modules of others that a package's functions import."""
    found = set()
    for path in importlib.import_module(package).__path__:
        for file in Path(path).rglob("*.py"):
            for function in ast.walk(ast.parse(file.read_text("utf-8"))):
                if isinstance(function, ast.FunctionDef):
                    for node in ast.walk(function):
                        if isinstance(node, ast.Import):
                            found.update(alias.name for alias in node.names)
                        elif isinstance(node, ast.ImportFrom) and node.module:
                            found.add(node.module)
    return {name for name in found if not name.startswith("zluda")}


@pytest.mark.parametrize("kind", _DEVICES)
def test_every_late_import_is_made_before(kind: str) -> None:
    packages = (*_PACKAGES, _DEVICES[kind][1])
    wanted = set().union(*map(late_imports, packages)) - ELSEWHERE
    program = (
        f"import sys; from zluda.runner.devices import import_late; import zluda.runner.far; "
        f"import_late({packages!r}); print(*set({sorted(wanted)!r}) - set(sys.modules))"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert wanted and result.stdout.split() == []
