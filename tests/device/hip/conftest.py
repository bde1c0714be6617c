"""The stand-in HSA runtime, built once; where what it needs is missing, its tests are skipped."""

from __future__ import annotations

import pytest
from hip_standin import StandIn, build, missing


@pytest.fixture(scope="session")
def standin(tmp_path_factory: pytest.TempPathFactory) -> StandIn:
    if missing():
        pytest.skip(
            f"needs {missing()} (scripts/ci_packages.sh installs packages): the hip device is not run"
        )
    return build(tmp_path_factory.mktemp("hsa"))


@pytest.fixture
def gpu(request: pytest.FixtureRequest, standin: StandIn, monkeypatch: pytest.MonkeyPatch) -> str:
    """Runners started from here find a GPU of this target (the fixture's parameter, or gfx1030)."""
    target: str = getattr(request, "param", "gfx1030")
    for name, value in standin.environment(target).items():
        monkeypatch.setenv(name, value)
    return target
