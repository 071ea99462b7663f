"""The page of a service in a real browser: it asks, shows what is answered, and nothing that is said becomes markup."""

import json
import shlex

import pytest
from running import serving

PATIENCE = 60_000  # milliseconds; a busy machine is no failure
HOSTILE = "<img src=x onerror=\"alert('text')\"><script>alert(1)</script>"


@pytest.fixture
def visit(browser):
    """A function that opens the page of a service; whatever goes wrong meanwhile fails the test, but for `expected`."""
    contexts, wrong, expected = [], [], []

    def open_page(running, **options):
        host, port = running.address
        home = f"http://{host}:{port}/"
        context = browser.new_context(**{"viewport": {"width": 1000, "height": 800}, **options})
        context.set_default_timeout(PATIENCE)
        contexts.append(context)
        page = context.new_page()

        def answer(route):
            if route.request.url.startswith((home, "data:")):
                route.continue_()
            else:
                wrong.append(f"request: {route.request.url}")
                route.abort()

        page.route("**/*", answer)
        page.on("console", lambda said: wrong.append(said.text) if said.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("dialog", lambda dialog: (wrong.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        page.goto(home)
        return page

    open_page.expected = expected
    yield open_page
    for context in contexts:
        context.close()
    assert [text for text in wrong if not any(part in text for part in expected)] == []


def predict(page, text, task=None):
    if task is not None:
        page.select_option("#task", task)
    page.fill("#inputs", text)
    page.click("#send")
    page.wait_for_selector("#send:not([disabled])")


def test_texts_are_asked_and_shown(visit, words, words_run):
    page = visit(words)
    texts = ["good great shoe", HOSTILE, "awful bad"]
    predict(page, "\n".join([texts[0], "", *texts[1:]]))
    answers = page.locator(".answer")
    assert answers.count() == 3
    assert [answers.nth(i).locator("p").inner_text() for i in range(3)] == texts
    chosen = [answers.nth(i).locator("dt.chosen").inner_text() for i in range(3)]
    assert chosen == [str(label) for label in words_run.predict(texts)]
    probabilities = words_run.predict_probabilities(texts[:1])[0]
    first = max(probabilities.values())
    assert answers.nth(0).locator("dd").nth(1).inner_text() == f"{100 * first:.1f}%"
    assert page.locator("#results img, #results script").count() == 0
    assert "ms" in page.locator("#took").inner_text()


def test_every_kind_of_task(visit, words, words_run):
    page = visit(words)
    assert page.locator("#task option").all_inner_texts() == list(words_run.tasks)
    predict(page, "good shoe", "topics")
    expected = {str(label) for label in words_run.predict(["good shoe"], "topics")[0]}
    assert set(page.locator("dt.chosen").all_inner_texts()) == expected
    predict(page, "good shoe", "grade")
    assert float(page.locator(".answer strong").inner_text()) == pytest.approx(
        words_run.predict(["good shoe"], "grade")[0], rel=1e-4
    )
    predict(page, "good shoe | bad book", "same")
    assert page.locator("dt.chosen").inner_text() == words_run.predict([("good shoe", "bad book")], "same")[0]
    hostile_task = list(words_run.tasks)[-1]
    predict(page, "good shoe was", hostile_task)
    tags = [tag.split()[0] for tag in page.locator(".words small").all_inner_texts()]
    assert tags == words_run.predict([["good", "shoe", "was"]], hostile_task)[0]
    assert page.locator("#results i, #results b").count() == 0
    body = shlex.split(page.locator("#curl").inner_text().replace("\\\n", " "))[-1]
    assert json.loads(body)["task"] == hostile_task


def test_vectors_and_what_is_refused(visit, vectors, vectors_run):
    page = visit(vectors)
    predict(page, "1.5, 0 -2\n-1 0 0")
    expected = vectors_run.predict([[1.5, 0, -2], [-1, 0, 0]])
    assert page.locator("dt.chosen").all_inner_texts() == expected
    visit.expected.append("status of 422")  # the browser's own line about the response
    predict(page, "1 2")
    assert page.locator("#problem").is_visible()
    assert "rows of 3 numbers" in page.locator("#problem").inner_text()
    assert page.locator(".answer").count() == 0
    predict(page, "1 2 3")
    assert not page.locator("#problem").is_visible()


def test_by_keyboard_in_the_dark_and_on_a_phone(visit, words):
    light = visit(words)
    dark = visit(words, color_scheme="dark", viewport={"width": 360, "height": 640})
    dark.keyboard.type("good shoe")  # the form has the focus
    dark.keyboard.press("Control+Enter")
    dark.wait_for_selector(".answer")
    backgrounds = [page.evaluate("getComputedStyle(document.body).backgroundColor") for page in (light, dark)]
    assert backgrounds == ["rgb(255, 255, 255)", "rgb(19, 22, 27)"]
    assert dark.evaluate("document.documentElement.scrollWidth") <= 360
    assert light.get_attribute("html", "lang") == "en"
    assert light.locator("label[for=inputs]").inner_text() == "Texts, one a line"


def test_a_service_that_has_gone(visit, vectors_run):
    with serving(vectors_run, HOSTILE) as running:
        page = visit(running)
        assert page.locator("h1").inner_text() == HOSTILE
        assert page.title() == HOSTILE
    visit.expected += ["ERR_CONNECTION_REFUSED", "status of 503"]
    said = []
    for _ in range(2):  # the first question may go over a connection that is still open
        predict(page, "1 2 3")
        said.append(page.locator("#problem").inner_text())
    assert said[0] in ("The service is being stopped.", "The service cannot be reached.")
    assert said[1] == "The service cannot be reached."


def test_the_page_may_do_little(words):
    """Where somebody's script got into it all the same, it could not run."""
    answer = words.ask("GET", "/")
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert answer.headers["x-content-type-options"] == "nosniff"
    text = answer.body.decode()
    assert "<script>alert" not in text
    assert "https://" not in text.replace("https://json-schema.org", "")
