"""Write the PTX of every form, and have the local ptxas judge it.

python tests/conformance/generate.py --list            names of all forms
python tests/conformance/generate.py --check           assemble every kernel with ptxas
python tests/conformance/generate.py --write DIRECTORY one .ptx a kernel
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from isa_forms import all_forms
from isa_forms.form import Form
from isa_forms.kernels import Group, groups


def rejected(group: Group, directory: Path) -> dict[str, str]:
    """Form name → ptxas's complaint; empty when the kernel assembles."""
    path = directory / "kernel.ptx"
    text = group.ptx()
    path.write_text(text)
    command = ["ptxas", f"-arch={group.target}", "-O0", "-o", str(directory / "kernel.cubin"), str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return {}
    complaints: dict[str, str] = {}
    owner = _owner_of_lines(group, text)
    for line in (done.stdout + done.stderr).splitlines():
        if match := re.search(r"line (\d+); (.*)", line):
            complaints.setdefault(owner.get(int(match[1]), group.name), match[2])
    return complaints or {group.name: done.stderr}


def _owner_of_lines(group: Group, text: str) -> dict[int, str]:
    owners: dict[int, str] = {}
    names = iter(form.name for form in group.forms)
    current = ""
    inside = False
    for number, line in enumerate(text.splitlines(), 1):
        if line == "\t{":
            current, inside = next(names), True
        if inside:
            owners[number] = current
        if line == "\t}":
            inside = False
    return owners


def check(forms: Iterable[Form]) -> int:
    """Assemble everything; prints what ptxas refuses. Returns how many forms were refused."""
    bad: dict[str, str] = {}
    made = groups(forms)
    with tempfile.TemporaryDirectory() as directory:
        for group in made:
            bad.update(rejected(group, Path(directory)))
    for name, complaint in bad.items():
        print(f"{name}: {complaint}")
    print(f"{len(made)} kernels, {sum(len(g.forms) for g in made)} forms, {len(bad)} refused")
    return len(bad)


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--forms", default="", metavar="REGEX", help="only forms whose name matches")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--write", type=Path, metavar="DIRECTORY")
    options = parser.parse_args()
    forms = [form for form in all_forms(awaiting=True) if re.search(options.forms, form.name)]
    if options.list:
        print("\n".join(form.name for form in forms))
    if options.write:
        options.write.mkdir(parents=True, exist_ok=True)
        for number, group in enumerate(groups(forms)):
            (options.write / f"{number:03}.ptx").write_text(f"// {group.name}\n{group.ptx()}")
    return 1 if options.check and check(forms) else 0


if __name__ == "__main__":
    sys.exit(main())
