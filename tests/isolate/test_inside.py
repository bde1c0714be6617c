"""Which two devices are compared inside a launch: one that is right, the best judge first, and the one at
fault."""

from __future__ import annotations

import pytest

from zluda.diff.blame import Blame, Evidence, Layer, Sure
from zluda.errors import Error
from zluda.isolate.inside import runs_apart
from zluda.isolate.layers.probes import Run
from zluda.isolate.layers.search import Answer


def _answer(**outcomes: str) -> Answer:
    devices = {"exact": "gfx1030", "cuda": "cuda:0"}
    evidence = tuple(
        Evidence(probe, devices.get(probe, probe), "", outcome, "", numerics="nvidia")
        for probe, outcome in outcomes.items()
    )
    return Answer(Blame(17, "k", Layer.LOWERING, Sure.LIKELY, "", evidence=evidence))


@pytest.mark.parametrize(
    ("outcomes", "right"),
    [
        ({"exact": "fails", "cpu": "fails", "interpreter": "holds"}, "interpreter"),
        ({"exact": "fails", "cpu": "fails", "interpreter": "holds", "cuda": "holds"}, "cuda:0"),
        ({"exact": "fails", "interpreter": "holds", "cpu": "holds"}, "cpu"),
    ],
)
def test_the_right_device_is_the_best_judge_that_holds(outcomes: dict[str, str], right: str) -> None:
    assert runs_apart(_answer(**outcomes)) == (Run(right, "nvidia"), Run("gfx1030", "nvidia"))


def test_where_the_interpreter_cannot_tell_nobody_is_taken_for_right() -> None:
    with pytest.raises(Error, match="on no device at hand"):
        runs_apart(_answer(exact="fails", cpu="fails", interpreter="untold"))
