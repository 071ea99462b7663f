"""Pages in a real browser: nothing is fetched, nothing goes wrong, and everything that can be pressed works."""

import csv
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest
from made_up import (
    HOSTILE,
    LABELS,
    METHODS,
    predictions,
    write_comparison,
    write_rank,
    write_rows,
    write_run,
    write_search,
)

from crosstask.report import write_page
from crosstask.runs.record import PREDICTIONS_FILE

pytest.importorskip("altair")
pytest.importorskip("vl_convert")
SVG = "{http://www.w3.org/2000/svg}"
ALL_DRAWN = "[...document.querySelectorAll('[data-chart]')].every((place) => place.querySelector('svg'))"
PATIENCE = 60_000  # milliseconds; a busy machine is no failure


@pytest.fixture(scope="session")
def pages(tmp_path_factory) -> dict[str, Path]:
    """The page of a comparison and of a search whose target has a hostile name, and that of a run."""
    folder = tmp_path_factory.mktemp("pages")
    tasks = {"sources": ("polarity", "topic"), "updates": 30}
    write_comparison(folder / "c", (HOSTILE,), methods=("single", "joint", "joint+tawt"), seeds=3, **tasks)
    write_run(folder / "run", ["stars", "polarity", HOSTILE], "stars", updates=30)
    for name, target in (("c", HOSTILE), ("run", "stars")):
        write_rank(folder / name, target)
    search = write_search(folder / "search", HOSTILE)
    write_page(search / "run")
    return {name: write_page(folder / name) for name in ("c", "run", "search")}


@pytest.fixture
def visit(browser):
    """A function that opens a page and waits for its charts; whatever goes wrong meanwhile fails the test."""
    contexts, wrong = [], []

    def answer(route):
        if route.request.url.startswith(("file:", "data:", "blob:")):
            route.continue_()
        else:
            wrong.append(f"request: {route.request.url}")
            route.abort()

    def open_page(path, **options):
        context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})
        context.set_default_timeout(PATIENCE)
        contexts.append(context)
        page = context.new_page()
        page.route("**/*", answer)
        page.on("console", lambda said: wrong.append(said.text) if said.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("dialog", lambda dialog: (wrong.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        page.goto(path.as_uri())
        page.wait_for_function(ALL_DRAWN)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert wrong == []


def column(page, table, number):
    cells = page.locator(f"{table} tbody tr > :nth-child({number})")
    return [text.strip() for text in cells.all_inner_texts()]


@pytest.mark.parametrize("name", ["c", "run"])
def test_charts_are_drawn_and_names_are_text(visit, pages, name):
    page = visit(pages[name])
    assert page.locator("[data-chart] svg").count() == page.locator("[data-chart]").count() > 5
    assert page.locator("[data-chart] svg path").count() > 20
    text = page.locator("body").inner_text()
    assert HOSTILE in text
    for label in LABELS:
        assert label in text
    assert page.locator("main img, main script").count() == 0
    heat_map = page.locator("[data-name^=confusion] svg").text_content()
    assert all(label in heat_map for label in LABELS)


def test_tables_sort_by_mouse_and_by_keyboard(visit, pages):
    page = visit(pages["c"])
    table = "section:first-of-type table"
    score = page.locator(f"{table} thead th:nth-child(2)")
    before = column(page, table, 2)
    score.get_by_role("button").click()
    assert score.get_attribute("aria-sort") == "descending"
    assert column(page, table, 2) == sorted(before, reverse=True)
    page.keyboard.press("Enter")
    assert score.get_attribute("aria-sort") == "ascending"
    assert column(page, table, 2) == sorted(before)
    gain = page.locator(f"{table} thead th:nth-child(3)")
    gain.get_by_role("button").press("Space")
    assert (score.get_attribute("aria-sort"), gain.get_attribute("aria-sort")) == (None, "descending")
    assert column(page, table, 3)[-1] == ""  # what has no value stays last
    page.locator(f"{table} thead th:nth-child(1)").get_by_role("button").click()
    assert column(page, table, 1) == ["joint", "joint+tawt", "single"]


def test_numbers_sort_as_numbers(visit, pages):
    page = visit(pages["run"])
    page.evaluate(
        "document.querySelector('main').insertAdjacentHTML('beforeend', "
        "'<p id=order></p><table id=t data-sortable><thead><tr><th>x<tbody>"
        "<tr><td>1,234<tr><td>9<tr><td>–<tr><td>-0.5 ± 1<tr><td>< 0.001</table>')"
    )
    page.evaluate("const t = document.getElementById('t'); sortBy(t, 0, 1)")
    assert column(page, "#t", 1) == ["-0.5 ± 1", "< 0.001", "9", "1,234", "–"]


def test_a_tooltip_says_what_a_mark_is(visit, pages):
    page = visit(pages["c"])
    page.locator("[data-name^=scores] svg .mark-symbol path").last.hover()  # the one on top
    shown = page.locator("#vg-tooltip-element.visible")
    shown.wait_for()
    assert "joint+tawt" in shown.inner_text()
    assert "seed" in shown.inner_text()


def test_charts_and_their_data_can_be_saved(visit, pages, tmp_path):
    page = visit(pages["c"])
    saved = {}
    for name, form in (("scores", "svg"), ("scores", "csv"), ("losses", "csv"), ("confusion", "csv")):
        figure = page.locator("figure", has=page.locator(f"[data-name^={name}]")).first
        with page.expect_download() as download:
            figure.locator(f"[data-save={form}]").click()
        saved[name, form] = tmp_path / f"{name}.{form}"
        download.value.save_as(saved[name, form])
        assert download.value.suggested_filename.endswith(f".{form}")
        assert not set("<>/ ") & set(download.value.suggested_filename)
    drawing = ElementTree.parse(saved["scores", "svg"]).getroot()
    assert drawing.tag == f"{SVG}svg"
    assert "joint+tawt" in "".join(drawing.itertext())

    def rows(name):
        with saved[name, "csv"].open(encoding="utf-8-sig", newline="") as file:
            return list(csv.DictReader(file))

    assert {(row["method"], row["seed"]) for row in rows("scores")} == {
        (method, str(seed)) for method in ("single", "joint", "joint+tawt") for seed in range(3)
    }
    assert {row["series"] for row in rows("losses")} == {"training loss", "dev loss"}
    assert {row["gold"] for row in rows("confusion")} == set(LABELS)


def test_a_spreadsheet_runs_nothing_of_the_data(visit, tmp_path):
    labels = ("=1+1", "@x", "-cmd()", "+cmd()", "-1.5", "plain")
    folder = write_run(tmp_path / "run", ["stars", "polarity"], "stars", updates=30)
    write_rows(folder / PREDICTIONS_FILE, predictions("stars", 0.5, labels=labels))
    page = visit(write_page(folder))
    figure = page.locator("figure", has=page.locator("[data-name^=confusion]")).first
    with page.expect_download() as download:
        figure.locator("[data-save=csv]").click()
    download.value.save_as(tmp_path / "confusion.csv")
    with (tmp_path / "confusion.csv").open(encoding="utf-8-sig", newline="") as file:
        written = {row["gold"] for row in csv.DictReader(file)}
    assert written == {"'=1+1", "'@x", "'-cmd()", "'+cmd()", "-1.5", "plain"}


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colours_follow_the_reader(visit, pages, scheme):
    page = visit(pages["c"], color_scheme=scheme)

    def brightness(selector, property):
        colour = page.locator(selector).first.evaluate(f"element => getComputedStyle(element).{property}")
        return sum(int(part) for part in colour[colour.index("(") + 1 : -1].split(",")[:3]) / 3

    is_dark = scheme == "dark"
    assert (brightness("body", "backgroundColor") < 60) == is_dark
    assert (brightness("h1", "color") > 180) == is_dark
    assert (brightness("[data-chart] svg .role-axis-label text", "fill") > 180) == is_dark


def test_the_page_of_a_search_shows_it_and_leads_to_the_model(visit, pages):
    page = visit(pages["search"])
    assert page.get_by_role("heading", level=1).inner_text().startswith(f"{HOSTILE} reaches 0.750 accuracy")
    charts = page.locator("[data-chart]").evaluate_all("places => places.map((place) => place.dataset.name)")
    assert charts == ["gains", "labels", "times"]
    gains = page.locator("[data-name=gains] svg")
    assert all(name in gains.text_content() for name in ("stacking", "single-probed", "probe"))
    assert gains.locator(".mark-rule.role-mark line").count() == 4  # an interval each, and zero
    assert page.locator("[data-name=labels] svg .mark-line path").count() == 3  # two curves, and on to twice the labels
    candidates = "section:first-of-type table"
    assert column(page, candidates, 1)[0].startswith("stacking")
    page.locator(f"{candidates} thead th:nth-child(2)").get_by_role("button").click()
    assert column(page, candidates, 2)[-1] == ""  # what was not tried stays last
    page.get_by_role("link", name="a page of its own").click()
    assert page.url.endswith("search/run/report.html")
    assert "0.500 accuracy" in page.get_by_role("heading", level=1).inner_text()


def test_a_tooltip_says_what_a_candidate_should_gain(visit, pages):
    page = visit(pages["search"])
    page.locator("[data-name=gains] svg .mark-symbol path").first.hover()
    shown = page.locator("#vg-tooltip-element.visible")
    shown.wait_for()
    assert "stacking" in shown.inner_text()
    assert "+0.040" in shown.inner_text()


@pytest.mark.parametrize("name", ["c", "run", "search"])
@pytest.mark.parametrize("width", [390, 320])
def test_a_phone_need_not_scroll_sideways(visit, pages, name, width):
    page = visit(pages[name], viewport={"width": width, "height": 800}, is_mobile=True)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate("Math.max(...[...document.querySelectorAll('.chart svg')].map((e) => e.clientWidth))") <= width


def test_print_is_on_white_without_buttons_and_with_everything_open(visit, pages):
    page = visit(pages["c"], color_scheme="dark")
    page.emulate_media(media="print", color_scheme="dark")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert not page.locator("nav").is_visible()
    assert not page.locator(".tools").first.is_visible()
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.locator("details").count() == page.locator("details[open]").count() > 2
    assert page.pdf().startswith(b"%PDF")


def test_keyboard_and_screen_reader(visit, pages):
    page = visit(pages["c"])
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "content"
    for role in ("navigation", "main", "contentinfo"):
        assert page.get_by_role(role).count() == 1
    for region in page.locator("main section").all():
        assert region.evaluate("e => document.getElementById(e.getAttribute('aria-labelledby')).textContent")
    assert page.get_by_role("img").count() == page.locator("[data-chart]").count()
    assert all(chart.get_attribute("aria-label") for chart in page.get_by_role("img").all())
    levels = page.evaluate("[...document.querySelectorAll('h1,h2,h3,h4')].map((e) => Number(e.tagName[1]))")
    assert levels[0] == 1
    assert all(later <= earlier + 1 for earlier, later in pairwise(levels))
    first = page.locator("thead button").first
    first.focus()
    page.keyboard.press("Tab")
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"


def test_a_large_comparison_stays_small_and_is_drawn(visit, tmp_path):
    targets = ("stars", "mood", "topic", HOSTILE)
    folder = write_comparison(tmp_path / "large", targets, methods=METHODS, seeds=5, updates=60)
    path = write_page(folder)
    assert path.stat().st_size < 5_000_000
    page = visit(path)
    assert page.locator("[data-name^=scores] svg").count() == len(targets)
    assert page.locator("main > section:first-of-type tbody tr").count() == len(METHODS) == 10
