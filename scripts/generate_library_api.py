"""Derive ``zluda/library/library_api.json`` from the headers of CUDA's libraries.

Usage: python scripts/generate_library_api.py --include DIRECTORY… [--output FILE]

The headers come with CUDA's toolkit or with the wheels ``nvidia-cublas``, ``nvidia-cufft``,
``nvidia-curand``,
``nvidia-cusparse``, ``nvidia-cusolver``, ``nvidia-cudnn-cu13``, ``nvidia-nccl-cu13``, ``nvidia-cuda-nvrtc``,
``nvidia-nvjitlink`` and ``nvidia-cuda-runtime``. They are preprocessed, the prototypes are read with one
pattern, and sizes come
from a C program built against the same headers. What a header cannot say stands in ``library_api_tables.py``.

Output: ``libraries`` (name: the file names it is found by), ``parameters`` (each distinct one once, as a row
of
``driver_api.json``), ``functions`` (name: library, then the numbers of its parameters), ``made`` (function:
pairs of
functions that tell size and content of what it made). Names of nvJitLink stand without the version that is
part of what the library exports.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import re
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from library_api_tables import BUFFERS, LIBRARIES, MADE, OUTPUTS, SCALARS, STRINGS, UNTYPED_SCALAR_BYTES

INTEGER_REGISTERS = 6
POINTER_CLASS, RECORD_CLASS, REAL_CLASS = 5, 12, 8  # __builtin_classify_type
VERSIONED = re.compile(r"^__(nvJitLink\w+?)_\d+_\d+$")
"""nvJitLink exports its functions under names with the version; inline functions hide that."""


class Headers:
    """All headers, preprocessed together."""

    def __init__(self, include: list[Path], work: Path) -> None:
        self._work, self._options = work, [f"-I{path}" for path in include]
        names = [name for headers, *_ in LIBRARIES.values() for name in headers]
        self._preamble = "#include <stdio.h>\n#include <stdint.h>\n"
        self._preamble += "".join(f"#include <{name}>\n" for name in names)
        self.text = self._gcc(self._preamble, "-E", "-P")

    def complete(self, kinds: set[str]) -> set[str]:
        """Those of the types that the headers define; of others they only give pointers."""
        body = "".join(f"(void) sizeof({kind});\n" for kind in sorted(kinds))
        errors = self._run_gcc(self._program(body), "-w", "-fsyntax-only").stderr
        return kinds - set(re.findall("incomplete type ‘(.*?)’", errors))

    def run(self, body: str) -> str:
        """Compile and run ``int main(void) { body }``; what it prints."""
        program = self._work / "program"
        self._gcc(self._program(body), "-w", "-o", str(program))
        return subprocess.run([program], check=True, capture_output=True, text=True).stdout

    def _program(self, body: str) -> str:
        return f"{self._preamble}int main(void) {{\n{body}\nreturn 0; }}\n"

    def _gcc(self, source: str, *options: str) -> str:
        result = self._run_gcc(source, *options)
        if result.returncode:
            raise SystemExit(f"gcc: {result.stderr[:3000]}")
        return result.stdout

    def _run_gcc(self, source: str, *options: str) -> subprocess.CompletedProcess[str]:
        path = self._work / "source.c"
        path.write_text(source)
        command = ["gcc", *self._options, str(path), *options]
        environment = {**os.environ, "LC_ALL": "C.UTF-8"}
        return subprocess.run(command, capture_output=True, text=True, env=environment)


class Table:
    """Rows of one hand-written table; remembers which were used."""

    def __init__(self, title: str, rows: list[Any]) -> None:
        self._title, self._rows, self._used = title, rows, [False] * len(rows)

    def find(self, function: str, parameter: str) -> Any:
        found = None
        for index, row in enumerate(self._rows):
            if fnmatch.fnmatchcase(function, row[0]) and fnmatch.fnmatchcase(parameter, row[1]):
                self._used[index] = True
                found = found or row
        return found

    def check(self) -> None:
        unused = [row for row, used in zip(self._rows, self._used, strict=True) if not used]
        if unused:
            raise SystemExit(f"{self._title}: rows that name nothing in the headers: {unused}")


def split_parameters(text: str) -> list[tuple[str, str]] | None:
    """``(C type, name)`` of each parameter; None where one is a function."""
    text = " ".join(text.split())
    if text in ("", "void"):
        return []
    if "(" in text:
        return None
    parameters = []
    for number, part in enumerate(text.split(",")):
        match = re.fullmatch(r"\s*(.*?[\s*])(\w+)\s*((?:\[\w*\])*)\s*", part)
        unnamed = match is None or match[2] in ("int", "void", "char", "const") or not match[1].strip(" *")
        kind, name, array = (part.strip(), f"argument{number}", "") if unnamed else match.groups()  # type: ignore[union-attr]
        kind = re.sub(r"\b(struct|enum) ", "", re.sub(r"\s*\*", " *", kind.strip()))
        kind = kind.replace("* *", "**").replace("* const", "*const")
        parameters.append((kind + (" *" if array else ""), name))
    return parameters


class Generator:
    def __init__(self, headers: Headers) -> None:
        self.prototypes: dict[str, tuple[str, list[tuple[str, str]]]] = {}
        for library, (_, result, names, _) in LIBRARIES.items():
            pattern = re.compile(
                rf"\b{result}\s+(?:__attribute__\s*\(\(.*?\)\)\s*)?(\w+)\s*\(([^;{{}}]*?)\)\s*;", re.S
            )
            for exported, text in pattern.findall(headers.text):
                name = VERSIONED.sub(r"\1", exported)
                parameters = split_parameters(text)
                if parameters is not None and fnmatch.fnmatchcase(name, names):
                    self.prototypes[name] = (library, parameters)
        self._measure(headers)
        self._scalars, self._outputs = Table("SCALARS", SCALARS), Table("OUTPUTS", OUTPUTS)
        self._buffers, self._strings = Table("BUFFERS", BUFFERS), Table("STRINGS", STRINGS)

    def _measure(self, headers: Headers) -> None:
        kinds = {kind for _, parameters in self.prototypes.values() for kind, _ in parameters}
        kinds |= {inner for kind in kinds if (inner := _pointee(kind))}
        lines = [
            f'printf("%s=%zu=%d\\n", "{kind}", sizeof({kind}), __builtin_classify_type(*({kind}*)0));'
            for kind in sorted(headers.complete(kinds))
        ]
        self.sizes: dict[str, int] = {}
        self.classes: dict[str, int] = {}
        for line in headers.run("\n".join(lines)).splitlines():
            kind, size, number = line.rsplit("=", 2)
            self.sizes[kind], self.classes[kind] = int(size), int(number)

    def _parameter(self, function: str, kind: str, name: str, names: list[str]) -> dict[str, Any]:
        inner = _pointee(kind)
        row: dict[str, Any] = {"name": name, "type": kind, "direction": "value", "pointee": 0}
        if self.sizes[kind] < 8:
            row["bytes"] = self.sizes[kind]
        if kind == "const char *":
            return row | {"direction": "in", "rule": "string"}
        if strings := self._strings.find(function, name):
            return row | {"direction": "in", "rule": "strings", "count": names.index(strings[2])}
        buffer = self._buffers.find(function, name)
        if buffer and buffer[3] in names and kind.endswith("*"):
            unit = buffer[4] or self.sizes[str(inner)]
            return row | {
                "direction": buffer[2],
                "rule": "buffer",
                "count": names.index(buffer[3]),
                "unit": unit,
            }
        if (
            kind.startswith("const ")
            and kind.endswith("*")
            and "**" not in kind
            and self._scalars.find(function, name)
        ):
            return row | {"direction": "in", "rule": "guarded", "unit": self._scalar_bytes(inner)}
        if inner is None or kind.startswith("const "):
            return row
        made = self.classes.get(inner) == POINTER_CLASS and not inner.endswith("*")
        if made or self._outputs.find(function, name):
            return row | {"direction": "out", "pointee": self.sizes[inner]}
        return row

    def _scalar_bytes(self, inner: str | None) -> int:
        return UNTYPED_SCALAR_BYTES if inner is None else self.sizes[inner]

    def _slots(self, parameters: list[tuple[str, str]]) -> list[int]:
        """The integer argument word of each (System V ABI 3.2.3): floats and pairs of them are in vector
        registers, structures above 16 bytes on the stack.
        """
        registers, stack, slots = 0, INTEGER_REGISTERS, []
        for kind, _ in parameters:
            words = (self.sizes[kind] + 7) // 8
            if self.classes[kind] == REAL_CLASS or re.search("Complex$", kind):
                slots.append(-1)
            elif words > 2 or registers + words > INTEGER_REGISTERS:
                slots.append(stack)
                stack += words
            else:
                slots.append(registers)
                registers += words
        return slots

    def generate(self) -> dict[str, Any]:
        rows: dict[str, int] = {}
        functions = {}
        for name, (library, parameters) in sorted(self.prototypes.items()):
            names = [parameter for _, parameter in parameters]
            numbers = []
            for (kind, parameter), slot in zip(parameters, self._slots(parameters), strict=True):
                row = self._parameter(name, kind, parameter, names) | {"slot": slot}
                numbers.append(rows.setdefault(json.dumps(row), len(rows)))
            functions[name] = [list(LIBRARIES).index(library), *numbers]
        for table in (self._scalars, self._outputs, self._buffers, self._strings):
            table.check()
        wanted = {one for function, pairs in MADE.items() for pair in pairs for one in (function, *pair)}
        if missing := wanted - functions.keys():
            raise SystemExit(f"MADE: no such functions in the headers: {sorted(missing)}")
        return {
            "libraries": {name: pattern for name, (*_, pattern) in LIBRARIES.items()},
            "made": MADE,
            "parameters": [json.loads(row) for row in rows],
            "functions": functions,
        }


def _pointee(kind: str) -> str | None:
    """The type behind a pointer; None for a value, ``void``, text and functions."""
    if not kind.endswith("*"):
        return None
    inner = re.sub(r"^const ", "", kind[:-1].strip())
    return None if inner in ("void", "char") or inner.endswith("*const") else inner


def write(table: dict[str, Any], path: Path) -> None:
    """One line a parameter and a function, so that a new release's difference can be read."""

    def line(value: Any) -> str:
        return json.dumps(value, separators=(",", ":"))

    text = f'{{"libraries":{line(table["libraries"])},\n"made":{line(table["made"])},\n"parameters":[\n'
    text += ",\n".join(map(line, table["parameters"])) + '],\n"functions":{\n'
    text += ",\n".join(f"{line(name)}:{line(row)}" for name, row in table["functions"].items()) + "}}\n"
    json.loads(text)
    path.write_text(text)


def main() -> None:
    parser = argparse.ArgumentParser(
        description="derive library_api.json from the headers of CUDA's libraries"
    )
    parser.add_argument("--include", type=Path, nargs="+", required=True)
    parser.add_argument("--output", type=Path, default=Path("zluda/library/library_api.json"))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        table = Generator(Headers(options.include, Path(work))).generate()
    write(table, options.output)
    functions, parameters = len(table["functions"]), len(table["parameters"])
    print(f"{options.output}: {functions} functions, {parameters} distinct parameters")


if __name__ == "__main__":
    main()
