"""What people hold and what they get wrong: each input typed once, and what crosstask answers, before and now.

Every case is a few lines of Python, or a command, that run in a folder of their own with the files that `write_files`
puts there. The answer is what the last line gives, with notes and warnings, or the error.

    git archive 9cd53b1 src | tar -x -C /tmp/before     # the last version that knew nothing of all this
    python benchmarks/misuses.py --before /tmp/before/src --output benchmarks/results/misuses.json
"""

import argparse
import ast
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import traceback
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

BEFORE = "9cd53b1"
"""The commit that `before` is of."""
MAX_ANSWER = 400
"""Characters of an answer that are kept."""

PRELUDE = """\
import numpy as np
import pandas as pd
import torch

import crosstask as ct

texts = ["great shoe", "awful shoe", "great book", "awful book"] * 5
stars = [5, 1, 5, 1] * 5
frame = pd.DataFrame({"review": texts, "stars": stars, "id": range(20)})
holes = frame.assign(stars=[None, 1, float("nan"), *stars[3:]])
task = ct.Task.from_arrays("stars", texts, stars, dev=False)
source = ct.Task.from_arrays("mood", texts, ["good", "bad"] * 10, dev=False)
small = {"name": "mlp", "dimension": 4, "hidden": 4}
learner = ct.Learner(small, updates=2, progress=False)
"""
LOOP = """\
x = torch.nn.Parameter(torch.ones(2))
optimizer = torch.optim.SGD([x], lr=0.1)


def loop(weighting, tasks=("ours", "theirs")):
    for _ in range(10):
        losses = {name: (x**2).sum() * (1 + number) for number, name in enumerate(tasks)}
        weighting.backward(losses, shared=[x])
        optimizer.step()
        optimizer.zero_grad()
    return {name: round(weight, 2) for name, weight in weighting.weights.items()}
"""


@dataclass(frozen=True)
class Case:
    """One thing that somebody types: Python, or a command that begins with `crosstask`."""

    group: str
    what: str
    typed: str
    setup: str = ""


MEMORY, FILES, LABELS, MISUSES, LOOPS = (
    "Data in memory",
    "Files that can be read in two ways",
    "What is missing, and labels that are none",
    "Arguments that are something else",
    "Training loops of one's own",
)
READ = "ct.Task.read('t', {}, dev=False)"
CASES = (
    Case(MEMORY, "a data frame", "ct.Task.from_pandas('stars', frame, text='review', label='stars')"),
    Case(MEMORY, "records", "ct.Task.from_records('stars', frame.to_dict('records'), text='review', label='stars')"),
    Case(
        MEMORY,
        "a data set of the package datasets",
        "ct.Task.from_dataset('stars', data, text='review', label='stars')",
        "from datasets import Dataset\ndata = Dataset.from_pandas(frame)",
    ),
    Case(
        MEMORY,
        "a DatasetDict with a split of another name",
        "ct.Task.from_dataset('stars', data, text='review', label='stars', dev=False)",
        "from datasets import Dataset, DatasetDict\n"
        "data = DatasetDict(train=Dataset.from_pandas(frame), matched=Dataset.from_pandas(frame))",
    ),
    Case(MEMORY, "an array of objects", "ct.Task.from_arrays('stars', np.array(texts, dtype=object), np.array(stars))"),
    Case(MEMORY, "tensors", "ct.Task.from_arrays('t', torch.randn(20, 3), torch.arange(20) % 2)"),
    Case(MEMORY, "several files as one split", READ.format("['part-1.csv', 'part-2.csv']")),
    Case(MEMORY, "a pattern of file names", READ.format("'part-*.csv'")),
    Case(MEMORY, "labels that are numbers", "{type(label) for label in learner.fit(task).predict(texts)}"),
    Case(
        MEMORY,
        "a column of a data frame to be predicted",
        "len(learner.fit(task).predict(frame['review']))",
    ),
    Case(
        FILES,
        "ARFF of several labels with Mulan's XML beside it",
        "task = ct.Task.read('t', 'music.arff', dev=False); task, task.train.inputs.shape",
    ),
    Case(
        FILES,
        "the same, one label named",
        "task = ct.Task.read('t', 'music.arff', dev=False, label='sad'); task, task.train.inputs.shape",
    ),
    Case(
        FILES,
        "the same without the XML",
        "task = ct.Task.read('t', 'plain.arff', dev=False); task, task.train.inputs.shape",
    ),
    Case(FILES, "columns of vectors in another order", "crosstask predict runs/vectors turned.csv"),
    Case(
        FILES,
        "a column that counts words (Universal NER)",
        "task = ct.Task.read('t', 'ner.iob2', dev=False); task.train.inputs[0], task.train.labels[0], task.notes",
    ),
    Case(
        FILES,
        "PropBank's predicates as columns",
        "task = ct.Task.read('t', 'predicates.tsv', dev=False, format='columns'); task.train.inputs[0], task.labels",
    ),
    Case(
        FILES,
        "the column that counts words named as words",
        "task = ct.Task.read('t', 'ner.iob2', dev=False, token=0, label=2); task.train.inputs[0]",
    ),
    Case(
        FILES,
        "CoNLL-U with columns that vary by sentence",
        "task = ct.Task.read('t', 'varying.conllu', dev=False, label='upos'); task.train.inputs, task.labels",
    ),
    Case(
        FILES,
        "the same, a column counted from the end",
        "task = ct.Task.read('t', 'varying.conllu', dev=False, label=-1); task.train.labels",
    ),
    Case(
        FILES,
        "comments before sentences, columns separated by spaces",
        "task = ct.Task.read('t', 'comments.txt', dev=False, format='columns'); task.train.inputs",
    ),
    Case(
        FILES,
        "the name of the document where the words should be",
        "task = ct.Task.read('t', 'documents.conll', dev=False); task.train.inputs[0]",
    ),
    Case(
        LABELS,
        "identifiers as labels",
        "ct.Task.from_arrays('t', [f'text {i}' for i in range(40)], [f'doc{i}' for i in range(40)])",
    ),
    Case(
        LABELS,
        "different numbers as labels",
        "ct.Task.from_arrays('t', [f'text {i}' for i in range(40)], list(range(40)))",
    ),
    Case(LABELS, "`nan` among the labels of a CSV file", READ.format("'nan.csv'")),
    Case(
        LABELS,
        "NaN and None as labels of a data frame",
        "ct.Task.from_pandas('t', holes, text='review', label='stars')",
    ),
    Case(
        LABELS,
        "NaN and None as labels of a list",
        "ct.Task.from_arrays('t', texts, [None, float('nan'), *stars[2:]], dev=False)",
    ),
    Case(LABELS, "None as a text", "ct.Task.from_arrays('t', [None, *texts[1:]], stars, dev=False)"),
    Case(
        LABELS,
        "None among the words of a sentence",
        "ct.Task.from_arrays('t', [['a', None]] * 20, [['O', 'O']] * 10 + [['X', 'O']] * 10, dev=False)",
    ),
    Case(LABELS, "None among several labels", "ct.Task.from_arrays('t', texts, [('x', None), ('y',)] * 10, dev=False)"),
    Case(
        LABELS,
        "NaN in a vector",
        "ct.Task.from_arrays('t', np.array([[1.0, np.nan], [1.0, 2.0]] * 10), ['a', 'b'] * 10, dev=False)",
    ),
    Case(
        LABELS,
        "`limit` on skewed classes",
        "task = ct.Task.from_arrays('t', [f'text {i}' for i in range(1000)], ['rare' if i % 20 == 0 else 'often' "
        "for i in range(1000)], limit=100, dev=False); task.train.labels.count('rare'), task.notes",
    ),
    Case(
        LABELS,
        "`limit` that is to balance",
        "task = ct.Task.from_arrays('t', [f'text {i}' for i in range(1000)], ['rare' if i % 20 == 0 else 'often' for "
        "i in range(1000)], limit={'count': 100, 'balanced': True}, dev=False); task.train.labels.count('rare')",
    ),
    Case(
        LABELS,
        "a source that holds inputs of the target",
        "ct.rank(target, [source], encoder='linear', progress=False).rows[0].reasons[-1]",
        "draw = np.random.default_rng(0)\nvectors = draw.normal(size=(6000, 3))\n"
        "classes = np.where(vectors[:, 0] > 0, 'a', 'b')\nboth = np.r_[3000:6000, 0:500]\n"
        "target = ct.Task.from_arrays('t', vectors[:3000], classes[:3000], dev=False)\n"
        "source = ct.Task.from_arrays('s', vectors[both], classes[both], dev=False)\n",
    ),
    Case(MISUSES, "one source without a list", "learner.fit(task, source)"),
    Case(MISUSES, "no source: None", "learner.fit(task, None)"),
    Case(MISUSES, "a class instead of an object", "ct.Learner(small, weighting=ct.TAWT, updates=2).fit(task, source)"),
    Case(MISUSES, "None as the target", "learner.fit(None)"),
    Case(MISUSES, "a name as the target", "learner.fit('stars')"),
    Case(MISUSES, "a data frame as the target", "learner.fit(frame)"),
    Case(MISUSES, "a name as a source", "learner.fit(task, ['mood'])"),
    Case(MISUSES, "a text instead of a list of them", "learner.fit(task).predict('great shoe')"),
    Case(MISUSES, "None among texts to be predicted", "learner.fit(task).predict(['great shoe', None])"),
    Case(MISUSES, "a weighting as a wrong word", "ct.Learner(small, weighting='twat').fit(task, source)"),
    Case(
        MISUSES,
        "a column that is not there",
        "ct.Task.from_pandas('stars', frame, text='reviews', label='stars')",
    ),
    Case(LOOPS, "MetaWeighting without `after_step`", "loop(ct.MetaWeighting(tasks=['ours', 'theirs']))", LOOP),
    Case(
        LOOPS,
        "TAWT on fresh examples without `after_step`",
        "loop(ct.TAWT(tasks=['ours', 'theirs'], target='ours', every=1, {probe}=8))",
        LOOP,
    ),
    Case(LOOPS, "SVD without `fit_features`", "loop(ct.SVDWeighting(tasks=['ours', 'theirs']))", LOOP),
    Case(LOOPS, "a target that is no task", "loop(ct.TAWT(tasks=['ours', 'theirs'], target='oars', every=1))", LOOP),
    Case(
        LOOPS,
        "tasks that never come in one call",
        "for _ in range(30): loop(weighting, ['ours']), loop(weighting, ['theirs'])",
        LOOP + "weighting = ct.TAWT(tasks=['ours', 'theirs'], target='ours', every=1)\n",
    ),
)

ARFF = (
    "@relation music\n@attribute x numeric\n@attribute y numeric\n@attribute sad {0,1}\n@attribute calm {0,1}\n@data\n"
)
NER = "# sent_id = 0\n1\tAl\tB-ORG\t-\tanna\n2\tZaman\tI-ORG\t-\tanna\n3\tcame\tO\n\n# sent_id = 1\n1\tYes\tO\n\n"
PREDICATES = "1\tHe\the\tPRON\t_\n2\tcame\tcome\tVERB\tcome.01\n\n1\tYes\tyes\tINTJ\t_\n\n"
VARYING = (
    "1\tHe\the\tPRON\tPRP\t_\t2\tnsubj\t_\t_\t_\tA0\n2\tcame\tcome\tVERB\tVBD\t_\t0\troot\t_\t_\tcome.01\t_\n\n"
    "1\tYes\tyes\tINTJ\tUH\t_\t0\troot\t_\t_\t_\n\n"
)
DOCUMENTS = "\n\n".join("\n".join(f"wsj/{i} {j} w{j} O" for j in range(4)) for i in range(3)) + "\n"


def write_files(folder: Path) -> None:
    """The files that cases read."""
    rows = "1,2,0,1\n3,4,1,0\n5,6,0,0\n" * 5
    for name in ("music", "plain"):
        (folder / f"{name}.arff").write_text(ARFF + rows)
    (folder / "music.xml").write_text('<labels><label name="sad"/><label name="calm"/></labels>')
    for part in (1, 2):
        (folder / f"part-{part}.csv").write_text("text,label\n" + "great,good\nawful,bad\n" * 5)
    (folder / "nan.csv").write_text("text,label\n" + "a,1.5\nb,2\n" * 4 + "c,nan\nd,nan\n")
    (folder / "ner.iob2").write_text(NER * 5)
    (folder / "predicates.tsv").write_text(PREDICATES * 5)
    (folder / "varying.conllu").write_text(VARYING * 5)
    (folder / "comments.txt").write_text("# id 1\nHe PRP B-NP\n\n# id 2\nYes UH O\n\n" * 5)
    (folder / "documents.conll").write_text(DOCUMENTS)
    people = [(age, 190 - age, "old" if age > 50 else "young") for age in range(20, 80)]
    rows = "".join(f"{age},{height},{label}\n" for age, height, label in people)
    (folder / "vectors.csv").write_text(f"age,height,y\n{rows}")
    (folder / "turned.csv").write_text("height,age\n160,30\n120,70\n")
    (folder / "vectors.yaml").write_text(
        "target: t\ntasks: {t: {train: vectors.csv, features: rest, label: y}}\n"
        "encoder: linear\nparadigm: probe\noutput: runs/vectors\n"
    )


def answer(case: Case) -> str:
    """What is said to what was typed, in a folder with the files."""
    if case.typed.startswith("crosstask "):
        return _answer_of_a_command(case.typed)
    names: dict[str, Any] = {}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            exec(PRELUDE + case.setup, names)
            tree = ast.parse(typed_here(case.typed))
            last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
            exec(compile(tree, "typed", "exec"), names)
            value = eval(compile(ast.Expression(last.value), "typed", "eval"), names) if last is not None else None
            said = describe(value)
        except Exception as error:
            said = f"{type(error).__name__}: {error}"
            if type(error).__name__ != "CrossTaskError":
                said = traceback.format_exception_only(error)[-1].strip()
    for warning in caught:
        if warning.category.__name__ == "CrossTaskWarning":
            said += f" Warning: {warning.message}"
    return shorten(said)


def typed_here(typed: str) -> str:
    """What is typed, in the words of this version: TAWT's option `fresh` was called `probe`."""
    from inspect import signature

    import crosstask as ct

    return typed.replace("{probe}", "fresh" if "fresh" in signature(ct.TAWT).parameters else "probe")


def _answer_of_a_command(typed: str) -> str:
    """What the terminal shows, after a model of the vectors was trained."""
    program = [sys.executable, "-m", "crosstask.cli"]
    subprocess.run([*program, "train", "vectors.yaml"], capture_output=True, check=True)
    done = subprocess.run([*program, *shlex.split(typed)[1:]], capture_output=True, text=True, check=False)
    return shorten(f"exit code {done.returncode}: {done.stderr.strip() or done.stdout.strip()}")


def describe(value: Any) -> str:
    """A value in short, and of a task its labels and notes too."""
    import crosstask as ct

    if isinstance(value, ct.Task):
        notes = "".join(f"; note: {note}" for note in value.notes)
        return f"{value!r}; labels {', '.join(value.labels)}{notes}"
    if isinstance(value, tuple) and value:
        return ", ".join(describe(item) for item in value)
    if isinstance(value, ct.Run):
        return f"a run of {', '.join(value.tasks)}"
    return "done" if value is None else repr(value)


def shorten(text: str) -> str:
    """In one line, without what differs from machine to machine."""
    text = re.sub(r"\s+", " ", text).strip().replace(str(Path.cwd()), "...")
    return text if len(text) <= MAX_ANSWER else f"{text[:MAX_ANSWER]} ..."


def answers() -> list[str]:
    """To all cases, by the version that is imported here."""
    before = Path.cwd()
    said: list[str] = []
    for case in CASES:
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            try:
                write_files(Path(folder))
                said.append(answer(case))
            finally:
                os.chdir(before)
    return said


def answers_of(source: Path) -> list[str]:
    """To all cases, by the version in a folder of sources."""
    environment = {**os.environ, "PYTHONPATH": str(source.resolve())}
    command = [sys.executable, str(Path(__file__).resolve()), "--answers"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    said: list[str] = json.loads(done.stdout.splitlines()[-1])
    return said


def main() -> None:
    """Ask both versions, and write what they say."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path, help="folder of the sources of the version before")
    parser.add_argument("--output", type=Path)
    parser.add_argument("--answers", action="store_true", help="print the answers of this version as JSON, and no more")
    options = parser.parse_args()
    if options.answers:
        print(json.dumps(answers()))
        return
    before = answers_of(options.before) if options.before else [""] * len(CASES)
    now = answers_of(Path(__file__).parent.parent / "src")
    rows = []
    for case, then, today in zip(CASES, before, now, strict=True):
        typed = case.typed.replace("{probe}", "fresh")
        rows.append({"group": case.group, "what": case.what, "typed": typed, "before": then, "now": today})
        print(f"{case.what}\n  typed:  {typed}\n  before: {then}\n  now:    {today}")
    if options.output:
        result = {"before": BEFORE, "cases": rows}
        options.output.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
