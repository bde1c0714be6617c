"""The page in headless Chromium: opened from a file, used with the keyboard, on a desktop and on a phone."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_report import copy, launch, replay

from zluda.diff.results import LaunchResult, Verdict
from zluda.diff.values import compare
from zluda.report.html import write_page
from zluda.report.lines import Line, Listing

webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
axe_core = pytest.importorskip("axe_core_python.selenium", reason="axe-core-python is not installed")
CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")

pytestmark = pytest.mark.skipif(
    CHROMIUM is None or DRIVER is None, reason="no chromium and chromedriver: apt install chromium-driver"
)

DESKTOP, PHONE = (1200, 900), (390, 844)


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


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A page with all that there can be on one."""
    left = np.random.default_rng(1).standard_normal((64, 256)).astype("<f4")
    right = left.copy()
    right[16:32, 64:128] *= np.float32(1.0001)
    wrong = compare(left.tobytes(), right.tobytes(), "f32", base=0x1000, name="out", rows=(0, 1024))
    long_name = "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_15CUDAFunctor_addIfEEEEvi"
    results = [
        launch(3, recorded_seconds=1e-6, seconds=1.0),
        launch(20, Verdict.DIFFERS, buffers=(wrong,), recorded_seconds=30e-6, seconds=0.1),
        LaunchResult(100, "launch", long_name, Verdict.UNSUPPORTED, "tex.2d.v4.f32.f32"),
        copy(101),
    ]
    lines = tuple(
        Line(n, f"add.f32 %f{n}, %f1, %f2;", ("%v = fadd float",) * 3, ("v_add_f32",)) for n in range(99)
    )
    listing = Listing("scale", "gfx1030", lines, guilty=80, found="First differs at line 80.")
    place = tmp_path_factory.mktemp("page") / "a page.html"
    result = replay(*results, meta={"listings": {"scale": listing}, "command": ["./app", "x" * 200]})
    write_page([result], place, made_by="zluda replay 'my trace.bin' --html page.html")
    return place.as_uri()


def opened(browser: Any, page: str, size: tuple[int, int] = DESKTOP) -> Any:
    width, height = size
    metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": size == PHONE}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    browser.get(page)
    return browser


def keys(browser: Any, *names: str) -> None:
    from selenium.webdriver.common.action_chains import ActionChains

    for name in names:
        ActionChains(browser).send_keys(name).perform()


def column(browser: Any, number: int) -> list[str]:
    """The cells of a column of the list of launches, as they stand."""
    cells = (
        "return [...document.querySelector('table.launches').tBodies[0].rows].map(r => r.cells[%d].innerText)"
    )
    found: list[str] = browser.execute_script(cells % number)
    return found


def test_it_opens_from_a_file_without_an_error(browser: Any, page: str) -> None:
    opened(browser, page)
    assert [entry["message"] for entry in browser.get_log("browser")] == []
    assert browser.title == "zluda: 1 of 4 launches and copies differs on cpu"
    fetched = browser.execute_script("return performance.getEntriesByType('resource').length")
    assert fetched == 0


def test_no_script_but_its_own_runs(browser: Any, page: str) -> None:
    opened(browser, page)
    browser.execute_script(
        "const script = document.createElement('script');"
        "script.textContent = 'window.ran = 1'; document.body.append(script)"
    )
    assert browser.execute_script("return window.ran") is None


def test_tables_are_sorted_by_keyboard(browser: Any, page: str) -> None:
    from selenium.webdriver.common.keys import Keys

    opened(browser, page)
    assert column(browser, 0) == ["#3", "#20", "#100", "#101"]
    head = "document.querySelector('table.launches th:nth-child(%d)')"
    browser.execute_script(f"{head % 1}.querySelector('button').focus()")
    keys(browser, Keys.ENTER, Keys.ENTER)
    assert column(browser, 0) == ["#101", "#100", "#20", "#3"]  # as numbers
    assert browser.execute_script(f"return {head % 1}.ariaSort") == "descending"
    keys(browser, Keys.TAB, Keys.TAB, Keys.TAB, Keys.TAB, Keys.SPACE)  # the fifth column
    assert column(browser, 4) == ["✓ identical", "✓ identical", "? unsupported", "✗ differs"]
    assert browser.execute_script(f"return {head % 1}.ariaSort") == "none"
    assert browser.execute_script(f"return {head % 5}.ariaSort") == "ascending"


def test_everything_that_can_be_used_is_reached_by_tab_and_shows_it(browser: Any, page: str) -> None:
    from selenium.webdriver.common.keys import Keys

    opened(browser, page)
    usable = browser.execute_script(
        "return [...document.querySelectorAll('a[href], button, summary, select, [tabindex]')]"
        ".filter(e => e.checkVisibility({visibilityProperty: true})).length"
    )
    seen = set()
    for _ in range(usable):
        keys(browser, Keys.TAB)
        where = "const e = document.activeElement; return [[...document.querySelectorAll('*')].indexOf(e)"
        place, outline = browser.execute_script(f"{where}, getComputedStyle(e).outlineStyle]")
        assert outline != "none"
        seen.add(place)
    assert len(seen) == usable > 10


@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_nothing_scrolls_sideways_but_frames_that_say_so(
    browser: Any, page: str, size: tuple[int, int]
) -> None:
    opened(browser, page, size)
    browser.execute_script("document.querySelectorAll('details').forEach(d => d.open = true)")
    assert browser.execute_script("return document.documentElement.scrollWidth <= innerWidth")
    cut = browser.execute_script(
        "const framed = e => e.closest('.scroll, svg, .hidden, .lanes');"
        "return [...document.querySelectorAll('main *')]"
        ".filter(e => !framed(e) && e.getBoundingClientRect().right > innerWidth)"
        ".map(e => e.outerHTML.slice(0, 90))"
    )
    assert cut == []


def test_no_word_of_a_verdict_is_broken_on_a_phone(browser: Any, tmp_path: Path) -> None:
    page, gpu = tmp_path / "devices.html", {"device": "gfx1030", "emulated": True, "numerics": "native"}
    mixed = [launch(1), launch(2, Verdict.INHERITED), launch(3, Verdict.NOT_COMPARED)]
    write_page([replay(*mixed), replay(*mixed, **gpu)], page)  # type: ignore[arg-type]
    opened(browser, page.as_uri(), PHONE)
    broken = browser.execute_script(
        "return [...document.querySelectorAll('.chip')].flatMap(chip => {"
        "  const text = chip.firstChild, range = document.createRange();"
        "  return [...text.data.matchAll(/[a-z]+/g)].filter(word => {"
        "    range.setStart(text, word.index); range.setEnd(text, word.index + word[0].length);"
        "    return range.getClientRects().length > 1; }).map(word => word[0]); })"
    )
    assert broken == []
    assert browser.execute_script("return document.documentElement.scrollWidth <= innerWidth")


def test_a_phone_can_sort_too(browser: Any, page: str) -> None:
    from selenium.webdriver.support.select import Select

    opened(browser, page, PHONE)
    choice = browser.find_elements("css selector", ".sortby select")[-1]
    assert choice.is_displayed() and choice.accessible_name == "Sort by"
    Select(choice).select_by_visible_text("Call, descending")
    assert column(browser, 0) == ["#101", "#100", "#20", "#3"]
    Select(choice).select_by_visible_text("call order")
    assert column(browser, 0) == ["#3", "#20", "#100", "#101"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_barrier(browser: Any, page: str, scheme: str) -> None:
    """Names, roles, contrast, structure: the rules of axe-core."""
    media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    opened(browser, page)
    found = axe_core.Axe().run(browser)
    assert len(found["passes"]) > 20
    told = [(one["id"], one["help"], one["nodes"][0]["html"][:200]) for one in found["violations"]]
    assert told == []


def test_a_link_opens_what_it_leads_into_and_the_guilty_line_is_in_view(browser: Any, page: str) -> None:
    from selenium.webdriver.support.wait import WebDriverWait

    opened(browser, page)
    browser.execute_script("document.querySelectorAll('details').forEach(d => d.open = false)")
    browser.find_element("css selector", ".lanes a").click()
    kernel = browser.find_element("css selector", "details.kernel")
    WebDriverWait(browser, 10).until(lambda _: kernel.get_attribute("open") is not None)
    opened(browser, page)
    row, frame = (
        browser.execute_script("return document.querySelector(arguments[0]).getBoundingClientRect()", css)
        for css in (".lines .guilty", ".scroll.code")
    )
    assert frame["top"] <= row["top"] and row["bottom"] <= frame["bottom"]


def test_thousands_of_launches_are_sorted_at_once(browser: Any, tmp_path: Path) -> None:
    many = tmp_path / "many.html"
    write_page([replay(*(launch(call, seconds=1e-3) for call in range(4210)))], many)
    assert many.stat().st_size < 5_000_000
    opened(browser, many.as_uri())
    browser.execute_script("document.querySelectorAll('details').forEach(d => d.open = true)")
    button = "document.querySelector('table.launches th button')"
    browser.execute_script(f"{button}.click(); {button}.click()")
    assert column(browser, 0)[:2] == ["#4209", "#4208"]
