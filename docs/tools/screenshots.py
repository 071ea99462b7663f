"""Makes the pictures of docs/report.md: the tutorial's methods compared, the page photographed in a browser.

    python docs/tools/screenshots.py            compares first, in a scratch folder (some minutes)
    python docs/tools/screenshots.py FOLDER     of a comparison that is there already

Needs the extra `dev` and a Chromium of the system.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

DOCS = Path(__file__).resolve().parent.parent
IMAGES = DOCS / "images"
PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
METHODS = "single,probe,stacking,joint,tawt,label-transfer"
ALL_DRAWN = "[...document.querySelectorAll('[data-chart]')].every((place) => place.querySelector('svg'))"


def compare(folder: Path) -> Path:
    """The tutorial's second recipe with several methods, and the rank of its sources."""
    command = [sys.executable, "-m", "crosstask.cli"]
    subprocess.run([sys.executable, DOCS / "snippets" / "make_reviews.py"], cwd=folder, check=True)
    shutil.copy(DOCS / "snippets" / "second.yaml", folder)
    compared = ["compare", "second.yaml", "--methods", METHODS, "--seeds", "5", "-o", "reviews", "--quiet"]
    subprocess.run([*command, *compared], cwd=folder, check=True)
    ranked = subprocess.run([*command, "rank", "second.yaml", "--json"], cwd=folder, check=True, capture_output=True)
    (folder / "reviews" / "rank.json").write_bytes(ranked.stdout)
    return folder / "reviews"


def photograph(browser: Browser, page: Path) -> None:
    """The top of the page on a desk and on a phone, and one part further down in the dark."""

    def shot(name: str, width: int, height: int, part: str | None = None, scheme: str = "light") -> None:
        size = {"width": width, "height": height}
        context = browser.new_context(viewport=size, color_scheme=scheme)
        opened = context.new_page()
        opened.goto(page.as_uri())
        opened.wait_for_function(ALL_DRAWN)
        if part is not None:
            opened.get_by_role("heading", name=part, exact=True).evaluate("e => e.scrollIntoView()")
        opened.screenshot(path=IMAGES / f"{name}.png")
        context.close()

    shot("report-desktop", 1360, 1500)
    shot("report-phone", 390, 1100)
    shot("report-dark", 1360, 1300, part="Label by label", scheme="dark")


def main() -> None:
    """Compare if no folder is named, write the page, take the pictures."""
    program = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if program is None:
        sys.exit(f"There is no browser; one of these is needed: {', '.join(PROGRAMS)}.")
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch, sync_playwright() as playwright:
        folder = Path(sys.argv[1]) if len(sys.argv) > 1 else compare(Path(scratch))
        subprocess.run([sys.executable, "-m", "crosstask.cli", "report", folder], check=True)
        photograph(playwright.chromium.launch(executable_path=program), (folder / "report.html").resolve())


if __name__ == "__main__":
    main()
