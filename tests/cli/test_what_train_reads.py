"""Whatever `train` reads, `predict` and `evaluate` read too, with labels in the file or without."""

import csv
import io
import json
from pathlib import Path

import pytest

from command_line import crosstask, refused

TEXTS = [f"{('good', 'bad')[i % 2]} shoe {i}" for i in range(20)]
LABELS = [("up", "down")[i % 2] for i in range(20)]
RECIPE = """\
target: t
tasks:
  t: {OPTIONS}
encoder: {name: NETWORK, dimension: 4, hidden: 4}
training: {updates: 2, batch_size: 4}
"""


def write_table(folder: Path, format: str, name: str, text: str = "text", label: str | None = "label") -> Path:
    """The same examples in a format."""
    path = folder / f"{name}.{format}"
    rows = [{"id": i, text: TEXTS[i]} | ({} if label is None else {label: LABELS[i]}) for i in range(20)]
    if format == "jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    elif format == "parquet":
        parquet = pytest.importorskip("pyarrow.parquet")
        import pyarrow

        parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    else:
        delimiter = "," if format == "csv" else "\t"
        lines = [delimiter.join(rows[0]), *(delimiter.join(map(str, row.values())) for row in rows)]
        path.write_text("\n".join(lines) + "\n")
    return path


def trained(folder: Path, options: str, network: str = "mlp") -> Path:
    recipe = RECIPE.replace("{OPTIONS}", f"{{{options}}}").replace("NETWORK", network)
    if network == "linear":
        recipe = recipe.replace(", dimension: 4, hidden: 4", "")
    (folder / "recipe.yaml").write_text(recipe)
    outcome = crosstask("train", folder / "recipe.yaml")
    assert outcome.code == 0, outcome
    return folder / "runs" / "recipe"


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("tables")
    write_table(folder, "csv", "train")
    return trained(folder, "train: train.csv, text: text, label: label")


def labels_of(out: str, format: str) -> list[str]:
    if format in ("jsonl", "parquet"):
        return [json.loads(line)["prediction"] for line in out.splitlines()]
    delimiter = "," if format == "csv" else "\t"
    return [row["prediction"] for row in csv.DictReader(io.StringIO(out), delimiter=delimiter)]


@pytest.mark.parametrize("format", ["csv", "tsv", "jsonl", "parquet"])
def test_tables(run, tmp_path, format):
    """The formats say the same, whatever the recipe's was; other names of columns are named."""
    expected = crosstask("predict", run, stdin=("\n".join(TEXTS) + "\n").encode()).out.splitlines()
    for text, label in (("text", None), ("text", "label"), ("body", "rating")):
        file = write_table(tmp_path, format, f"{text}-{label}", text, label)
        options = [] if text == "text" else ["--text", text]
        outcome = crosstask("predict", run, file, *options)
        assert (outcome.code, outcome.err) == (0, ""), outcome
        assert labels_of(outcome.out, format) == expected
        assert str(TEXTS[3]) in outcome.out
        if label is None:
            continue
        if label == "rating":
            options += ["--label", label]
        scored = crosstask("evaluate", run, file, *options, "--json")
        assert scored.code == 0, scored
        accuracy = sum(one == other for one, other in zip(expected, LABELS, strict=True)) / 20
        assert json.loads(scored.out)["scores"]["accuracy"] == pytest.approx(accuracy)
    assert "has no column 'nothing'" in refused(
        "evaluate", run, file, "--text", "nothing", "--label", "rating", folder=tmp_path
    )


def test_evaluate_takes_the_format_and_the_encoding(run, tmp_path):
    path = write_table(tmp_path, "csv", "a").rename(tmp_path / "a.data")
    path.write_text(path.read_text().replace("bad shoe 1,", "bad é 1,"), encoding="latin-1")
    assert "latin-1" in refused("evaluate", run, path, "--format", "csv", folder=tmp_path)
    assert "20 examples" in crosstask("evaluate", run, path, "--format", "csv", "--encoding", "latin-1").out


def test_a_run_of_python_reads_files_too(tmp_path):
    import crosstask as ct

    task = ct.Task.from_arrays("t", TEXTS, [i % 2 for i in range(20)])
    ct.Learner({"name": "mlp", "dimension": 4}, updates=2).fit(task, output=tmp_path / "run")
    (tmp_path / "a.csv").write_text("body,rating\n" + "".join(f"{TEXTS[i]},{i % 2}\n" for i in range(20)))
    outcome = crosstask("evaluate", tmp_path / "run", tmp_path / "a.csv", "--text", "body", "--label", "rating")
    assert "20 examples" in outcome.out, outcome
    outcome = crosstask("predict", tmp_path / "run", tmp_path / "a.csv", "--text", "body", "-o", tmp_path / "b.jsonl")
    assert outcome.code == 0, outcome
    # What a file holds is text, as the label column of a file is read.
    assert {json.loads(line)["prediction"] for line in (tmp_path / "b.jsonl").read_text().splitlines()} <= {"0", "1"}


def test_arff(tmp_path):
    header = "@relation r\n@attribute a numeric\n@attribute b numeric\n"
    rows = [f"{i},{i % 3}" for i in range(20)]
    classes = "@attribute class {up,down}\n"
    (tmp_path / "train.arff").write_text(
        header + classes + "@data\n" + "".join(f"{row},{LABELS[i]}\n" for i, row in enumerate(rows))
    )
    (tmp_path / "new.arff").write_text(header + "@data\n" + "".join(f"{row}\n" for row in rows))
    run = trained(tmp_path, "train: train.arff", "linear")
    labeled = list(csv.reader(io.StringIO(crosstask("predict", run, tmp_path / "train.arff").out)))
    new = list(csv.reader(io.StringIO(crosstask("predict", run, tmp_path / "new.arff").out)))
    assert labeled[0] == ["a", "b", "class", "prediction"]
    assert new[0] == ["a", "b", "prediction"]
    assert [row[-1] for row in labeled] == [row[-1] for row in new]
    assert "20 examples" in crosstask("evaluate", run, tmp_path / "train.arff").out


@pytest.mark.parametrize("options", ["train: a.arff", "train: a.arff, label: B"])
def test_labels_of_arff_are_no_features_of_new_data_either(tmp_path, options):
    """The list of labels lies beside the training file alone, and new files hold all labels, or none."""
    header = "@relation r\n@attribute x numeric\n"
    labels = "@attribute A {0,1}\n@attribute B {0,1}\n"
    rows = [(i, f"{i % 2},{i % 3 // 2}") for i in range(20)]
    labeled = header + labels + "@data\n" + "".join(f"{x},{ones}\n" for x, ones in rows)
    (tmp_path / "a.arff").write_text(labeled)
    (tmp_path / "a.xml").write_text("<labels><label name='A'/><label name='B'/></labels>")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "labeled.arff").write_text(labeled)
    (elsewhere / "new.arff").write_text(header + "@data\n" + "".join(f"{x}\n" for x, _ in rows))
    run = trained(tmp_path, options, "linear")
    predictions = []
    for name in ("labeled", "new"):
        table = list(csv.reader(io.StringIO(crosstask("predict", run, elsewhere / f"{name}.arff").out)))
        predictions.append([row[-1] for row in table])
    assert predictions[0] == predictions[1]
    assert len(predictions[0]) == 21
    scores = [crosstask("evaluate", run, path).out for path in (tmp_path / "a.arff", elsewhere / "labeled.arff")]
    assert scores[0].splitlines()[1:] == scores[1].splitlines()[1:] != []


@pytest.mark.parametrize("features", ["rest", "[a, b]"])
def test_columns_of_vectors_in_another_order(tmp_path, features):
    """They are found by their names; a column that is missing is no other one."""
    rows = [{"a": i, "b": i % 3, "label": LABELS[i]} for i in range(20)]

    def write(name, columns):
        lines = [",".join(columns), *(",".join(str(row[column]) for column in columns) for row in rows)]
        (tmp_path / name).write_text("\n".join(lines) + "\n")
        return tmp_path / name

    train = write("train.csv", ["a", "b", "label"])
    run = trained(tmp_path, f"train: train.csv, features: {features}, label: label", "linear")
    expected = labels_of(crosstask("predict", run, train).out, "csv")
    assert labels_of(crosstask("predict", run, write("other.csv", ["b", "label", "a"])).out, "csv") == expected
    scores = [crosstask("evaluate", run, path).out for path in (train, tmp_path / "other.csv")]
    assert scores[0].splitlines()[1:] == scores[1].splitlines()[1:] != []
    outcome = crosstask("predict", run, write("short.csv", ["b", "label"]))
    assert outcome.code == 2
    assert "has no column 'a' (`features of the model; --text names others`)" in outcome.err


def test_lines_that_begin_with_their_label(tmp_path):
    """As the files of training do: the label is no part of the text. Lines of text alone are lines of text."""
    (tmp_path / "train.txt").write_text("".join(f"{LABELS[i]} {TEXTS[i]}\n" for i in range(20)))
    (tmp_path / "new.txt").write_text("".join(f"{text}\n" for text in TEXTS))
    run = trained(tmp_path, "train: train.txt, format: lines")
    labeled, new = (crosstask("predict", run, tmp_path / name) for name in ("train.txt", "new.txt"))
    assert labeled.out == new.out
    assert "every line of" in labeled.err
    assert "begins with a label of 't'" in labeled.err
    assert new.err == ""
    assert crosstask("predict", run, tmp_path / "train.txt", "--format", "lines").err == ""
    assert "20 examples" in crosstask("evaluate", run, tmp_path / "train.txt").out


def test_sentences_with_the_word_in_another_column(tagging_files):
    outcome = crosstask("train", tagging_files / "tagging.yaml")
    assert outcome.code == 0, outcome
    run = tagging_files / "runs" / "tagging"
    (tagging_files / "other.conll").write_text("1 good O\n2 shoe O\n\n1 bad O\n2 shoe O\n")
    outcome = crosstask("predict", run, tagging_files / "other.conll", "--text", "1")
    assert [line.split("\t")[0] for line in outcome.out.splitlines()] == ["good", "shoe", "", "bad", "shoe", ""], (
        outcome
    )
    options = ("--text", "1", "--label", "2", "--task", "ner")
    assert "2 examples" in crosstask("evaluate", run, tagging_files / "other.conll", *options).out


def test_a_data_set_on_disk(run, tmp_path):
    datasets = pytest.importorskip("datasets")
    datasets.Dataset.from_dict({"text": TEXTS, "label": LABELS}).save_to_disk(tmp_path / "saved")
    outcome = crosstask("predict", run, tmp_path / "saved", "--format", "hub")
    assert len(outcome.out.splitlines()) == 20, outcome
    assert "20 examples" in crosstask("evaluate", run, tmp_path / "saved", "--format", "hub").out
