"""The page in a real browser: Debian's Chromium, driven by Selenium. Skips where either is missing."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fgmix.report.page import write_report
from fgmix.results.read import read_runs
from report import folders
from report.test_serve import served
from results.made import finished

selenium = pytest.importorskip("selenium")
CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = [
    pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="no chromium and chromedriver here"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # selenium's own sockets
]
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM or ""
    for flag in FLAGS:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(executable_path=DRIVER))
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = folders.write(tmp_path_factory.mktemp("report") / "runs", folders.records(), waiting=1)
    folders.add_figures(folder)
    return write_report(read_runs(folder))


@pytest.fixture(autouse=True)
def _on_a_desk(browser: Any) -> None:
    """A wide, light screen, whatever the test before emulated."""
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": []})
    browser.set_window_size(1300, 900)


@pytest.fixture
def page(browser: Any, file: Path) -> Any:
    """The page from file://, freshly opened."""
    show(browser, file.as_uri())
    return browser


def show(browser: Any, address: str) -> None:
    """Open a page and wait for its list of runs, which is unpacked after the rest is drawn."""
    browser.get(address)
    browser.execute_async_script("runsLoaded.then(arguments[0])")


def find(page: Any, selector: str) -> list[Any]:
    found: list[Any] = page.find_elements("css selector", selector)
    return found


def script(page: Any, code: str, *arguments: Any) -> Any:
    return page.execute_script(code, *arguments)


def first_column(page: Any, table: str) -> list[str]:
    return [cell.text for cell in find(page, f"{table} tbody tr:not([hidden]) > th")]


def test_no_error_and_nothing_fetched(page: Any, file: Path) -> None:
    page.get_log("browser")
    page.get_log("performance")
    page.get(file.as_uri())
    assert [entry for entry in page.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")] == []
    requests = [
        entry["message"] for entry in page.get_log("performance") if "Network.requestWillBeSent" in entry["message"]
    ]
    outside = [message for message in requests if '"url":"file:' not in message and '"url":"data:' not in message]
    assert outside == []


def test_tables_sort_both_ways_and_filter(page: Any) -> None:
    table = "#results table.sortable"
    button = find(page, f"{table} thead button")[1]
    assert first_column(page, table)[:3] == ["ERM", "Mixup †", "FGMix ▲"]
    button.click()
    assert first_column(page, table)[:3] == ["FGMix ▲", "Mixup †", "ERM"]  # the highest first
    assert button.find_element("xpath", "..").get_attribute("aria-sort") == "descending"
    button.click()
    assert first_column(page, table)[:3] == ["ERM", "Mixup †", "FGMix ▲"]


def test_tables_of_many_rows_filter_and_sort_by_words(browser: Any, tmp_path: Path) -> None:
    from results.made import sweep

    names = ("erm", "mixup", "coral", "fish", "fgmix", "irm", "mmd", "sd", "vrex")
    found = sweep({name: [[0.5 + 0.01 * i] * 3] * 2 for i, name in enumerate(names)})
    folder = folders.write(tmp_path / "runs", found)
    show(browser, write_report(read_runs(folder)).as_uri())
    find(browser, "#results .unit:nth-of-type(1) input.filter")[0].send_keys("fi")
    assert first_column(browser, "#results .unit:nth-of-type(1) table") == ["fish †"]


def test_differences_are_one_line_each_with_marks_and_the_largest_first(page: Any) -> None:
    table = "#results section:has(#Significance-tests-fgmix) table"
    assert first_column(page, table)[0].startswith("FGMix ▲")
    assert {row.size["height"] for row in find(page, f"{table} tbody tr")} == {33}


@pytest.mark.parametrize("width", [1280, 800, 390])
def test_the_average_is_in_sight_before_and_after_sorting(browser: Any, tmp_path: Path, width: int) -> None:
    """With six domains of long names, as in DomainNet."""
    domains = [f"{letter}_long_domain" for letter in "abcdef"]
    found = [
        finished(test, 0.5, domains=" ".join(domains), algorithm=name) for test in domains for name in ("erm", "mmd")
    ]
    folder = folders.write(tmp_path / "runs", found)
    metrics = {"width": width, "height": 844, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    show(browser, write_report(read_runs(folder)).as_uri())
    head = find(browser, "#results table.averaged thead th:last-child")[0]
    before = head.rect
    assert 0 < before["x"] < before["x"] + before["width"] <= width
    script(browser, "arguments[0].click()", head.find_element("css selector", "button"))
    assert head.rect == before  # the arrow has its place
    assert script(browser, "return document.documentElement.scrollWidth") <= width
    scales = "return [...document.querySelectorAll('.panel svg')].map((s) => s.clientWidth / s.viewBox.baseVal.width)"
    assert min(script(browser, scales)) > 0.8  # names of 11 pixels are legible


def test_a_table_is_copied_and_a_row_has_a_link(page: Any) -> None:
    csv = script(page, "return writeCsv(document.querySelector('#results table'))").splitlines()
    assert csv[0].startswith('"Method","a"')
    assert csv[1].startswith('"ERM","')
    assert script(page, "return LATEX[0]").count(r"\\") >= 4
    link = find(page, "#results a.row-link")[0].get_attribute("href")
    assert find(page, f"tr#{link.partition('#')[2]}")[0].text.startswith("ERM")


def test_columns_of_runs_are_chosen(page: Any) -> None:
    heads = [each.text for each in find(page, "#run-list thead th")]
    assert "Steps" not in heads
    script(page, "arguments[0].click()", find(page, "#run-list .columns input")[-4])  # Steps
    assert [each.text for each in find(page, "#run-list thead th")] == [*heads, "Steps"]


def test_curves_of_two_runs_are_drawn_together(page: Any) -> None:
    for box in find(page, "#run-list input.compare")[:2]:
        box.click()
    names = [each.text for each in find(page, "#comparison .legend button")]
    assert len(names) == 2
    assert len(find(page, "#comparison .panel:first-child path.line")) == 2  # of the test domains alone
    find(page, "#run-list input.compare")[0].click()
    assert not find(page, "#comparison")[0].is_displayed()


def test_the_list_of_runs_sorts_filters_and_opens(page: Any) -> None:
    rows = "#run-list tbody tr"
    assert len(find(page, rows)) == 36
    find(page, "#run-list thead button")[5].click()
    assert find(page, f"{rows}:first-child")[0].text.startswith("FGMix toy c 3")
    find(page, "#run-list input.filter")[0].send_keys("mixup toy")
    assert len(find(page, rows)) == 12
    find(page, f"{rows} button")[0].click()
    details = find(page, "#run-list tr.details")[0]
    assert "fgmix train --dataset toy --algorithm mixup" in details.text
    assert details.find_elements("css selector", "svg")


def test_the_list_of_runs_rounds_as_the_tables_do(browser: Any, tmp_path: Path) -> None:
    """6.25 is a tie, which JavaScript would round up."""
    folder = folders.write(tmp_path / "runs", [finished("a", 0.0625)])
    show(browser, write_report(read_runs(folder)).as_uri())
    assert find(browser, "#results tbody td")[0].text == "6.2"
    assert find(browser, "#run-list tbody td")[4].text == "6.2"


def test_a_number_leads_to_its_runs(page: Any) -> None:
    link = find(page, '#results a[data-algorithm="fgmix"][data-domain="b"]')[0]
    script(page, "arguments[0].click()", link)
    assert len(find(page, "#run-list tbody tr")) == 4
    find(page, "#run-list .tools button")[0].click()
    assert len(find(page, "#run-list tbody tr")) == 36


def test_every_figure_is_drawn_and_reacts(page: Any) -> None:
    for figure in find(page, "figure.chart"):
        assert figure.find_elements("css selector", ".panel svg"), figure.get_attribute("id")
        assert "NaN" not in figure.get_attribute("innerHTML"), figure.get_attribute("id")
    tsne = "[id$=Embedding]"
    assert "off" not in (find(page, f"{tsne} g[data-name=art]")[0].get_attribute("class") or "")
    script(page, "arguments[0].click()", find(page, f"{tsne} .legend button")[0])
    assert find(page, f"{tsne} g[data-name=art]")[0].get_attribute("class") == "off"


def test_hovering_over_a_point_shows_it_and_lights_it_in_every_panel(page: Any) -> None:
    point = find(page, "[id$=Embedding] path.point[data-key]")[0]
    hover(page, point)
    tooltip = find(page, "#tooltip")[0]
    assert tooltip.is_displayed()
    assert "art, sample 0" in tooltip.text
    key = point.get_attribute("data-key")
    lit = find(page, "[id$=Embedding] .lit")
    assert len(lit) == 2
    assert {node.get_attribute("data-key") for node in lit} == {key}
    picture = find(page, "#tooltip .picture")[0]
    assert "data:image/png" in picture.value_of_css_property("background-image")


def hover(page: Any, node: Any) -> None:
    """Bring a node into view and, once the page stands still, move the pointer over it."""
    page.execute_async_script(
        """
        const [node, done] = arguments;
        node.scrollIntoView({block: "center"});
        requestAnimationFrame(() => requestAnimationFrame(() => {
            const at = node.getBoundingClientRect();
            const place = {clientX: at.x + at.width / 2, clientY: at.y + at.height / 2};
            node.dispatchEvent(new PointerEvent("pointermove", {bubbles: true, ...place}));
            done();
        }));
        """,
        node,
    )


def test_a_finger_near_a_point_shows_it_and_it_stays(page: Any) -> None:
    metrics = {"width": 390, "height": 844, "deviceScaleFactor": 2, "mobile": True}
    page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    page.refresh()
    point = find(page, "[id$=Embedding] path.point[data-key]")[0]
    script(page, "arguments[0].scrollIntoView({block: 'center'})", point)
    still = "const done = arguments[0]; requestAnimationFrame(() => requestAnimationFrame(done))"
    page.execute_async_script(still)
    at = script(
        page, "const r = arguments[0].getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2]", point
    )
    touch = {"x": at[0] + 7, "y": at[1]}
    page.execute_cdp_cmd("Input.dispatchTouchEvent", {"type": "touchStart", "touchPoints": [touch]})
    page.execute_cdp_cmd("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
    page.execute_async_script(still)
    assert find(page, "#tooltip")[0].is_displayed()
    assert find(page, "#tooltip .picture")


def test_a_figure_that_cannot_be_drawn_leaves_the_others(browser: Any, file: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken.html"
    broken.write_text(file.read_text().replace('"kind":"Points"', '"kind":"Nonsense"', 1))
    show(browser, broken.as_uri())
    assert "cannot be drawn" in find(browser, "#results")[0].text  # the first figure of the page
    assert len(find(browser, "#run-list tbody tr")) == 36


def test_a_phone_need_not_scroll_sideways(page: Any) -> None:
    metrics = {"width": 390, "height": 844, "deviceScaleFactor": 2, "mobile": True}
    page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    page.refresh()
    assert script(page, "return document.documentElement.scrollWidth") <= 390


def test_on_a_phone_the_first_column_stays_where_it_is(page: Any) -> None:
    metrics = {"width": 390, "height": 844, "deviceScaleFactor": 2, "mobile": True}
    page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    show(page, page.current_url)
    places = """
        const scroller = document.querySelector("#runs .scroll");
        scroller.scrollLeft = 150;
        const cells = [...scroller.querySelectorAll("th:first-child")].map((cell) => cell.getBoundingClientRect());
        return [scroller.scrollLeft, new Set(cells.map(({ left, width }) => `${left} ${width}`)).size];
    """
    assert script(page, places) == [150, 1]


def test_a_table_stands_beside_its_figure_on_a_wide_screen_only(page: Any) -> None:
    lefts = """
        const { children } = document.querySelector("#results .unit");
        return [...children].map((each) => each.getBoundingClientRect().left);
    """
    table, figure = script(page, lefts)
    assert figure > table + 300
    page.set_window_size(800, 900)
    table, figure = script(page, lefts)
    assert figure == table


def test_dark_is_dark_and_print_is_light(page: Any) -> None:
    background = "return getComputedStyle(document.body).backgroundColor"
    assert script(page, background) == "rgb(255, 255, 255)"
    dark = {"name": "prefers-color-scheme", "value": "dark"}
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "screen", "features": [dark]})
    assert script(page, background) == "rgb(20, 24, 29)"
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print", "features": [dark]})
    assert script(page, background) == "rgb(255, 255, 255)"
    assert script(page, "return getComputedStyle(document.querySelector('nav')).display") == "none"


def test_nasty_texts_stay_texts(browser: Any, tmp_path: Path) -> None:
    from results.made import finished

    nasty = [finished("a", 0.5, dataset=folders.NASTY, algorithm=name) for name in ("erm", folders.NASTY)]
    folder = folders.write(tmp_path / "runs", nasty)
    browser.get_log("browser")
    show(browser, write_report(read_runs(folder)).as_uri())
    for button in find(browser, "#run-list tbody button"):
        button.click()
    assert find(browser, "img") == []
    assert folders.NASTY in find(browser, "#results")[0].text
    assert [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == []


def test_a_served_page_follows_its_sweep(browser: Any, tmp_path: Path) -> None:
    from selenium.webdriver.support.ui import WebDriverWait

    folder = folders.write(tmp_path / "runs", folders.records()[:1], waiting=2)
    folders.finish(folder / "extra", folders.records()[5])  # not of the sweep's plan
    with served(folder) as port:
        show(browser, f"http://127.0.0.1:{port}/")
        assert len(find(browser, "#run-list tbody tr")) == 2
        find(browser, "#run-list thead button")[0].click()  # sorted: a reload would undo it
        folders.finish(folder / "waiting0", folders.records()[1])
        WebDriverWait(browser, 30).until(lambda b: find(b, "#reload"))
        find(browser, "#reload")[0].click()
        WebDriverWait(browser, 30).until(lambda b: "2 done" in find(b, "#counts")[0].text)
        WebDriverWait(browser, 30).until(lambda b: len(find(b, "#run-list tbody tr")) == 3)
        folders.finish(folder / "waiting1", folders.records()[2])
        WebDriverWait(browser, 30).until(lambda b: len(find(b, "#run-list tbody tr")) == 4)  # by itself
    assert [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == []
