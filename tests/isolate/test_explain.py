"""One launch on one screen: 80 columns and 24 lines, whatever it has to tell."""

from __future__ import annotations

from zluda.diff.blame import ABSENT, Blame, Evidence, Layer, Sure
from zluda.diff.results import BufferComparison, Element, LaunchResult, Verdict
from zluda.isolate.explain import COLUMNS, LINES, Explanation
from zluda.isolate.inside import AmdCode
from zluda.isolate.layers.search import Answer
from zluda.isolate.values import Difference, Kind
from zluda.isolate.values.difference import Input

ORIGIN = (0, 0, 0)


def explanation(*, long: bool = False, found: bool = True) -> Explanation:
    many = 40 if long else 1
    words = " ".join(["reason"] * (60 if long else 3))
    element = Element(17, 0x1044, 1.5, 1.25, 0x3FC00000, 0x3FA00000, 2097152.0)
    buffer = BufferComparison(1, "parameter 0", 0x1000, 0, 64, "f32", 64, 16, 3, (element,))
    name = "kernel_with_a_name" * (9 if long else 1)
    result = LaunchResult(
        312, "launch", name, Verdict.DIFFERS, words, (4, 1, 1), (16, 16, 1), buffers=(buffer,)
    )
    runs = [
        Evidence("cpu", "cpu", "nvidia numerics", "holds", f"identical {n}", "nvidia") for n in range(many)
    ]
    runs.append(Evidence("cuda", "cuda:0", "", ABSENT, "no libcuda", "nvidia"))
    blame = Blame(312, name, Layer.CODE_GENERATION, Sure.LIKELY, words, words if long else "", tuple(runs))
    difference = Difference(
        kind=Kind.VALUE, ptx_line=41, text="add.rn.f32 %f3, %f1, %f2;", source="softmax.cu:12", function=name,
        register="%f3", type="f32", block=ORIGIN, thread=(17, 0, 0), occurrence=2,
        inputs=tuple(Input(f"%f{n}", "f32", "1.0 (0x3F800000)") for n in range(many)),
        device_a="cpu", device_b="gfx1030", value_a="1.5 (0x3FC00000)", value_b="1.25 (0x3FA00000)",
        bits_a=0x3FC00000, bits_b=0x3FA00000,
    )  # fmt: skip
    code = AmdCode("gfx1030", (41,), tuple(f"v_add_f32_e32 v{n}, v2, v3" for n in range(many)))
    answer = Answer(blame, result, difference if found else None, "" if found else words)
    return Explanation("trace.bin", "gfx1030", answer, "ieee-exact, 0 ULP", code if found else None)


def test_a_screen_has_all_of_it() -> None:
    text = "\n".join(explanation().lines())
    for part in (
        "#312 kernel_with_a_name <<<4, (16, 16, 1)>>> on gfx1030: differs",
        "element 17 of parameter 0 (f32, a guess): recorded 1.5, replayed 1.25",
        "(2.097e+06 ULP); 3 of 16 differ",
        "bound    ieee-exact, 0 ULP",
        "layer    code generation, likely: reason",
        "PTX      line 41 (softmax.cu:12): add.rn.f32 %f3, %f1, %f2;",
        "thread (17, 0, 0), time 3",
        "cpu: %f3 = 1.5 (0x3FC00000)",
        "gfx1030: %f3 = 1.25 (0x3FA00000)",
        "both: %f0 = 1.0",
        "v_add_f32_e32 v0, v2, v3",
        "not at hand: cuda:0",
    ):
        assert part in text, text


def test_it_fits_a_terminal() -> None:
    for found in (explanation(long=True), explanation(long=True, found=False)):
        lines = found.lines()
        assert len(lines) <= LINES and max(map(len, lines)) <= COLUMNS
        text = "\n".join(lines)
        assert "layer" in text and "more runs" in text
    lines = explanation(long=True).lines()
    assert any("more instructions" in line for line in lines)
    assert any(line.startswith("PTX") for line in lines)


def test_without_an_instruction_it_says_why() -> None:
    text = "\n".join(explanation(found=False).lines())
    assert "inside   no instruction: reason reason reason" in text


def test_json_has_the_same() -> None:
    told = explanation().to_json()
    assert (told["layer"], told["sure"], told["call"]) == ("code generation", "likely", 312)
    assert told["instruction"]["ptx_line"] == 41 and told["amd"]["instructions"]
    assert (told["recorded"], told["replayed"], told["buffer"]) == (1.5, 1.25, "parameter 0")
    assert [one["outcome"] for one in told["evidence"]] == ["holds", "absent"]
