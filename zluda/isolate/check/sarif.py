"""A preflight as SARIF 2.1.0 (OASIS, Static Analysis Results Interchange Format), which code hosts show.

Findings stand at lines of PTX. A module inside another file is an artifact nested in that file's (SARIF
3.24.5, ``parentIndex``, with its byte ``offset``).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import quote

import zluda
from zluda.isolate.check.results import Finding, Kind, ModuleReport, Report

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/os/schemas/sarif-schema-2.1.0.json"
_RULES = {kind: index for index, kind in enumerate(Kind)}


def sarif(report: Report) -> dict[str, Any]:
    """One log of one run; JSON can hold it."""
    artifacts: list[dict[str, Any]] = []
    results: list[dict[str, Any]] = []
    notifications: list[dict[str, Any]] = []
    for file in report.files:
        whole = len(artifacts)
        artifacts.append({"location": {"uri": _uri(file.path)}})
        if file.problem:
            notifications.append(_notification(file.problem, whole, file.path))
        places = {id(one): _place(one, file.path, whole, artifacts) for one in file.modules if one.findings}
        for module, finding in file.every_finding():
            where = whole if module is None else places[id(module)]
            results.append(_result(finding, where, artifacts))
    run: dict[str, Any] = {
        "tool": {"driver": _driver()},
        "columnKind": "unicodeCodePoints",
        "invocations": [
            {
                "executionSuccessful": report.exit_status != 2,
                "exitCode": report.exit_status,
                "toolExecutionNotifications": notifications,
            }
        ],
        "artifacts": artifacts,
        "results": results,
        "properties": {"targets": {one.target: one.as_dict() for one in report.verdicts}},
    }
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}


def _driver() -> dict[str, Any]:
    return {
        "name": "zluda check",
        "version": zluda.__version__,
        "rules": [
            {
                "id": kind.value,
                "shortDescription": {"text": kind.meaning},
                "defaultConfiguration": {"level": kind.level},
            }
            for kind in Kind
        ],
    }


def _place(module: ModuleReport, path: str, whole: int, artifacts: list[dict[str, Any]]) -> int:
    """The index of a module's artifact: the file itself where the module is all of it."""
    if module.name == path:
        return whole
    artifacts.append(
        {
            "location": {"uri": f"{_uri(path)}{quote(module.name.removeprefix(path))}"},
            "parentIndex": whole,
            "offset": module.offset,
        }
    )
    return len(artifacts) - 1


def _uri(path: str) -> str:
    """A relative reference for a relative path."""
    return Path(path).as_uri() if Path(path).is_absolute() else quote(path)


def _location(index: int, artifacts: list[dict[str, Any]]) -> dict[str, Any]:
    return {"uri": artifacts[index]["location"]["uri"], "index": index}


def _result(finding: Finding, index: int, artifacts: list[dict[str, Any]]) -> dict[str, Any]:
    physical: dict[str, Any] = {"artifactLocation": _location(index, artifacts)}
    if finding.line:
        physical["region"] = {"startLine": finding.line}
        if finding.text:
            physical["region"]["snippet"] = {"text": finding.text}
    location: dict[str, Any] = {"physicalLocation": physical}
    named = finding.function or finding.kernel
    if named:
        location["logicalLocations"] = [{"name": named, "kind": "function"}]
    text = f"{finding.what} (on {', '.join(finding.targets)})" if finding.targets else finding.what
    return {
        "ruleId": finding.kind.value,
        "ruleIndex": _RULES[finding.kind],
        "level": finding.kind.level,
        "message": {"text": text},
        "locations": [location],
        "occurrenceCount": max(finding.count, 1),
        "properties": {"targets": list(finding.targets), "kernel": finding.kernel},
    }


def _notification(text: str, index: int, path: str) -> dict[str, Any]:
    return {
        "level": "error",
        "message": {"text": text},
        "locations": [{"physicalLocation": {"artifactLocation": {"uri": _uri(path), "index": index}}}],
    }
