"""`zluda check`: what would not translate or replay, found without running anything."""

from __future__ import annotations

import io
import json
import os
import struct
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest
import zstandard
from container_writer import Entry, elf, fatbin
from kernels import ADD, HEADER, LAYOUT, STORE
from trace_builder import TraceBuilder, words

from zluda.compiler import cache
from zluda.compiler.cache.store import Store
from zluda.compiler.refusals import refusals
from zluda.errors import DeviceError, UnsupportedError
from zluda.isolate.check.archives import members
from zluda.isolate.check.results import FileReport, Kind, Report
from zluda.isolate.check.run import check
from zluda.isolate.check.sarif import sarif
from zluda.isolate.check.symbols import driver_findings
from zluda.isolate.check.verdicts import Preflight
from zluda.isolate.check.words import markdown
from zluda.ptx import parse_module
from zluda.tracefile import open_trace

ROOT = Path(__file__).resolve().parents[2]
HEAD = ".version 9.0\n.target sm_90\n.address_size 64\n"
REFUSED = "multimem.st.relaxed.sys.global.u32 [%rd1], 3;"
BAD = f"""
.visible .entry bad(.param .u64 p)
{{
    .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [p];
    {REFUSED}
    {REFUSED.replace(", 3", ", 7")}
    ret;
}}
"""
CALLED = f"""
.func helper(.param .u64 q)
{{
    .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [q];
    {REFUSED}
    ret;
}}
.extern .func nowhere(.param .u64 q);
.visible .entry through(.param .u64 p)
{{
    .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [p];
    {{ .param .b64 q; st.param.b64 [q], %rd1; call helper, (q); }}
    ret;
}}
.visible .entry outside(.param .u64 p)
{{
    .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [p];
    {{ .param .b64 q; st.param.b64 [q], %rd1; call nowhere, (q); }}
    ret;
}}
"""
ONE, TWO = (HEAD + STORE.format(name=name, value=value) for name, value in (("one", 1), ("two", 2)))


def write(place: Path, name: str, data: bytes | str) -> Path:
    path = place / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return path


def of(report: Report) -> FileReport:
    (file,) = report.files
    return file


def cubin(*kernels: str) -> bytes:
    return elf({f".nv.constant0.{name}": bytes(8) for name in kernels}, machine=190)


# --- PTX -------------------------------------------------------------------------------------------------


def test_a_refused_instruction_is_named_with_its_place_and_how_often(tmp_path: Path) -> None:
    path = write(tmp_path, "a.ptx", HEAD + STORE.format(name="one", value=1) + BAD)
    report = check([path], ["cpu", "gfx1030"])
    (finding,) = of(report).modules[0].findings
    assert (finding.kind, finding.kernel, finding.count) == (Kind.INSTRUCTION, "bad", 2)
    assert "multimem.st" in finding.what and finding.text == REFUSED
    assert path.read_text().splitlines()[finding.line - 1].strip() == REFUSED
    assert [(v.word, v.translate, v.refused) for v in report.verdicts] == [("partly", 1, 1)] * 2
    assert report.exit_status == 1


def test_what_a_function_holds_is_told_of_the_kernels_that_call_it(tmp_path: Path) -> None:
    report = check([write(tmp_path, "a.ptx", HEAD + CALLED)], ["gfx1030"])
    found = {finding.kernel: finding for finding in of(report).modules[0].findings}
    assert set(found) == {"through", "outside"}
    assert found["through"].function == "helper" and "multimem" in found["through"].what
    assert found["outside"].what == "call of nowhere, which the module does not define"


def test_everything_translates(tmp_path: Path) -> None:
    report = check([write(tmp_path, "a.ptx", ONE)], ["cpu", "gfx90a"])
    assert {v.word for v in report.verdicts} == {"translates"} and report.exit_status == 0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (ONE.replace("ld.param.u64", "frobnicate.u64"), "frobnicate"),
        (ONE.replace("%rd1, [p]", "%rd9, [p]"), "undeclared"),
        (HEAD + "rubbish" + STORE.format(name="k", value=1), "rubbish"),
    ],
)
def test_text_that_is_not_ptx_is_said_to_be_none(tmp_path: Path, text: str, said: str) -> None:
    report = check([write(tmp_path, "a.ptx", text)], ["cpu"])
    found = of(report).modules[0].findings
    assert any(one.kind is Kind.PTX and said in f"{one.what} {one.text}" and one.line for one in found)
    assert report.exit_status != 0


def test_forms_and_whole_kernels_come_to_the_same_verdict() -> None:
    """What stands for all instructions of its form does: on kernels of the corpus, and refused ones."""
    texts = [HEAD + BAD, HEAD + CALLED]
    for name in ("reduction", "textures", "tensor_cores"):
        with open_trace(ROOT / "corpus" / name / "trace.bin") as trace:
            texts += [text.decode() for module in trace.module_list if (text := trace.ptx(module))]
    preflight = Preflight(["gfx1030"])
    for text in texts:
        module = parse_module(text)
        refused = preflight.judge(module).refused["gfx1030"]
        for kernel in module.kernel_names:
            whole = any(True for _ in refusals(module, kernel, "gfx1030", stops=True))
            assert (kernel in refused) == (whole or kernel == "through"), kernel


def test_unknown_targets_are_refused(tmp_path: Path) -> None:
    with pytest.raises((DeviceError, UnsupportedError), match="gfx1"):
        check([write(tmp_path, "a.ptx", ONE)], ["gfx1"])


# --- containers ------------------------------------------------------------------------------------------


def test_a_library_is_told_module_by_module(tmp_path: Path) -> None:
    first = fatbin(
        Entry(ONE.encode(), 80, compression="lz4"),
        Entry((HEAD + BAD).encode(), 100, compression="zstd"),
        Entry(cubin("one"), 90, kind=2, flags=0x100011),
    )
    second = fatbin(Entry(cubin("three", "four"), 80, kind=2), Entry(cubin("three", "four"), 90, kind=2))
    third = fatbin(Entry(cubin("one"), 90, kind=2))
    path = write(tmp_path, "lib.so", elf({".nv_fatbin": first + second + third}))
    report = check([path], ["cpu"])
    one, two, linked = of(report).modules
    assert one.architectures == ("compute_80", "compute_100", "sm_90a")
    assert (one.ptx, one.kernels, one.findings) == ("compute_80", 1, [])  # as a device of 9.0 would choose
    assert two.machine_code == 2 and two.findings[0].kind is Kind.MACHINE_CODE
    assert linked.machine_code == 0 and linked.findings[0].kind is Kind.LINKED
    assert report.verdict("cpu").machine_code == 2 and report.exit_status == 1
    assert path.read_bytes()[two.offset : two.offset + 4] == struct.pack("<I", 0xBA55ED50)


def test_device_code_is_found_among_other_data(tmp_path: Path) -> None:
    junk = b"MZ" + b"\x50\xed\x55\xba" + bytes(60) + b".version 3.0 of something\0"
    data = junk + fatbin(Entry(ONE.encode(), 80)) + b"xx\0// made by hand\n" + TWO.encode() + b"\0" + junk
    for name, whole in (("a.bin", data), ("b.so", elf({".rodata": data}))):
        report = check([write(tmp_path, name, whole)], ["cpu"])
        modules = of(report).modules
        assert [module.kernels for module in modules] == [1, 1] and not report.exit_status
        assert whole[modules[1].offset :].startswith(b"// made by hand")


def test_damaged_containers_are_findings_and_keep_nothing_else_from_being_read(tmp_path: Path) -> None:
    whole = fatbin(Entry(ONE.encode(), 80, compression="zstd"))
    broken = bytearray(whole)
    broken[100:110] = bytes(10)
    write(tmp_path, "cut.fatbin", whole[:-40])
    write(tmp_path, "good.ptx", TWO)
    write(tmp_path, "broken.fatbin", bytes(broken))
    report = check([tmp_path], ["cpu"])
    kinds = {Path(f.path).name: [one.kind for _, one in f.every_finding()] for f in report.files}
    assert kinds["good.ptx"] == [] and kinds["cut.fatbin"] == [Kind.DAMAGED]
    assert kinds["broken.fatbin"][0] in (Kind.DAMAGED, Kind.PTX)
    assert report.exit_status == 1


def _zip(content: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in content.items():
            archive.writestr(name, data)
    return out.getvalue()


def _tar(content: dict[str, bytes], mode: str = "w:bz2") -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode) as archive:  # type: ignore[call-overload]
        for name, data in content.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return out.getvalue()


CONTENT = {"pkg/lib/x.so": elf({".nv_fatbin": fatbin(Entry(ONE.encode(), 80))}), "pkg/readme.txt": b"hello"}


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("a.whl", _zip(CONTENT)),
        ("a.tar.bz2", _tar(CONTENT)),
        ("a.tar.zst", zstandard.compress(_tar(CONTENT, "w:"))),
        ("a.conda", _zip({"pkg-a.tar.zst": zstandard.compress(_tar(CONTENT, "w:")), "metadata.json": b"{}"})),
    ],
)
def test_archives_are_looked_into(tmp_path: Path, name: str, data: bytes) -> None:
    report = check([write(tmp_path, name, data)], ["cpu"])
    assert of(report).path.endswith("!pkg/lib/x.so") and of(report).modules[0].kernels == 1
    assert report.exit_status == 0


def test_archives_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cut = write(tmp_path, "cut.whl", _zip(CONTENT)[:-30])
    empty = write(tmp_path, "empty.whl", _zip({"a.txt": b"nothing"}))
    for path, said in ((cut, "cannot be read"), (empty, "holds no device code")):
        report = check([path], ["cpu"])
        assert said in of(report).problem and report.exit_status == 2
    monkeypatch.setattr("zluda.isolate.check.archives.MOST_BYTES", 100)
    report = check([write(tmp_path, "large.whl", _zip({"x.so": CONTENT["pkg/lib/x.so"]}))], ["cpu"])
    assert "larger than 100 bytes" in of(report).problem


def test_a_problem_is_one_line_that_does_not_repeat_the_file(tmp_path: Path) -> None:
    tar = io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w:xz") as archive:
        entry = tarfile.TarInfo("a.ptx")
        entry.size = 200_000
        archive.addfile(entry, io.BytesIO(os.urandom(entry.size)))
    spoilt = bytearray(tar.getvalue())
    spoilt[len(spoilt) // 2] ^= 0xFF
    files = {
        "spoilt.tar.xz": bytes(spoilt),
        "cut.whl": _zip(CONTENT)[:-30],
        "cut.tar.bz2": b"BZh9",
        "cut.bin": b"SQLite format 3\0" + bytes(3000),
    }
    for name, data in files.items():
        problem = of(check([write(tmp_path, name, data)], ["cpu"])).problem
        assert problem and name not in problem and "\n" not in problem and "method" not in problem


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [(0, 1, "member b.ptx is encrypted"), (2, 9, "not supported; method 9")],
    ids=["encrypted", "Deflate64"],
)
def test_members_that_cannot_be_unpacked_are_named_with_a_way_out(
    tmp_path: Path, field: int, value: int, said: str
) -> None:
    """What lies before one is reported all the same."""
    data = bytearray(_zip({"a.ptx": ONE.encode(), "b.ptx": ONE.encode()}))
    for header, start in ((b"PK\3\4", 6), (b"PK\1\2", 8)):  # APPNOTE 4.3.7, 4.3.12: flags, method
        struct.pack_into("<H", data, data.rfind(header) + start + field, value)
    whole, problem = check([write(tmp_path, "a.whl", bytes(data))], ["cpu"]).files
    assert whole.path.endswith("!a.ptx") and whole.modules
    assert said in problem.problem and "unpack the archive and check the directory" in problem.problem


def test_members_are_files_of_their_own(tmp_path: Path) -> None:
    found = {name: file.read() for name, file in members(write(tmp_path, "a.whl", _zip(CONTENT)))}
    assert found == CONTENT


def test_directories_pass_over_what_is_no_device_code(tmp_path: Path) -> None:
    write(tmp_path, "deep/a.ptx", ONE)
    write(tmp_path, "notes.txt", "the .version of this")
    write(tmp_path, "plain.so", elf({".text": b"\xc3"}))
    report = check([tmp_path], ["cpu"])
    assert [Path(file.path).name for file in report.files] == ["a.ptx"] and report.exit_status == 0


def test_pipes_are_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/null")):
        report = check([path], ["cpu"])
        assert "is a device or a pipe" in of(report).problem and report.exit_status == 2


@pytest.mark.parametrize("name", ["missing", "text.txt", "empty"])
def test_named_files_without_device_code_are_problems(tmp_path: Path, name: str) -> None:
    write(tmp_path, "text.txt", "hello")
    write(tmp_path, "empty", b"")
    report = check([tmp_path / name], ["cpu"])
    assert of(report).problem and report.exit_status == 2


def test_many_modules_are_judged_in_processes_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("zluda.isolate.check.run._SMALL", 0)
    texts = [HEAD + STORE.format(name=f"k{i}", value=i) for i in range(5)] + [HEAD + BAD]
    path = write(
        tmp_path, "lib.so", elf({".nv_fatbin": b"".join(fatbin(Entry(t.encode(), 80)) for t in texts)})
    )
    seen: list[tuple[int, int]] = []
    report = check([path], ["cpu"], jobs=2, progress=lambda done, total: seen.append((done, total)))
    assert [module.kernels for module in of(report).modules] == [1] * 6
    assert [len(module.refused["cpu"]) for module in of(report).modules] == [0] * 5 + [1]
    assert seen and seen[-1][0] == seen[-1][1]


def test_symbols_of_the_driver_that_have_no_replayed_effect() -> None:
    found = list(
        driver_findings(["cuMemAlloc_v2", "cuGLInit", "cuFrobnicate", "cudaMalloc", "cusparseCreate"])
    )
    assert [one.what for one in found] == [
        "cuFrobnicate: no function of CUDA 13's driver",
        "cuGLInit: its effect is not replayed",
    ]
    assert all(one.kind.level == "warning" for one in found)


# --- traces ----------------------------------------------------------------------------------------------


def _trace(path: Path, ptx: str = HEADER + ADD) -> Path:
    with TraceBuilder(path) as record:
        record.start()
        function = record.function(record.module(ptx), "add", LAYOUT)
        record.module(HEAD + BAD)  # loaded, and nothing of it launched
        buffer = record.allocate(4096)
        record.launch(function, words(buffer, buffer, buffer, 4))
        record.call("cuGLInit")
        record.call("cuGLInit")
        record.call("cuMemGetInfo_v2")
    return path


def test_of_a_trace_launched_kernels_and_calls_count(tmp_path: Path) -> None:
    report = check([_trace(tmp_path / "t.bin")], ["cpu"])
    launched, other = of(report).modules
    assert (launched.kernels, other.kernels, other.findings) == (1, 0, [])
    (call,) = of(report).findings
    assert (call.kind, call.count) == (Kind.CALL, 2) and call.what.startswith("cuGLInit")
    verdict = report.verdict("cpu")
    assert (verdict.translate, verdict.refused, verdict.other_errors) == (1, 0, 1)
    assert report.exit_status == 1


def test_the_corpus_translates() -> None:
    report = check([ROOT / "corpus" / "saxpy" / "trace.bin"])
    assert report.exit_status == 0 and len(report.verdicts) == 4


# --- forms of the result ---------------------------------------------------------------------------------


def _locations(log: dict[str, Any]) -> list[tuple[str, int]]:
    (run,) = log["runs"]
    found = []
    for result in run["results"]:
        physical = result["locations"][0]["physicalLocation"]
        artifact = physical["artifactLocation"]
        assert run["artifacts"][artifact["index"]]["location"]["uri"] == artifact["uri"]
        found.append((artifact["uri"], physical.get("region", {}).get("startLine", 0)))
    return found


def test_sarif_has_what_the_standard_requires(tmp_path: Path) -> None:
    """SARIF 2.1.0: 3.13 (log), 3.14 (run), 3.18 (tool), 3.20 (invocation), 3.24 (artifact), 3.27 (result)."""
    library = elf(
        {".nv_fatbin": fatbin(Entry((HEAD + BAD).encode(), 80)) + fatbin(Entry(cubin("m"), 80, kind=2))}
    )
    paths = [write(tmp_path, "a b.ptx", HEAD + BAD), write(tmp_path, "lib.so", library), tmp_path / "missing"]
    log = json.loads(json.dumps(sarif(check(paths, ["cpu"]))))
    assert log["version"] == "2.1.0" and log["$schema"].endswith("sarif-schema-2.1.0.json")
    (run,) = log["runs"]
    rules = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
    assert run["tool"]["driver"]["name"] and len(set(rules)) == len(rules)
    for result in run["results"]:
        assert rules[result["ruleIndex"]] == result["ruleId"]
        assert result["level"] in ("none", "note", "warning", "error") and result["message"]["text"]
        assert result["occurrenceCount"] >= 1
    places = _locations(log)
    assert any(uri.endswith("/a%20b.ptx") and line > 3 for uri, line in places)
    assert any(uri.endswith("/lib.so%5B0%5D") and line > 3 for uri, line in places)
    nested = [one for one in run["artifacts"] if "parentIndex" in one]
    assert len(nested) == 2 and all(run["artifacts"][one["parentIndex"]] for one in nested)
    (invocation,) = run["invocations"]
    assert invocation["executionSuccessful"] is False and invocation["exitCode"] == 2
    assert "No such file" in invocation["toolExecutionNotifications"][0]["message"]["text"]


def test_markdown_is_a_table_whose_cells_hold_anything(tmp_path: Path) -> None:
    text = markdown(check([write(tmp_path, "a|b.ptx", HEAD + BAD)], ["cpu"]))
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert any("multimem" in row for row in rows) and "a\\|b.ptx" in text
    assert {row.replace("\\|", "").count("|") for row in rows} == {6}


def _zluda(*words: object, status: int, **environment: str) -> str:
    command = [sys.executable, "-m", "zluda", "check", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == status, done.stderr
    return done.stdout


def test_the_command_prints_words_and_json(tmp_path: Path) -> None:
    path = write(tmp_path, "a.ptx", ONE + BAD)
    said = _zluda(path, "-t", "cpu", status=1)
    assert "cpu: some of it does not translate (1 of 2 kernels do; 1 refused)" in said
    assert f"a.ptx:{(ONE + BAD).split(REFUSED)[0].count(chr(10)) + 1} in bad" in said
    found = json.loads(_zluda(path, "-t", "cpu", "--json", status=1))
    assert found["targets"]["cpu"]["verdict"] == "partly"
    assert found["files"][0]["modules"][0]["findings"][0]["text"] == REFUSED


def test_one_form_of_output_can_be_asked_for(tmp_path: Path) -> None:
    assert _zluda(write(tmp_path, "a.ptx", ONE), "--json", "--sarif", status=2) == ""


def test_compiling_tells_what_forms_cannot(tmp_path: Path) -> None:
    """Shared memory beyond what the target has is a property of a kernel, not of an instruction."""
    large = """
.visible .entry large(.param .u64 p)
{
    .reg .b64 %rd<2>;
    .reg .b32 %r<2>;
    .shared .align 4 .b8 room[200000];
    ld.param.u64 %rd1, [p];
    ld.shared.u32 %r1, [room+4];
    st.global.u32 [%rd1], %r1;
    ret;
}
"""
    path = write(tmp_path, "a.ptx", ONE + large)
    assert check([path], ["gfx1030"]).exit_status == 0
    with cache.using(Store(tmp_path / "cache", 64 << 20)):
        report = check([path], ["gfx1030"], compiles=True)
    (finding,) = of(report).modules[0].findings
    assert (finding.kind, finding.kernel, finding.targets) == (Kind.COMPILER, "large", ("gfx1030",))
    assert report.exit_status == 1
