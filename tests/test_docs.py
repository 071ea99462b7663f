"""The documentation: a page for everything that is registered, snippets that run, links that lead somewhere."""

import doctest
import importlib.util
import json
import re
import runpy
import shutil
import subprocess
import sys
from html import unescape
from pathlib import Path
from urllib.parse import unquote

import pytest
import yaml

import crosstask as ct
import docstrings
import options_table
from command_line import crosstask
from crosstask import catalogue, papers
from crosstask.recipe import Recipe
from crosstask.training.config import TRAINING_KEYS
from docstrings import cell, markdown, parse, table
from method_pages import method_pages, nav_of
from options_table import option_rows, shown_default, sort
from reference_pages import reference_pages

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
SNIPPETS = DOCS / "snippets"
PATIENCE = 60_000
"""Milliseconds; a busy machine is no failure."""
BROKEN_CODE = """[...document.querySelectorAll(':not(pre) > code')]
    .filter((code) => code.getClientRects().length > 1).map((code) => code.textContent)"""
"""Names and options in the text that stand on two lines."""
GROUPS = ("paradigms", "weightings", "transfers", "encoders")


@pytest.fixture(scope="module")
def generated() -> dict[str, str]:
    return method_pages() | reference_pages()


@pytest.fixture(scope="module")
def pages(generated) -> dict[str, str]:
    """Every page of the site by its path."""
    written = {str(path.relative_to(DOCS)): path.read_text() for path in DOCS.rglob("*.md")}
    assert not set(written) & set(generated)
    return written | generated


def without_code(text: str) -> str:
    """A page without what is fenced or indented."""
    return re.sub(r"^( *)```.*?^\1```$|^    [^\n]*$", "", text, flags=re.DOTALL | re.MULTILINE)


def anchors(text: str) -> set[str]:
    titles = re.findall(r"^#+ (.*)$", without_code(text), flags=re.MULTILINE)
    return {re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", title).strip().lower()) for title in titles}


# What a docstring becomes


class Documented:
    """Pull a_t towards b_t.

    The step is

        a_t <- a_t + rate * <b_t, 1>

    - `a_t`: `weights`.

    Args:
        rate: how far; 1 | 2 in
            the paper.

    Differs from the paper: nothing.

    Needs *both*. Costs nothing.

    >>> 1 + 1
    2
    """

    def __init__(self, *, rate: float = 1.0, names: tuple[str, ...] | None = None) -> None: ...


def test_a_docstring_is_taken_apart():
    described = parse(Documented)
    assert described.summary == "Pull a_t towards b_t."
    assert described.body == ("The step is", "    a_t <- a_t + rate * <b_t, 1>", "- `a_t`: `weights`.")
    assert described.needs == ("Needs *both*. Costs nothing.",)
    assert described.arguments == {"rate": "how far; 1 | 2 in the paper."}
    assert described.differs == "Differs from the paper: nothing."
    assert described.example == ">>> 1 + 1\n2"
    assert parse(lambda: None).summary == ""


def test_signs_are_escaped_but_not_in_code():
    assert markdown("a_t < *b* & [c], `a_t < *b*`") == r"a\_t &lt; \*b\* &amp; \[c\], `a_t < *b*`"
    assert markdown("    a_t <- b_t") == "    a_t <- b_t"
    assert cell("one | two\nthree") == "one &#124; two three"
    assert table(("a",), [("b",)]).split("\n") == ["| a |", "|---|", "| b |"]


def test_options_come_from_the_signature():
    assert option_rows(Documented, without=("names",)) == [
        ("`rate`", "a number", "`1.0`", "how far; 1 &#124; 2 in the paper.")
    ]
    assert (shown_default(True), shown_default(None), shown_default((3, 5))) == ("`true`", "–", "`[3, 5]`")
    assert sort(int | str | None) == "a whole number or a text"


@pytest.mark.parametrize("module", [docstrings, options_table])
def test_examples_in_the_tools(module):
    assert doctest.testmod(module) == (0, doctest.testmod(module).attempted)


# What the pages hold


@pytest.mark.parametrize("group", GROUPS)
def test_every_registered_method_has_a_page(generated, group):
    for entry in catalogue.catalogue()[group]:
        name = "hugging-face" if entry["name"] == "minilm" else entry["name"]
        assert generated[f"methods/{group}/{name}.md"].startswith(f"# `{name}`\n")
        assert f"[`{entry['name']}`]({name}.md)" in generated[f"methods/{group}/index.md"]


def test_a_page_cites_its_paper_and_says_where_it_differs(generated):
    page = generated["methods/weightings/tawt.md"]
    for expected in (papers.TAWT.title, papers.TAWT.url, papers.TAWT.key, "## Differs from the paper", "## Options"):
        assert expected in page
    assert "    omega_t <- omega_t exp(-eta g_t) / normalizer," in page


def test_every_method_with_a_paper_names_it(generated):
    for group in ("weightings", "transfers"):
        for entry in catalogue.catalogue()[group]:
            assert bool(entry["paper"]) == ("## Paper" in generated[f"methods/{group}/{entry['name']}.md"])


def test_every_option_is_explained(generated):
    silent = [
        f"{path}: {line}"
        for path, text in generated.items()
        if not path.endswith("index.md") and path != "measurements.md"
        for line in text.split("\n")
        if re.match(r"\| (`|further)", line) and re.search(r"\|\s+\|$", line)
    ]
    assert not silent


def test_the_recipe_reference_has_every_key(generated):
    page = generated["reference/recipe.md"]
    for key in (*Recipe.model_fields, *TRAINING_KEYS, "train", "limit", "drop_overlap", "delimiter", "label_separator"):
        assert re.search(rf"^\| \[?`{key}`", page, flags=re.MULTILINE), key
    for entry in catalogue.catalogue()["formats"]:
        assert f"### {entry['name']}\n" in page


def test_the_commands_are_all_there(generated):
    listed = re.findall(r"^## (.*)$", generated["reference/commands.md"], flags=re.MULTILINE)
    assert {"train", "rank", "predict", "transfer-matrix"} <= set(listed)
    assert "[dim]" not in generated["reference/commands.md"]


def test_the_python_reference_has_every_export(generated):
    listed = re.findall(r"^## (.*)$", generated["reference/python.md"], flags=re.MULTILINE)
    assert listed == [name for name in ct.__all__ if not name.startswith("_")]


def test_commands_that_pages_name_exist(pages):
    listed = re.findall(r"^## (.*)$", pages["reference/commands.md"], flags=re.MULTILINE)
    named = {name for path, text in pages.items() for name in re.findall(r"`crosstask ([a-z-]+)", text)}
    named |= set(re.findall(r"^crosstask ([a-z-]+)", (SNIPPETS / "commands.sh").read_text(), flags=re.MULTILINE))
    assert named <= set(listed)


def test_internal_links_resolve(pages):
    found = 0
    for path, text in pages.items():
        for link in re.findall(r"\]\(([^)<\s]+)\)", without_code(text)):
            if re.match(r"https?://", link):
                continue
            place, _, anchor = link.partition("#")
            target = (DOCS / path).parent.joinpath(place).resolve() if place else DOCS / path
            if target.suffix in (".png", ".svg"):
                assert target.is_file(), f"{path}: {link}"
                continue
            name = str(target.relative_to(DOCS))
            assert name in pages, f"{path}: {link}"
            assert not anchor or anchor in anchors(pages[name]), f"{path}: {link}"
            found += 1
    assert found > 100


def test_every_page_stands_in_the_navigation(pages):
    def listed(part):
        if isinstance(part, str):
            return [part]
        items = part.values() if isinstance(part, dict) else part
        return [path for item in items for path in listed(item)]

    nav = yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]
    assert sorted(listed(nav) + listed(nav_of(method_pages()))) == sorted(pages)


def test_no_figure_is_typed_into_the_advice():
    """Figures are in the table that the measurements' scripts make; advice links to it."""
    assert not re.search(r"\d\.\d|\d ?%", (DOCS / "choose.md").read_text())


# What the snippets do


def test_every_snippet_is_shown_and_every_one_shown_exists(pages):
    shown = {name for text in pages.values() for name in re.findall(r'^--8<-- "(.*)"$', text, flags=re.MULTILINE)}
    assert shown == {path.name for path in SNIPPETS.iterdir() if path.is_file()}


@pytest.fixture
def here(tmp_path, monkeypatch) -> Path:
    """A folder with all snippets, which is the current one."""
    for path in SNIPPETS.iterdir():
        if path.is_file():
            shutil.copy(path, tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.slow
def test_the_commands_of_the_tutorial(here):
    outcomes = {}
    for line in (here / "commands.sh").read_text().splitlines():
        program, *arguments = line.split()
        if program == "python":
            runpy.run_path(arguments[0])
            continue
        outcomes[line] = crosstask(*arguments)
        assert outcomes[line].code == 0, outcomes[line]
    assert "sentiment" in outcomes["crosstask rank first.yaml"].out
    assert len(outcomes["crosstask predict runs/second new.txt"].out.splitlines()) == 2
    assert (here / "runs" / "first" / "report.html").is_file()
    assert json.loads((here / "runs" / "second" / "metrics.json").read_text())["scores"]["stars"]["test"]
    assert (here / "stars-model").is_dir()


def test_the_learner_of_the_tutorial(here, capsys):
    names = runpy.run_path("learner.py")
    assert set(names["helped"].weights) == {"digit", "parity", "noise"}
    assert (here / "digit-model").is_dir()
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()[:3]] == ["probe", "alone", "helped"]


def test_the_ensemble_of_the_page(here, capsys):
    names = runpy.run_path("ensemble.py")
    assert sum(names["fitted"].weights.values()) == pytest.approx(1.0)
    assert list(names["run"].tasks) == ["digit"]
    assert (here / "runs" / "student" / "report.html").is_file()
    assert capsys.readouterr().out.startswith("weights")


def test_the_loop_of_the_tutorial(here):
    """The source that means something else ends with the least weight, for the reason that the page gives."""
    names = runpy.run_path("own_loop.py")
    weighting = names["ct"].TAWT(tasks=list(names["data"]), target="ours", fresh=16)
    accuracy, weights = names["train"](weighting)
    assert accuracy > 1 / 3
    assert weights["reversed"] < weights["alike"] < weights["ours"]


# The site itself


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """The site as `make docs` builds it."""
    if importlib.util.find_spec("material") is None:
        pytest.skip("the extra docs is not installed")
    folder = tmp_path_factory.mktemp("docs") / "site"
    command = [sys.executable, "-W", "ignore", "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir"]
    built = subprocess.run([*command, str(folder)], cwd=ROOT, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    return folder


def test_the_site_fetches_nothing(site, generated):
    for path in generated:
        assert (site / path).with_suffix(".html").is_file()
    for page in site.rglob("*.html"):
        fetched = re.findall(r'<(?:script|link|img)\b[^>]*(?:src|href)="(?:https?:)?//[^"]*"', page.read_text())
        assert not fetched, f"{page.name}: {fetched[0]}"
    tutorial = (site / "tutorials" / "learner.html").read_text()
    assert "Which digit is it?" in tutorial
    assert "--8" not in tutorial


def test_no_link_of_the_site_is_broken(site):
    """Pages as they are opened from disk: every file is there, and every place in it."""
    places = {page: set(re.findall(r'\bid="?([^\s">]+)', page.read_text())) for page in site.rglob("*.html")}
    checked = 0
    for page in places:
        if page.name == "404.html":  # its links are those of a server
            continue
        for link in re.findall(r'<(?:a|img|link|script)\b[^>]*?\b(?:href|src)="?([^\s">]+)', page.read_text()):
            if re.match(r"[a-z]+:", link):
                continue
            name, _, place = unquote(unescape(link)).partition("#")
            target = (page.parent / name).resolve() if name else page
            assert target.is_file(), f"{page.relative_to(site)}: {link}"
            assert not place or place in places[target], f"{page.relative_to(site)}: {link}"
            checked += 1
    assert checked > 1000


def test_the_site_is_searched_from_disk(site, browser):
    page = browser.new_page()
    page.goto((site / "index.html").as_uri())
    page.keyboard.press("/")
    page.keyboard.type("mirror descent")
    page.wait_for_selector("a.md-search-result__link", timeout=PATIENCE)
    link = page.locator("a.md-search-result__link").first
    assert "tawt" in link.get_attribute("href")
    page.close()


@pytest.mark.parametrize("width", [1280, 400])
def test_names_and_options_are_not_broken(site, browser, width):
    page = browser.new_page(viewport={"width": width, "height": 900})
    for name in ("reference/commands.html", "reference/recipe.html", "methods/weightings/tawt.html"):
        page.goto((site / name).as_uri())
        broken = page.evaluate(BROKEN_CODE)
        assert not broken, f"{name}: {broken[:3]}"
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), f"{name} is too wide"
    page.close()
