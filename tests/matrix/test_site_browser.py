"""The site in headless Chromium: opened from files, filtered, used with the keyboard, on a phone."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from matrix_nights import stored_night

from zluda.matrix.site import write_site
from zluda.matrix.store import Store

webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
axe_core = pytest.importorskip("axe_core_python.selenium", reason="axe-core-python is not installed")
CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")

pytestmark = [
    pytest.mark.skipif(
        CHROMIUM is None or DRIVER is None, reason="no chromium and chromedriver: apt install chromium-driver"
    ),
    pytest.mark.xdist_group("browser"),
]
PAGES = ("index.html", "features.html", "trends.html", "programs/p1.html")
DEVICES = ("cpu", "gfx1030", "gfx1100", "gfx90a", "cuda:0", "nvptx:0")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Forty programs on six devices; something fails, is new, is slower."""
    place = tmp_path_factory.mktemp("site")
    cells = {(f"p{number}", device): "identical" for number in range(40) for device in DEVICES}
    with Store(str(place / "nights.db"), create=True) as store:
        stored_night(store, cells, instructions=[1000], started="2026-11-29T03:00:00+00:00")
        cells |= {
            ("p1", "gfx1030"): "differs",
            ("p2", "gfx90a"): "unsupported",
            ("a new one", "cpu"): "crash",
        }
        reason = "#17 " + "_ZN2at6native29vectorized_elementwise_kernel" * 5 + ": differs"
        stored_night(
            store, cells, code="c1", instructions=[1000], started="2026-11-30T03:00:00+00:00", reason=reason
        )
        write_site(store, place / "a site", 2)
    return place / "a site"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    # Its sandbox refuses to run as root, and /dev/shm is small in containers.
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    driver.set_page_load_timeout(60)
    yield driver
    driver.quit()


def _open(browser: Any, address: str, *, width: int = 1200) -> None:
    metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    browser.get("about:blank")  # so that a page with another fragment is loaded anew
    browser.get(address)


def _rows(browser: Any) -> list[str]:
    script = (
        "return [...document.querySelectorAll('#matrix tbody tr:not([hidden]) th')].map(th => th.innerText)"
    )
    return [str(text).strip() for text in browser.execute_script(script)]


def _type(browser: Any, *keys: str) -> None:
    from selenium.webdriver.common.action_chains import ActionChains

    ActionChains(browser).send_keys(*keys).perform()


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_sound_at_both_widths(browser: Any, site: Path, name: str) -> None:
    for width in (1200, 390):
        _open(browser, (site / name).as_uri(), width=width)
        assert browser.execute_script("return document.documentElement.scrollWidth <= innerWidth"), width
        assert browser.get_log("browser") == []
    found = axe_core.Axe().run(browser)
    assert [(one["id"], one["nodes"][0]["html"][:200]) for one in found["violations"]] == []


def test_filters_leave_the_rows_that_are_asked_for(browser: Any, site: Path) -> None:
    from selenium.webdriver.common.by import By
    from selenium.webdriver.support.select import Select

    _open(browser, (site / "index.html").as_uri())
    assert len(_rows(browser)) == 41
    browser.find_element(By.NAME, "text").send_keys("P1")
    assert len(_rows(browser)) == 11  # p1, p10 to p19
    Select(browser.find_element(By.NAME, "state")).select_by_value("differs")
    assert _rows(browser) == ["p1"]
    assert browser.find_element(By.ID, "shown").text == "1 of 41 programs"
    again = browser.current_url
    Select(browser.find_element(By.NAME, "device")).select_by_visible_text("cpu nvidia")
    assert _rows(browser) == []
    _open(browser, again)  # filters are in the address
    assert _rows(browser) == ["p1"]
    browser.find_element(By.CSS_SELECTOR, "button[type=reset]").click()
    assert len(_rows(browser)) == 41
    Select(browser.find_element(By.NAME, "feature")).select_by_visible_text("shuffle")
    assert len(_rows(browser)) == 41
    Select(browser.find_element(By.NAME, "state")).select_by_value("crash")
    assert _rows(browser) == ["a new one"]


def test_a_red_cell_is_reached_by_keyboard_alone(browser: Any, site: Path) -> None:
    from selenium.webdriver.common.keys import Keys

    _open(browser, (site / "index.html").as_uri())
    _type(browser, Keys.TAB, Keys.TAB, Keys.ENTER)  # skip to the matrix
    for _ in range(5):
        _type(browser, Keys.TAB)
        if browser.execute_script("return document.activeElement.name") == "text":
            break
    _type(browser, "p1")
    _type(browser, Keys.TAB, "dif")  # the state whose name begins so
    assert _rows(browser) == ["p1"]
    for _ in range(60):
        _type(browser, Keys.TAB)
        active = "return document.activeElement"
        if "differs" in (browser.execute_script(f"{active}.title") or ""):
            break
    outline = browser.execute_script(f"return getComputedStyle({active[7:]}).outlineStyle")
    assert outline == "solid"  # where one is can be seen
    _type(browser, Keys.ENTER)
    assert "/programs/p1.html#gfx1030-nvidia" in browser.current_url
    assert "--explain 17" in browser.execute_script("return document.querySelector(':target').innerText")
