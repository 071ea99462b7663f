"""The demo: data without leaks, the same budget for all, a folder that is replaced only if a demo made it."""

import io
import json
import subprocess
import tarfile
from dataclasses import replace

import numpy as np
import pytest
import torch

from command_line import crosstask
from crosstask import demo
from crosstask.cli.demo import print_demo
from crosstask.demo import MADE_BY, check_output, compare, make_study, run_demo
from crosstask.demo import sentences as text_demo
from crosstask.demo.digits import CLOSED_LOOPS, TRAINING, digits_problem
from crosstask.demo.problem import Pool
from crosstask.demo.sentences import FILES, Sentence, choose, load_sentences, read_package
from crosstask.errors import CrossTaskError
from crosstask.runs.loading import load
from crosstask.studies.compare_runs import run_key
from crosstask.training.paradigms import PARADIGMS

TABLES = ["comparison.csv", "comparison.json", "comparison.md", "comparison.tex"]


def quick_digits(updates=12):
    return digits_problem(training=replace(TRAINING, updates=updates, evaluate_every=updates))


def rows_of(examples):
    return {row.tobytes() for row in examples.inputs}


def test_no_task_trains_on_test_images_nor_a_source_on_the_target_s():
    problem = digits_problem()
    target, sources = problem.make(3)
    assert (len(target.train), len(target.dev), len(target.test)) == (40, 10, 500)
    own = rows_of(target.train) | rows_of(target.dev)
    assert not own & rows_of(target.test)
    for source in sources:
        assert len(source.train) == 1797 - 500 - 50
        assert not rows_of(source.train) & (own | rows_of(target.test))
    again, _ = problem.make(3)
    other, _ = problem.make(4)
    assert rows_of(again.train) == rows_of(target.train)
    assert rows_of(again.test) == rows_of(other.test)
    assert rows_of(other.train) != rows_of(target.train)


def test_sources_say_what_they_claim():
    from sklearn.datasets import load_digits

    data = load_digits()
    digit_of = {
        image.astype(np.float32).tobytes(): int(digit) for image, digit in zip(data.data, data.target, strict=True)
    }
    _, sources = digits_problem().make(0)
    by_name = {task.name: task for task in sources}
    assert list(by_name) == ["parity", "at least five", "closed loops", "shuffled"]
    digits = [digit_of[row.tobytes()] for row in by_name["parity"].train.inputs]
    assert list(by_name["parity"].train.labels) == ["odd" if digit % 2 else "even" for digit in digits]
    assert list(by_name["at least five"].train.labels) == ["yes" if digit > 4 else "no" for digit in digits]
    assert list(by_name["closed loops"].train.labels) == [str(CLOSED_LOOPS[digit]) for digit in digits]
    agreement = np.mean(
        [label == str(digit) for label, digit in zip(by_name["shuffled"].train.labels, digits, strict=True)]
    )
    assert agreement < 0.15


def test_every_method_has_the_same_number_of_updates():
    problem = quick_digits()
    study = make_study(problem)
    tasks = study.tasks(0)
    target, *sources = tasks.values()
    trained = [name for name in problem.methods() if name in PARADIGMS and not PARADIGMS[name].frozen_features]
    assert {"single", "pretrain", "joint", "contrastive"} <= set(trained)
    for method in trained:
        run = study.learner(run_key(method, "digit", 0), tasks).fit(target, sources)
        assert sum(row["updates"] for row in run.history if row["event"] == "phase_end") == 12


def test_demo_writes_results_page_and_a_run_and_replaces_its_own_folder(tmp_path, capsys):
    output = tmp_path / "runs" / "demo"
    threads = torch.get_num_threads()
    rows = compare(quick_digits(), [0], output, progress=False)
    assert torch.get_num_threads() == threads
    assert sorted(path.name for path in output.iterdir()) == [*TABLES, "report.html", "run"]
    results = json.loads((output / "comparison.json").read_text(encoding="utf-8"))
    assert results["made_by"] == MADE_BY
    assert [cell["method"] for cell in results["cells"]] == list(digits_problem().methods())
    for cell in results["cells"]:
        assert cell["seed"] == 0
        assert 0 <= cell["scores"]["test"]["accuracy"] <= 1
    assert (output / "run" / "report.html").is_file()
    assert 'href="run/report.html"' in (output / "report.html").read_text(encoding="utf-8")
    model = load(output / "run")
    assert model.predict(np.zeros((1, 64), dtype=np.float32))[0] in "0123456789"
    cell = next(cell for cell in results["cells"] if cell["method"] == rows.targets[0].chosen.method)
    assert model.scores["digit"] == cell["scores"]

    print_demo(rows, output)
    shown = capsys.readouterr().out
    assert all(method in shown for method in digits_problem().methods())
    assert str(output / "report.html") in shown.replace("\n", "")

    compare(quick_digits(), [1], output, progress=False)
    assert json.loads((output / "comparison.json").read_text(encoding="utf-8"))["cells"][0]["seed"] == 1
    assert sorted(path.name for path in output.parent.iterdir()) == ["demo"]


@pytest.mark.parametrize("content", [None, "", "[]", '{"made_by": "me"}'])
@pytest.mark.parametrize("name", ["comparison.json", "results.json"])
def test_a_folder_that_no_demo_made_is_left_alone(tmp_path, monkeypatch, name, content):
    (tmp_path / "mine.txt").write_text("mine", encoding="utf-8")
    if content is not None:
        (tmp_path / name).write_text(content, encoding="utf-8")
    monkeypatch.setattr(demo, "compare", lambda *given, **more: pytest.fail("nothing may be trained"))
    with pytest.raises(CrossTaskError, match="nothing was written over"):
        run_demo(seeds=1, output=tmp_path, quiet=True)
    assert (tmp_path / "mine.txt").read_text(encoding="utf-8") == "mine"


@pytest.mark.parametrize("name", ["comparison.json", "results.json"])  # the latter is that of version 0.1
def test_a_demo_folder_with_something_added_is_left_alone(tmp_path, name):
    (tmp_path / name).write_text(json.dumps({"made_by": MADE_BY}), encoding="utf-8")
    check_output(tmp_path)
    (tmp_path / "notes.txt").write_text("mine", encoding="utf-8")
    with pytest.raises(CrossTaskError, match=r"notes\.txt"):
        check_output(tmp_path)
    with pytest.raises(CrossTaskError, match="was not made by an earlier demo"):
        check_output(tmp_path / "notes.txt")


def test_a_folder_of_version_0_1_has_no_page(tmp_path):
    (tmp_path / "results.json").write_text(json.dumps({"made_by": MADE_BY}), encoding="utf-8")
    outcome = crosstask("report", tmp_path)
    assert outcome.code == 2
    assert "the demo of version 0.1 wrote such folders" in outcome.err


def package():
    """A small source package of the same shape as the real one."""

    def archive(files):
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w:gz") as out:
            for name, content in files.items():
                entry = tarfile.TarInfo(name)
                entry.size = len(content)
                out.addfile(entry, io.BytesIO(content))
        return buffer.getvalue()

    line = "\ufeff1\t{}\tWell\x85said, {}\r\n2\t-2.5\tSame everywhere\r\n\r\n3\t0.1\t\r\n"
    inner = {
        f"hutto_ICWSM_2014/{name}": line.format(rating, domain).encode()
        for rating, (domain, name) in enumerate(FILES.items())
    }
    return archive({text_demo.ARCHIVE: archive(inner)})


def test_sentences_are_read_in_memory_and_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(text_demo, "fetch_package", package)
    sentences = load_sentences(tmp_path / "demo")
    assert len(sentences) == 8
    assert sentences[:2] == [
        Sentence("Well\x85said, tweets", 0.0, "tweets"),
        Sentence("Same everywhere", -2.5, "tweets"),
    ]
    monkeypatch.setattr(text_demo, "fetch_package", lambda: pytest.fail("it is in the cache"))
    assert load_sentences(tmp_path / "demo") == sentences
    assert [path.name for path in (tmp_path / "demo").iterdir()] == ["vader-sentences.jsonl"]


@pytest.mark.parametrize(
    "content", [b"{", b"[]\n", b'{"text": 5}\n', b"\xff\n", b'{"text": "a", "rating": 1.0, "domain": "x"}\n']
)
def test_damaged_sentences_are_fetched_again(tmp_path, monkeypatch, content):
    monkeypatch.setattr(text_demo, "fetch_package", package)
    sentences = load_sentences(tmp_path)
    (tmp_path / "vader-sentences.jsonl").write_bytes(content)
    assert load_sentences(tmp_path) == sentences
    assert (tmp_path / "vader-sentences.jsonl").read_bytes() != content


def test_sentences_that_cannot_be_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(text_demo, "fetch_package", package)
    (tmp_path / "file").write_text("a file")
    assert len(load_sentences(tmp_path / "file")) == 8


def test_a_sentence_stands_once():
    chosen = choose([*read_package(package()), Sentence("  same EVERYWHERE ", 3.0, "films")], per_domain=10)
    assert sum(sentence.text.strip().lower() == "same everywhere" for sentence in chosen) == 1
    assert len(chosen) == 5
    assert len(choose(read_package(package()), per_domain=1)) == 4


def test_text_pool_keeps_test_apart():
    texts = [f"text {i}" for i in range(60)]
    levels = [text_demo.LEVELS[i % 5] for i in range(60)]
    pool = Pool(texts, levels, {"polarity": [name.removeprefix("very ") for name in levels]}, list(range(20)))
    target, (source,) = pool.tasks("five levels", 20, 0, text_demo.LEVELS)
    parts = [set(target.train.inputs) | set(target.dev.inputs), set(target.test.inputs), set(source.train.inputs)]
    assert [len(part) for part in parts] == [20, 20, 20]
    assert set.union(*parts) == set(texts)
    assert target.labels == text_demo.LEVELS


def test_sentences_that_cannot_be_fetched(monkeypatch):
    def offline(command, **options):
        assert options["stdin"] is subprocess.DEVNULL
        return subprocess.CompletedProcess(command, 1, "", "ERROR: No matching distribution found\n")

    monkeypatch.setattr(text_demo.subprocess, "run", offline)
    with pytest.raises(CrossTaskError, match=r"No matching distribution found.*`crosstask demo`"):
        text_demo.fetch_package()


def test_another_package_is_not_opened(monkeypatch):
    def other(command, **options):
        folder = command[command.index("--dest") + 1]
        with open(f"{folder}/vaderSentiment-3.3.2.tar.gz", "wb") as file:
            file.write(b"something else")
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(text_demo.subprocess, "run", other)
    with pytest.raises(CrossTaskError, match="not the one that is known"):
        text_demo.fetch_package()
