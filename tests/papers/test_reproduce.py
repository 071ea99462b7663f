"""What all experiments share: cells, claims, running and going on; and the ranking's and TAWT's own arithmetic."""

import json
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

import pytest

import crosstask as ct
import crosstask_papers as reproducing
from command_line import crosstask
from crosstask.papers import TAWT
from crosstask.runs.record import read_history
from crosstask.studies.grid import Grid
from crosstask_papers import EXPERIMENTS, find, reproduce
from crosstask_papers import rank_transfer as ranking
from crosstask_papers.experiment import Claim, Estimate, Experiment, Options, Rows, RunKey, Table, paired
from crosstask_papers.ontonotes import ontonotes_task
from crosstask_papers.rates import CHOOSING_SEED
from crosstask_papers.tawt import table1, tagging


class Pretended(Experiment):
    """Scores without training: the method's number plus the seed; the better rate on dev is run on."""

    name: ClassVar[str] = "pretended"
    title: ClassVar[str] = "A | pretended <experiment>"
    paper = TAWT
    about: ClassVar[str] = "Nothing is trained."
    why: ClassVar[str] = ""
    ran: ClassVar[list[str]] = []

    def settings(self) -> dict[str, Any]:
        return {"offset": 1, "encoder": self.options.encoder}

    def cells(self) -> list[RunKey]:
        return [RunKey.of(method=method, rate=1, seed=seed) for seed in self.used_seeds for method in ("a", "b")] + [
            RunKey.of(method="trial", rate=rate, seed=100) for rate in (1, 2)
        ]

    def follow_up(self, rows: Rows) -> list[RunKey]:
        best = max((1, 2), key=lambda rate: rows.by_seed("dev", method="trial", rate=rate)[100])
        return [RunKey.of(method="chosen", rate=best, seed=seed) for seed in self.used_seeds]

    def run(self, cell: RunKey) -> dict[str, Any]:
        self.ran.append(str(cell))
        return {"score": {"a": 1.0, "b": 3.0, "trial": 0.0, "chosen": 4.0}[cell["method"]] + 0.1 * cell["seed"] ** 2,
                "dev": cell["rate"]}  # fmt: skip

    def tables(self, rows: Rows) -> list[Table]:
        return [Table("Scores", ["method", "score"], [[m, rows.mean(method=m)] for m in ("a", "b", "chosen")])]

    def claims(self, rows: Rows) -> list[Claim]:
        gains = paired(rows.by_seed(method="b"), rows.by_seed(method="a"))
        return [
            Claim.of_gains("b is better", "+2", gains, over="seeds"),
            Claim.without_test("about <i>", "–", "1 | 2"),
        ]


@pytest.fixture
def pretended(monkeypatch):
    Pretended.ran.clear()
    monkeypatch.setitem(EXPERIMENTS, "pretended", "nowhere:Pretended")
    monkeypatch.setattr(reproducing, "find", lambda name: Pretended)
    return Pretended.ran


def test_cells_rows_and_pairs():
    rows = Rows(
        [{"cell": {"method": m, "seed": s}, "score": v} for m, s, v in (("a", 0, 1.0), ("a", 1, 2.0), ("b", 1, 5.0))]
    )
    assert rows.by_seed(method="a") == {0: 1.0, 1: 2.0}
    assert paired(rows.by_seed(method="b"), rows.by_seed(method="a")) == [3.0]
    assert rows.mean(method="a") == Estimate(1.5, pytest.approx(0.5**0.5), 2)
    assert rows.mean(method="c") is None
    cell = RunKey.of(method="a", k=20, seed=3)
    assert Grid().key_of(json.loads(json.dumps({"cell": cell.to_json()}))) == cell


def test_everything_is_written_and_nothing_runs_twice(pretended, tmp_path):
    results = reproduce("pretended", tmp_path, seeds=3, output=tmp_path / "out")["pretended"]
    assert len(pretended) == 6 + 2 + 3
    assert pretended[-1] == "method chosen, rate 2, seed 2"  # follows what dev said
    assert results["runs"]["done"] == results["runs"]["wanted"] == 11
    folder = tmp_path / "out" / "pretended"
    assert json.loads((folder / "results.json").read_text()) == results
    assert results["claims"][0]["ours"] == "+2.00 ± 0.00 over 3 seeds, no test"
    page = (folder / "README.md").read_text()
    assert "| about <i> | – | 1 \\| 2 | no test |" in page
    assert "A | pretended &lt;experiment&gt;" in (folder / "report.html").read_text()
    again = reproduce("pretended", tmp_path, seeds=3, output=tmp_path / "out")["pretended"]
    assert len(pretended) == 11
    assert again["runs"]["done"] == 11
    reproduce("pretended", tmp_path, seeds=4, output=tmp_path / "out")
    assert len(pretended) == 11 + 2 + 1


def without_times(results):
    """Results but for the minutes of their runs."""
    return {**results, "runs": {key: value for key, value in results["runs"].items() if key != "minutes"}}


@pytest.mark.slow
def test_on_ray(pretended, tmp_path, monkeypatch):
    pytest.importorskip("ray").shutdown()
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    here = reproduce("pretended", tmp_path, seeds=3, output=tmp_path / "here")["pretended"]
    count = len(pretended)
    there = reproduce("pretended", tmp_path, seeds=3, output=tmp_path / "there", jobs=2, on="ray")["pretended"]
    assert len(pretended) == count
    assert without_times(there) == without_times(here)


def test_on_ray_without_the_package(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    outcome = crosstask("reproduce", "tawt-ratio", "--data", tmp_path, "-o", tmp_path / "out", "--on", "ray")
    assert outcome.code == 2
    assert 'pip install "crosstask[ray]"' in outcome.err
    assert not (tmp_path / "out").exists()


def test_no_time_and_other_settings(pretended, tmp_path):
    results = reproduce("pretended", tmp_path, seeds=2, output=tmp_path / "out", minutes=0)["pretended"]
    assert not pretended
    assert results["runs"] == {"done": 0, "wanted": 6, "minutes": {}}
    assert results["claims"][0]["verdict"] == "not measured"
    assert not [row for row in read_history(tmp_path / "out/pretended/cells.jsonl") if row["event"] == "session"]
    with pytest.raises(ct.CrossTaskError, match="`encoder` changed since"):
        reproduce("pretended", tmp_path, encoder="other", output=tmp_path / "out")
    assert reproduce("pretended", None, seeds=2, output=tmp_path / "out", minutes=0)["pretended"] == results
    with pytest.raises(ct.CrossTaskError, match="name it with --data DIR"):
        reproduce("pretended", None)
    with pytest.raises(ct.CrossTaskError, match="no data folder"):
        reproduce("pretended", tmp_path / "nothing")


def test_the_command(tmp_path):
    assert set(EXPERIMENTS) <= set(crosstask("reproduce").out.split())
    assert "Did you mean 'tawt-table1'" in crosstask("reproduce", "tawt-tabel1", "--data", tmp_path).err
    assert "--data DIR" in crosstask("reproduce", "tawt-table1").err
    missing = crosstask("reproduce", "tawt-table1", "--data", tmp_path, "--quick", "-o", tmp_path / "out")
    assert missing.code == 2
    assert "tagging/" in missing.err


def test_all_experiments_can_be_made(tmp_path):
    for name in EXPERIMENTS:
        for quick in (False, True):
            experiment = find(name)(Options(tmp_path, quick=quick))
            assert experiment.name == name
            with suppress(ct.CrossTaskError):  # one draws its pairs of tasks from the data
                cells = experiment.cells()
                assert len(cells) == len(set(cells)) > 0
                assert all("seed" in dict(cell.values) for cell in cells)
            assert json.loads(json.dumps(experiment.settings())) is not None
            empty = Rows()
            experiment.tables(empty)
            assert {claim.verdict for claim in experiment.claims(empty)} <= {"not measured"}


# The ranking against measured transfer


def measured(bench: str = "sentences, frozen") -> Rows:
    """Source y helps more than x; cosine says so, and the gain that `rank` estimates says the opposite."""
    rows = []
    for seed in (0, 1):
        cell = {"bench": bench, "target": "t", "seed": seed}
        for source, score in (("alone", 50.0), ("x", 51.0 + seed), ("y", 56.0), ("z", 53.0)):
            rows.append({"cell": {**cell, "source": source}, "score": score, "training_seconds": 10.0})
        scores = {
            name: {"gain": gain, "gain_error": 0.0, "gradient_cosine": cosine, "cka": 0.0, "leep": None,
                   "covariance_similarity_normalised": 0.5, "combined": 9.0}
            for name, gain, cosine in (("x", 0.03, 0.0), ("y", 0.01, 0.5), ("z", 0.02, 0.2))
        }  # fmt: skip
        verdicts = {"x": "likely helps", "y": "may hurt", "z": "probably useless"}
        rows.append(
            {"cell": {**cell, "source": "rank"}, "scores": scores, "verdicts": verdicts, "ranking_seconds": 0.8}
        )
    return Rows(rows)


def test_correlations_by_hand(tmp_path):
    rows = measured()
    assert ranking.measured_gains(rows) == {"t": {"x": [1.0, 2.0], "y": [6.0, 6.0], "z": [3.0, 3.0]}}
    found = ranking.correlations(rows)
    assert found["gain"] == {"t": pytest.approx(-1.0)}
    assert found["gradient_cosine"] == {"t": pytest.approx(1.0)}
    assert found["combined"] == {"t": pytest.approx(1.0)}  # as it is computed now, not as it was written down
    assert found["order of the table"] == {"t": pytest.approx(-1.0)}  # verdicts come before scores
    assert "leep" not in found
    experiment = ranking.RankTransfer(Options(tmp_path))
    tables = {table.title: table for table in experiment.tables(rows)}
    cost = tables["Cost as a share of measuring, in %"]
    assert {line[0]: line[1] for line in cost.lines} == {"all scores": pytest.approx(1.0), "linearised": None}
    claims = {claim.text: claim for claim in experiment.judged_claims(rows)}
    in_sample = claims["sentences, frozen: the combined score foretells the order of sources (rank correlation)"]
    assert (in_sample.ours, in_sample.verdict, in_sample.p) == ("+1.00, once", "in-sample", None)
    assert {claim.verdict for claim in claims.values()} == {"in-sample", "not measured"}


# TAWT on tagging


def tagging_row(target, method, sharpness, rate, seed, score, dev=0.0, weight=1.0):
    cell = {"target": target, "method": method, "sharpness": sharpness, "rate": rate, "seed": seed}
    return {"cell": cell, "score": score, "dev": dev, "weights": {"PoS": weight}}


def test_table_1_by_hand(tmp_path):
    """Dev sentences choose the rate and then the sharpness of each method; trials are in no table."""
    experiment = table1.Table1(Options(tmp_path))
    low, middle, high = experiment.rates
    rows = []
    for rate, dev in ((low, 10.0), (middle, 30.0), (high, 20.0)):
        rows.append(tagging_row("NER", "pretrain", 1.0, rate, CHOOSING_SEED, 99.0, dev=dev))
        rows.append(tagging_row("NER", table1.SEARCHED, 1.0, rate, CHOOSING_SEED, 99.0, dev=-dev))
    # The best rate of weighted pre-training is another one, and its sharpness is tried before anything else.
    follow_up = experiment.follow_up(Rows(rows))
    assert {(key["target"], key["method"], key["seed"]) for key in follow_up} == {
        (target, table1.SEARCHED, CHOOSING_SEED) for target in table1.TAGGING
    }
    assert {key["sharpness"] for key in follow_up if key["target"] == "NER"} == set(table1.SHARPNESS[1:])
    for target in table1.TAGGING[:3]:
        for sharpness in table1.SHARPNESS:
            rows.append(tagging_row(target, table1.SEARCHED, sharpness, low, CHOOSING_SEED, 99.0))
    for sharpness in table1.SHARPNESS[1:]:
        dev = 50.0 if sharpness == 10.0 else 0.0
        rows.append(tagging_row("NER", table1.SEARCHED, sharpness, low, CHOOSING_SEED, 99.0, dev=dev))
    follow_up = experiment.follow_up(Rows(rows))
    assert {key["rate"] for key in follow_up if key["method"] == "pretrain"} == {low, middle}
    finals = [key for key in follow_up if key["method"] == table1.SEARCHED and key["seed"] == 0]
    of_ner = [(key["sharpness"], key["rate"]) for key in finals if key["target"] == "NER"]
    assert of_ner == [(10.0, low)]
    for seed in range(2):
        rows.append(tagging_row("NER", "pretrain", 1.0, middle, seed, 40.0 + 2.0 * seed))
        rows.append(tagging_row("NER", "pretrain", 1.0, low, seed, 30.0))
        score, weight = 45.0 + 3.0 * seed, 0.25 * (seed + 1)
        rows.append(tagging_row("NER", table1.SEARCHED, 10.0, low, seed, score, weight=weight))
    measured = Rows(rows)
    assert experiment.scores(measured, "NER", table1.SEARCHED) == {0: 45.0, 1: 48.0}
    claims = {claim.text: claim for claim in experiment.claims(measured)}
    assert claims["Learned weights help in pretrain"].ours.startswith("+5.50 ± 0.71 over 2 seeds")
    assert claims["the same at the published rate, pretrain"].ours.startswith("+16.50")
    assert claims["Weighted training beats plain training in most cells"].ours == "in 1 of 1"
    tables = {table.title: table for table in experiment.tables(measured)}
    weights = next(line for line in tables["Final weights"].lines if line[0] == "pretrain + TAWT, target NER")
    assert str(weights[1]) == "0.375 ± 0.177"


def test_random_weights_are_on_the_simplex_and_depend_on_the_seed():
    target, source = (ct.Task.from_arrays(name, ["a", "b"], ["x", "y"], dev=False) for name in ("t", "s"))
    weights = tagging.random_weights("joint", target, [source], 0)
    assert list(weights) == ["t", "s"]
    assert sum(weights.values()) == pytest.approx(1.0)
    assert weights != tagging.random_weights("joint", target, [source], 1)
    assert tagging.random_weights("pretrain", target, [source], 0) == {"s": pytest.approx(1.0)}


CONLL = """\
#begin document (a/b); part 000
a/b 0 0 Kim NNP (TOP(S(NP*) - - - - (PERSON) (ARG0*) -
a/b 0 1 saw VBD (VP* see 01 - - * (V*) -
a/b 0 2 New NNP (NP(NP* - - - - (GPE* (ARG1* -
a/b 0 3 York NNP *) - - - - *) * -
a/b 0 4 today NN (NP*))) - - - - * *) -
a/b 0 5 . . *)) - - - - * * -

a/b 0 0 Yes UH (TOP(INTJ*)) - - - - * -
#end document
"""


def test_ontonotes(tmp_path):
    for part in ("train", "test"):
        (tmp_path / part / "x").mkdir(parents=True)
        (tmp_path / part / "x" / "a.v4_gold_conll").write_text(CONLL)
    tasks = {name: ontonotes_task(tmp_path, name) for name in ("PoS", "chunking", "predicates", "NER")}
    assert tasks["PoS"].train.inputs[0] == ["Kim", "saw", "New", "York", "today", "."]
    first = {name: task.train.labels[0] for name, task in tasks.items()}
    assert first["PoS"] == ["NNP", "VBD", "NNP", "NNP", "NN", "."]
    assert first["NER"] == ["B-PERSON", "O", "B-GPE", "I-GPE", "O", "O"]
    assert first["predicates"] == ["O", "PRED", "O", "O", "O", "O"]
    assert first["chunking"] == ["B-NP", "O", "B-NP", "I-NP", "B-NP", "O"]
    assert tasks["chunking"].test.labels[1] == ["B-INTJ"]
    (tmp_path / "other").mkdir()
    with pytest.raises(ct.CrossTaskError, match="gold_conll"):
        ontonotes_task(tmp_path / "other", "PoS")


@pytest.mark.slow
def test_tagging_experiments_run_on_ontonotes(tmp_path: Path):
    """The whole way with the paper's own format, small."""
    words = ["Kim", "saw", "New", "York", "today"]
    tags = [("NNP", "(NP*)", "-", "(PER)"), ("VBD", "(VP*)", "01", "*"), ("NNP", "(NP*", "-", "(GPE*"),
            ("NNP", "*)", "-", "*)"), ("NN", "(NP*)", "-", "*")]  # fmt: skip
    (tmp_path / "ontonotes").mkdir()
    for part, count in (("train", 1400), ("test", 20)):
        lines = []
        for number in range(count):
            for place, (word, (pos, parse, sense, entity)) in enumerate(zip(words, tags, strict=True)):
                lines.append(
                    f"d 0 {place} {word}{number % 7 if place else number} {pos} {parse} - {sense} - - {entity}"
                )
            lines.append("")
        (tmp_path / "ontonotes" / part).write_text("\n".join(lines))
    encoder = {"name": "lstm", "dimension": 8, "hidden": 8}
    for name in ("tawt-ratio", "tawt-fixed"):
        results = reproduce(name, tmp_path, encoder=encoder, quick=True, output=tmp_path / "out")[name]
        assert results["runs"]["done"] == results["runs"]["wanted"]
        assert all(claim["verdict"] != "not measured" for claim in results["claims"])
