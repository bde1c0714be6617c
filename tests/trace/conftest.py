"""The stand-in driver and its programs, built once; recordings of their scenes, made once each."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from recorded_scenes import SOURCES, Recorded, StandIn, run_trace


@pytest.fixture(scope="session")
def standin(tmp_path_factory: pytest.TempPathFactory) -> StandIn:
    directory = tmp_path_factory.mktemp("standin")

    def build(source: str, *options: str) -> None:
        command = ["cc", "-O1", "-w", str(SOURCES / source), "-o", *options]
        subprocess.run(command, check=True, cwd=directory)

    build("libcuda.c", "libcuda.so.1", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-lpthread")
    build("app.c", "app", f"-L{directory}", "-l:libcuda.so.1", f"-Wl,-rpath,{directory}", "-lpthread")
    build("graphs.c", "graphs", f"-L{directory}", "-l:libcuda.so.1", f"-Wl,-rpath,{directory}", "-lpthread")
    build("busy.c", "busy", f"-L{directory}", "-l:libcuda.so.1", f"-Wl,-rpath,{directory}", "-lpthread")
    build("late.c", "late", "-ldl")
    build("faults.c", "faults", "-ldl", "-lpthread")
    for library in ("cublas", "curand", "nvrtc", "nvJitLink"):
        name = f"lib{library}.so.13"
        build("libraries.c", name, "-shared", "-fPIC", f"-Wl,-soname,{name}", f"-D{library.upper()}")
    link = (f"-L{directory}", "-l:libcuda.so.1", "-l:libnvrtc.so.13", "-l:libnvJitLink.so.13", "-ldl")
    build("libraries.c", "libraries", *link, f"-Wl,-rpath,{directory}", "-DPROGRAM")
    return StandIn(directory)


@pytest.fixture(scope="session")
def scene(standin: StandIn, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Recorded]:
    """Record a scene of the program; the same scene and capture are recorded once."""
    made: dict[tuple[str, ...], Recorded] = {}

    def record(*arguments: str, capture: str = "outputs") -> Recorded:
        key = (capture, *arguments)
        if key not in made:
            directory = tmp_path_factory.mktemp("-".join(arguments))
            recorded = run_trace(directory / "trace.bin", standin.app, *arguments, capture=capture)
            # Shown with the first test that fails on it: the recorder's own words say what went wrong.
            print(f"{' '.join(arguments)}: status {recorded.status}: {recorded.errors}")
            made[key] = recorded
        return made[key]

    return record


@pytest.fixture(scope="session")
def in_c(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """The agent's digest, compiled by the host's compiler."""
    import zluda.trace.agent

    source = tmp_path_factory.mktemp("digest") / "digest.c"
    own = Path(zluda.trace.agent.__file__).with_name("digest.c").read_text()
    types = "#include <string.h>\ntypedef unsigned char u8; typedef unsigned long u64;\n"
    source.write_text(types + own.replace("static void\ndigest", "void\ndigest"))
    library = source.with_suffix(".so")
    subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    return ctypes.CDLL(str(library))
