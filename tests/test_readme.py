"""What the README and the examples show, runs."""

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def block(language: str, containing: str) -> str:
    blocks = re.findall(rf"```{language}\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.DOTALL)
    return next(text for text in blocks if containing in text)


def test_the_recipe_of_the_readme(star_files, monkeypatch):
    """As printed, but for a small encoder and one epoch."""
    from crosstask.recipe import RecipeFile

    text = (
        block("yaml", "target: stars").replace("encoder: minilm", "encoder: mlp   #").replace("epochs: 4", "epochs: 1")
    )
    (star_files / "readme.yaml").write_text(text)
    recipe = RecipeFile.read(star_files / "readme.yaml")
    targets, sources = recipe.tasks()
    run = recipe.learner(progress=False).fit(targets, sources)
    assert set(run.scores) == {"stars", "polarity"}


def test_the_python_of_the_readme(star_files, monkeypatch):
    monkeypatch.chdir(star_files)
    text = block("python", "ct.Learner(").replace('encoder="minilm"', 'encoder="mlp", progress=False')
    names = {"frame": pytest.importorskip("pandas").read_csv("polarity.csv")}
    exec(text.replace("epochs=4", "epochs=1"), names)
    assert (star_files / "runs" / "stars" / "report.html").is_file()
    assert names["learner"].predict(["great shoes"])[0] in names["stars"].labels


def test_the_commands_of_the_readme_exist():
    from typer.main import get_command

    from crosstask.cli import app

    known = set(get_command(app).commands)
    shown = set(re.findall(r"^crosstask ([\w-]+)", (ROOT / "README.md").read_text(), flags=re.MULTILINE))
    assert shown
    assert shown <= known


def test_the_plain_loop():
    """The harmful source ends near nothing, and the target better than with equal weights."""
    main = runpy.run_path(str(ROOT / "examples" / "plain_loop.py"))["main"]
    plain, _ = main(weighted=False)
    learned, weights = main(weighted=True)
    assert learned > plain
    assert weights["reversed"] < 0.01
    assert weights["alike"] > max(weights["guessed"], weights["reversed"])
