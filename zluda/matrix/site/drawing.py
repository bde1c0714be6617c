"""Pictures as SVG, each with a text that says the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from zluda.matrix.site.gather import Point, Step

_TONES = ("holds", "neutral", "unclear", "fails")  # from below
_WIDTH, _HEIGHT = 720, 160
_STRIP = 6  # height
_SPARK_WIDTH, _SPARK_HEIGHT = 160, 36


def _safe(text: str) -> Any:
    from markupsafe import Markup

    return Markup(text)


def _escape(text: str) -> str:
    from markupsafe import escape

    return str(escape(text))


def _svg(width: float, height: float, label: str, body: Iterable[str], kind: str) -> Any:
    return _safe(
        f'<svg class="{kind}" viewBox="0 0 {width:g} {height:g}" role="img" preserveAspectRatio="none"'
        f' aria-label="{_escape(label)}">{"".join(body)}</svg>'
    )


def area(series: Sequence[tuple[int, Counter[str]]]) -> Any:
    """Shares of cells by tone over runs, stacked: what holds below, what fails on top."""
    if not series:
        return ""
    width = _WIDTH / len(series)
    bottoms = [0.0] * len(series)
    body = []
    for tone in _TONES:
        tops = []
        for at, (_, counts) in enumerate(series):
            total = sum(counts.values()) or 1
            tops.append(bottoms[at] + counts[tone] / total)
        if any(top > bottom for top, bottom in zip(tops, bottoms, strict=True)):
            body.append(f'<path class="{tone}" d="{_steps(tops, bottoms, width)}"/>')
        bottoms = tops
    first, last = series[0], series[-1]
    label = f"Run {first[0]}: {words(first[1])}. Run {last[0]}: {words(last[1])}."
    return _svg(_WIDTH, _HEIGHT, label, body, "area")


def _steps(tops: Sequence[float], bottoms: Sequence[float], width: float) -> str:
    """A closed path along the tops and back along the bottoms; equal neighbours are one step."""

    def along(values: Sequence[float], *, back: bool) -> list[str]:
        points = []
        for at, value in enumerate(values):
            if at in (0, len(values) - 1) or value != values[at - 1] or value != values[at + 1]:
                y = _HEIGHT * (1 - value)
                points += [f"{at * width:.1f} {y:.1f}", f"{(at + 1) * width:.1f} {y:.1f}"]
        return points[::-1] if back else points

    return "M" + "L".join(along(tops, back=False) + along(bottoms, back=True)) + "Z"


def words(counts: Mapping[str, int]) -> str:
    """``3 hold, 1 fail``"""
    names = {"holds": "hold", "neutral": "as expected", "unclear": "cannot be told", "fails": "fail"}
    return ", ".join(f"{counts[tone]} {names[tone]}" for tone in _TONES if counts.get(tone)) or "no cells"


def strip(history: Sequence[Step], runs: Sequence[Mapping[str, Any]], tone_of: Any) -> Any:
    """A cell's states over the runs, the newest on the right."""
    places = {one["id"]: at for at, one in enumerate(runs)}
    known = [step for step in history if step.run in places]
    if not known:
        return ""
    body = []
    for at, step in enumerate(known):
        start = places[step.run]
        end = places[known[at + 1].run] if at + 1 < len(known) else len(runs)
        title = f"<title>{_escape(step.state)} from run {step.run}</title>"
        place = f'x="{start}" width="{end - start}" height="{_STRIP}"'
        body.append(f'<rect class="{tone_of(step.state)}" {place}>{title}</rect>')
    label = "; ".join(f"{step.state} from run {step.run}" for step in known[-5:])
    return _svg(len(runs), _STRIP, label, body, "strip")


def spark(series: Sequence[Point]) -> Any:
    """A kernel's medians run by run, from zero; a dot where its code changed."""
    if not series:
        return ""
    most = max(point.value for point in series) or 1
    width = (_SPARK_WIDTH - 8) / max(len(series) - 1, 1)
    places = [
        (4 + at * width, _SPARK_HEIGHT - 4 - (_SPARK_HEIGHT - 8) * point.value / most)
        for at, point in enumerate(series)
    ]
    path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in places)
    body = [f'<path class="line" d="{path}"/>']
    for at, point in enumerate(series):
        if at == 0 or point.code != series[at - 1].code:
            x, y = places[at]
            title = f"<title>run {point.run}: {point.value:.4g} {point.what}, code {point.code[:8]}</title>"
            body.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5">{title}</circle>')
    first, last = series[0], series[-1]
    label = f"{first.what}: {first.value:.4g} in run {first.run}, {last.value:.4g} in run {last.run}"
    return _svg(_SPARK_WIDTH, _SPARK_HEIGHT, label, body, "spark")
