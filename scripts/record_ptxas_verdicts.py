"""What ptxas says of a few thousand statements: ``tests/ptx/data/ptxas_verdicts.txt.gz``.

    python scripts/record_ptxas_verdicts.py --write     # needs ptxas

The statements are drawn from the instruction table as fuzzing draws them, and of each some have a modifier
left out, doubled, moved, or taken from another. The first line names ptxas's version and the target; each
other is ``+`` or ``-`` and a statement.
"""

from __future__ import annotations

import argparse
import gzip
import random
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests/fuzz"))

from programs import Program  # noqa: E402
from statements import MASK, Statement, all_rows, statement  # noqa: E402
from writing import alone  # noqa: E402

FILE = ROOT / "tests/ptx/data/ptxas_verdicts.txt.gz"
TARGET = "sm_100a"
EACH = 14
BATCH = 400
_ERROR = re.compile(r"line (\d+); (?:error|fatal)")


def statements(seed: int = 2) -> list[str]:
    """What is judged, each once."""
    rng = random.Random(seed)
    drawn = [
        made.text for row in all_rows() for _ in range(EACH) if (made := statement(rng, row)) is not None
    ]
    found = [text.replace(MASK, "%m") for text in drawn]
    return list(dict.fromkeys([*found, *(varied(rng, text, found) for text in found[::2])]))


def varied(rng: random.Random, text: str, others: list[str]) -> str:
    """The statement with one modifier of its first instruction changed."""
    dotted, blank, operands = text.partition(" ")
    words = dotted.split(".")
    if len(words) < 2 or not blank:
        return text
    at, other = rng.randrange(1, len(words)), rng.randrange(1, len(words))
    match rng.randrange(4):
        case 0:
            del words[at]
        case 1:
            words[at] = rng.choice(rng.choice(others).partition(" ")[0].split(".")[1:] or ["ftz"])
        case 2:
            words.insert(at, rng.choice(rng.choice(others).partition(" ")[0].split(".")[1:] or ["sat"]))
        case _:
            words[at], words[other] = words[other], words[at]
    if len(set(words)) < len(words) or "pred" in words:  # ptxas takes a flag twice, and .pred anywhere
        return text
    return ".".join(words) + blank + operands


def module(texts: list[str]) -> tuple[str, list[int]]:
    """One kernel a statement, and the line of each."""
    head, _, rest = alone(Program((Statement("HERE"),))).partition(".visible")
    lines, at = head.splitlines(), []
    for number, text in enumerate(texts):
        kernel = (".visible" + rest).replace(" k(", f" k{number}(").replace("HERE", text)
        at.append(len(lines) + kernel[: kernel.index(text)].count("\n") + 1)
        lines += kernel.splitlines()
    return "\n".join(lines) + "\n", at


def verdicts(texts: list[str]) -> list[bool]:
    """ptxas's word on each; what it complains of is taken out until it complains of nothing."""
    accepted = [True] * len(texts)
    while True:
        left = [i for i, good in enumerate(accepted) if good]
        text, lines = module([texts[i] for i in left])
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "a.ptx")
            file.write_text(text)
            command = ["ptxas", "-O0", f"-arch={TARGET}", str(file), "-o", str(Path(folder, "a.cubin"))]
            result = subprocess.run(command, capture_output=True, text=True)
        if result.returncode == 0:
            return accepted
        wrong = {int(line) for line in _ERROR.findall(result.stderr)}
        bad = [i for i, line in zip(left, lines, strict=True) if line in wrong]
        if not bad:
            if len(left) == 1:
                bad = left
            else:  # a fault that ptxas finds too late to name its line
                half = len(left) // 2
                for part in (left[:half], left[half:]):
                    for i, good in zip(part, verdicts([texts[i] for i in part]), strict=True):
                        accepted[i] = good
                return accepted
        for i in bad:
            accepted[i] = False


def version() -> str:
    """ptxas's version."""
    said = subprocess.run(["ptxas", "--version"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"V([\d.]+)", said)
    return found[1] if found else said.strip()


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    texts = statements()
    judged = [
        good for start in range(0, len(texts), BATCH) for good in verdicts(texts[start : start + BATCH])
    ]
    lines = [f"{'+' if good else '-'} {text}" for good, text in zip(judged, texts, strict=True)]
    if options.write:
        content = "\n".join([f"ptxas {version()} {TARGET}", *lines]) + "\n"
        FILE.write_bytes(gzip.compress(content.encode(), 9, mtime=0))
    print(f"{len(texts)} statements, {sum(judged)} accepted")


if __name__ == "__main__":
    main()
