"""What labels mean: names as words, descriptions, and tasks of which nothing else is known."""

import pytest

import crosstask as ct
from crosstask.data.examples import TaskSpec
from crosstask.data.label_names import check_label_texts, has_words, label_texts, words_of


@pytest.mark.parametrize(
    ("label", "words"),
    [
        ("card_not_working", "card not working"),
        ("card-arrival", "card arrival"),
        ("talk.politics.mideast", "talk politics mideast"),
        ("kitchen/housewares", "kitchen housewares"),
        ("cardArrival", "card Arrival"),
        ("XMLFile2Read", "XML File2 Read"),
        ("Refund_not_showing_up", "Refund not showing up"),
        ("plain words stay", "plain words stay"),
        ("größe_klein", "größe klein"),
        ("__", ""),
    ],
)
def test_names_of_programs_are_words(label, words):
    assert words_of(label) == words


@pytest.mark.parametrize(
    ("text", "answer"), [("good", True), ("5", False), ("+", False), ("B", False), ("a1", False), ("음식", True)]
)
def test_what_has_words(text, answer):
    assert has_words(text) is answer


def task(labels, **options):
    kind = options.get("kind")
    texts = [f"text {i}" for i in range(2 * len(labels))]
    if kind == "tagging":
        return ct.Task.from_arrays("task", [text.split() for text in texts], [[one, one] for one in labels * 2],
                                   dev=False, **options)  # fmt: skip
    return ct.Task.from_arrays("task", texts, labels * 2, dev=False, **options)


def test_descriptions_come_before_names():
    spec = task(["very_bad", "5"], descriptions={5: "  excellent,\n works  "}).spec
    assert spec.labels == ("5", "very_bad")
    assert spec.descriptions == ("excellent, works", "")
    assert label_texts(spec) == ["excellent, works", "very bad"]


def test_descriptions_are_of_renamed_labels():
    spec = task(["p", "n"], map={"p": "good", "n": "bad"}, descriptions={"good": "a happy text"}).spec
    assert label_texts(spec) == ["bad", "a happy text"]


def test_numbers_of_python_keep_their_type():
    spec = task([1, 2], descriptions={1: "poor", 2: "rich"}).spec
    assert (spec.decisions, spec.descriptions) == ((1, 2), ("poor", "rich"))


def test_tags_are_described_by_their_type():
    spec = task(["B-PER", "I-PER", "O"], kind="tagging", descriptions={"PER": "a person", "I-PER": "more of one"}).spec
    assert label_texts(spec) == ["a person", "more of one", None]
    assert label_texts(task(["B-LOC", "O"], kind="tagging").spec) == ["LOC", None]


def test_there_and_back():
    spec = task(["a", "b"], descriptions={"a": "alpha"}).spec
    assert TaskSpec.from_json(spec.to_json()) == spec
    assert "descriptions" not in task(["a", "b"]).spec.to_json()


@pytest.mark.parametrize(
    ("descriptions", "message"),
    [
        ({"goood": "fine"}, "`descriptions`: Unknown label 'goood'. Did you mean 'good'"),
        ({"good": 5}, "`descriptions` says in words what a label means; found 5 for 'good'"),
        ({"good": "+"}, "`descriptions` says in words what a label means"),
        ({"good": "\ud800 no text"}, "`descriptions` says in words what a label means"),
        (["good"], "`descriptions` must be a mapping"),
    ],
)
def test_mistakes(descriptions, message):
    with pytest.raises(ct.CrossTaskError, match=message):
        task(["good", "bad"], descriptions=descriptions)


def test_numbers_have_no_labels_to_describe():
    with pytest.raises(ct.CrossTaskError, match="`descriptions` are of labels, and a task of numbers has none"):
        task([0.5, 1.5], descriptions={"a": "some words"})


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (TaskSpec("stars", "classification", "text", ("1", "2")), r"1, 2 are no words. Say it with `descriptions`"),
        (TaskSpec("mood", "classification", "text", ("good", "-")), "- is no word"),
        (TaskSpec("many", "multilabel", "text", tuple("123456789")), "1, 2, 3, 4, 5 and 4 more are no words"),
        (TaskSpec("same", "pair", "pair", ("yes", "no")), "of the kind pair: only labels of texts and words"),
        (TaskSpec("grade", "regression", "text"), "of the kind regression"),
        (TaskSpec("tags", "tagging", "tokens", ("_", "O")), "_, O are no words"),
    ],
)
def test_labels_that_mean_nothing(spec, message):
    with pytest.raises(ct.CrossTaskError, match=message):
        check_label_texts(spec)
    check_label_texts(TaskSpec("tags", "tagging", "tokens", ("B-PER", "O")))


def test_a_code_among_words_is_read_as_it_is():
    """As the tax form that one of the intents of CLINC150 is about."""
    spec = TaskSpec("intents", "classification", "text", ("direct_deposit", "taxes", "w2"))
    check_label_texts(spec)
    assert label_texts(spec) == ["direct deposit", "taxes", "w2"]
    with pytest.raises(ct.CrossTaskError, match="w2 is no word"):
        check_label_texts(TaskSpec("intents", "classification", "text", ("taxes", "w2")))


class TestUnlabeled:
    def test_a_task_of_nothing_but_labels(self):
        task = ct.Task.unlabeled("mood", label_names=["good", "bad"], test=(["so good"], ["good"]))
        assert (task.labels, task.kind, len(task.train), len(task.test)) == (("good", "bad"), "classification", 0, 1)
        assert task.train.form == "text"
        assert "no training examples" in task.notes[0]

    def test_labels_from_their_descriptions(self):
        task = ct.Task.unlabeled("stars", descriptions={1: "awful", 5: "great"})
        assert (task.labels, task.spec.descriptions) == (("1", "5"), ("awful", "great"))

    def test_numbers_come_back_as_numbers(self):
        task = ct.Task.unlabeled("stars", label_names=[1, 5], descriptions={1: "awful", 5: "great"})
        assert task.spec.decisions == (1, 5)

    def test_from_a_file(self, tmp_path):
        (tmp_path / "test.csv").write_text("text,label\nso good,g\nso bad,b\n")
        task = ct.Task.read(
            "mood", test="test.csv", folder=tmp_path, text="text", label="label", map={"g": "good", "b": "bad"},
            labels=["good", "bad"],
        )  # fmt: skip
        assert task.test.labels == ["good", "bad"]
        assert len(task.train) == 0

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({}, "its labels have to be said: two or more under `labels` or `descriptions`"),
            ({"label_names": ["good"]}, "its labels have to be said"),
            ({"label_names": ["good", "good"]}, "names a label twice"),
            ({"label_names": ["good", "bad"], "test": (["a"], ["other"])}, "the label 'other' in"),
            ({"label_names": ["good", "bad"], "test": ([("a", "b")], ["good"])}, "is one of texts; .* holds pairs"),
            ({"label_names": ["good", "bad"], "test": ([], [])}, "holds none"),
            ({"label_names": ["good", "bad"], "kind": "tagging"}, "a task is one of classification"),
            ({"label_names": ["good", "bad"], "split": [0.5, 0.5]}, "`split` cuts a training set"),
            ({"descriptions": {"good": "fine", "bad": "7"}}, "`descriptions` says in words"),
        ],
    )
    def test_mistakes(self, options, message):
        with pytest.raises(ct.CrossTaskError, match=message):
            ct.Task.unlabeled("mood", **options)

    @pytest.mark.parametrize("paradigm", ["single", "probe", None])
    def test_other_paradigms_need_examples(self, paradigm):
        task = ct.Task.unlabeled("mood", label_names=["good", "bad"])
        with pytest.raises(ct.CrossTaskError, match="'mood' has no training examples: label some, or use the paradigm"):
            ct.Learner("minilm", paradigm=paradigm).fit(task)

    def test_a_source_needs_examples(self):
        target, source = (ct.Task.unlabeled(name, label_names=["good", "bad"]) for name in "ts")
        with pytest.raises(ct.CrossTaskError, match="'s' has no training examples: leave it out"):
            ct.Learner("minilm", paradigm="names").fit(target, source)
