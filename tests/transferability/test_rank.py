"""Ranking sources before training: known truth, every kind of task, what cannot be judged, the command line."""

import json
import random
import shutil
from dataclasses import asdict, replace

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from sklearn.linear_model import LinearRegression, LogisticRegression

import crosstask as ct
from command_line import crosstask, refused
from crosstask.data.examples import Examples, TaskSpec
from crosstask.probing.linear_models import UNITS_TO_AVERAGE, fit, fold_numbers, unit_losses
from crosstask.report.files import Ranking, read_json
from crosstask.transferability import features as rank_features
from crosstask.transferability import rank as ranking
from crosstask.transferability import verdict as usefulness
from crosstask.transferability.more_scores import combined_score, nce
from crosstask.transferability.verdict import HELPS, HURTS, UNKNOWN, UNSURE, USELESS, Gain
from helpers import WORDS, make_text
from linear_problem import problem, units

WIDTH = 20


def known_truth(seed, target_size=60, source_size=600):
    """A target whose labels follow one direction, and sources that stand to it in known ways."""
    rng = np.random.default_rng(seed)
    axes = np.linalg.qr(rng.normal(size=(WIDTH, WIDTH)))[0]
    reads, other = axes[0], axes[1]

    def task(name, size, rule=None, inputs=lambda x: x):
        x = rng.normal(size=(size, WIDTH))
        labels = rng.integers(2, size=size) if rule is None else (x @ rule > 0).astype(int)
        labels = np.where(rng.random(size) < 0.05, 1 - labels, labels)
        return ct.Task.from_arrays(name, inputs(x).astype("float32"), labels, dev=False)

    away = np.eye(WIDTH) - axes[:10].T @ axes[:10]
    noisy = rng.normal(size=(source_size, 1)) * 3.0 * reads
    sources = [
        task("same rule", source_size, reads),
        task("inverted", source_size, -reads),
        task("another rule", source_size, other),
        task("elsewhere", source_size, axes[15], lambda x: x @ away),
        task("disturbing", source_size, other, lambda x: x + noisy),
        task("random labels", source_size),
    ]
    return task("target", target_size, reads), sources


def rank(target, sources, encoder="linear", **options):
    return ct.rank(target, sources, encoder=encoder, progress=False, **options)


def by_name(result):
    return {row.source: row for row in result.rows}


class TestKnownTruth:
    @pytest.mark.parametrize("seed", range(100, 120))
    def test_helpful_before_useless_before_harmful(self, seed):
        order = [row.source for row in rank(*known_truth(seed)).rows]
        assert set(order[:2]) == {"same rule", "inverted"}
        assert set(order[2:4]) == {"another rule", "elsewhere"}
        assert set(order[4:]) == {"disturbing", "random labels"}

    def test_verdicts_and_their_reasons(self):
        result = rank(*known_truth(100))
        rows = by_name(result)
        verdicts = {name: row.verdict for name, row in rows.items()}
        assert verdicts == {
            "same rule": HELPS,
            "inverted": HELPS,
            "another rule": UNSURE,
            "elsewhere": UNSURE,
            "disturbing": HURTS,
            "random labels": HURTS,
        }
        assert result.best == result.rows[0].source
        assert "off the target's cross-validated loss" in rows["same rule"].reasons[0]
        assert any("means something else by them" in why for why in rows["inverted"].reasons)
        assert any("its labels do not follow" in why for why in rows["disturbing"].reasons)
        assert any("random ones" in why for why in rows["random labels"].reasons)
        assert "which with few labels proves little" in rows["another rule"].reasons[0]
        assert any("measured sources like it" in why for why in rows["another rule"].reasons)
        assert any("where the test cannot tell" in note for note in result.notes)

    def test_with_many_labels_sources_are_found_useless(self):
        result = rank(*known_truth(100, target_size=600))
        verdicts = {row.source: row.verdict for row in result.rows}
        assert verdicts["another rule"] == verdicts["elsewhere"] == USELESS
        assert verdicts["same rule"] == HELPS
        assert not any("where the test cannot tell" in note for note in result.notes)

    def test_names_of_tasks_and_labels_and_the_order_of_sources_play_no_part(self):
        target, sources = known_truth(101)
        expected = {row.source: row.score for row in rank(target, sources).rows}
        again = [replace(s, spec=replace(s.spec, name=s.name + "!")) for s in reversed(sources)]
        found = {row.source.rstrip("!"): row.score for row in rank(target, again).rows}
        assert found == pytest.approx(expected, rel=1e-9)

    def test_a_source_s_scores_do_not_depend_on_the_others(self):
        target, sources = known_truth(102)
        alone = rank(target, sources[:1]).rows[0]
        assert by_name(rank(target, sources))["same rule"].to_data() == alone.to_data()

    def test_features_of_all_tasks_are_in_the_target_s_unit(self):
        """A source whose inputs lie elsewhere draws its border there: on the target's inputs it says one label.

        Against a logistic regression on the inputs as they are. Were each task centered by itself, the source would
        seem to know the target's labels.
        """
        rng = np.random.default_rng(0)
        ours, theirs = rng.normal(size=(200, WIDTH)), rng.normal(size=(600, WIDTH))
        theirs[:, 0] += 3.0
        labels = ours[:, 0] > 0.0
        target = ct.Task.from_arrays("target", ours.astype("float32"), labels, dev=False)
        source = ct.Task.from_arrays("source", theirs.astype("float32"), theirs[:, 0] > 3.0, dev=False)
        row = rank(target, [source], all_scores=True).rows[0]
        said = LogisticRegression().fit(theirs, theirs[:, 0] > 3.0).predict(ours)
        assert said.mean() < 0.01
        assert row.scores["nce"] == pytest.approx(nce(said, labels), abs=0.02)
        assert nce(said, labels) < -0.65

    def test_test_and_dev_labels_are_never_looked_at(self):
        target, sources = known_truth(103)
        extra = Examples(target.train.inputs, ["1"] * len(target.train))
        watched = replace(target, dev=extra, test=extra)
        assert rank(watched, sources).to_json() == rank(target, sources).to_json()

    def test_a_hundred_sources(self):
        target, _ = known_truth(104, target_size=100)  # enough for one round of folds
        sources = [
            replace(source, spec=replace(source.spec, name=f"{source.name} {i}"))
            for i in range(17)
            for source in known_truth(200, source_size=60)[1]
        ][:100]
        assert len(rank(target, sources).rows) == 100


class TestFormulas:
    def test_gain_is_the_share_of_the_loss_that_stacking_takes_away(self):
        features, labels = problem(0, UNITS_TO_AVERAGE)
        target = units(features, labels)
        own, said = features[:, :3], np.eye(3)[labels] + features[:, 5:8]

        def losses(columns):
            folds = fold_numbers(target, np.random.default_rng([0, 0]))
            found = np.zeros((4, len(labels)))
            for fold in range(5):
                held = target.of(columns).take(folds == fold)
                models = fit(target.of(columns).take(folds != fold), usefulness.STACKING_STRENGTHS, tolerance=1e-4)
                for place, model in enumerate(models):
                    found[place, folds == fold] = unit_losses(held, model(held.features))
            return found[found.mean(axis=1).argmin()]

        alone, both = losses(own), losses(np.concatenate([own, said], 1))
        gain = usefulness.stacking_gain(target, own, said, usefulness.held_out_losses(target.of(own)))
        assert gain.fraction == pytest.approx(1.0 - both.sum() / alone.sum())
        standard_error = (alone - both).std(ddof=1) / np.sqrt(len(labels)) / alone.mean()
        assert gain.error == pytest.approx(standard_error)

    def test_words_of_one_sentence_count_once(self):
        features, labels = problem(0, 100)
        twice = units(np.repeat(features, 2, 0), np.repeat(labels, 2), "tagging", examples=np.repeat(np.arange(100), 2))
        alone = usefulness.held_out_losses(twice.of(twice.features[:, :1]))
        gain = usefulness.stacking_gain(twice, twice.features[:, :1], twice.features[:, 1:], alone)
        together = alone - usefulness.held_out_losses(twice)
        assert gain.error == pytest.approx(together[::2].std(ddof=1) / np.sqrt(100) / alone.mean())

    def test_disturbance_is_the_variance_that_labels_leave(self):
        features, labels = problem(1, 200)
        own, said = features[:, :2], features[:, 3:6]
        columns = np.eye(3)[labels]
        residual = said - LinearRegression().fit(columns, said).predict(columns)
        left = (residual**2).sum() / (200 - 3)
        expected = left / (left + own.var(axis=0).sum())
        assert usefulness.disturbance(own, said, columns) == pytest.approx(expected)

    def test_disturbance_at_its_ends(self):
        _, labels = problem(1, 200)
        columns = np.eye(3)[labels]
        assert usefulness.disturbance(columns, np.ones((200, 3)), columns) == 0.0  # inputs that do not move
        assert usefulness.disturbance(columns, columns, columns) == pytest.approx(0.0, abs=1e-12)  # labels that follow
        assert usefulness.disturbance(np.ones((200, 3)), np.ones((200, 3)), columns) == 0.0

    @pytest.mark.parametrize("kind", ["classification", "regression", "multilabel"])
    def test_learnable_is_a_correlation(self, kind):
        rng = np.random.default_rng(0)
        labels = {
            "classification": rng.integers(3, size=50),
            "regression": rng.normal(size=50),
            "multilabel": rng.integers(2, size=(50, 3)).astype(float),
        }[kind]
        task = units(rng.normal(size=(50, 2)), labels, kind)
        truth = usefulness.label_columns(task)
        said = truth + rng.normal(size=truth.shape)
        centred = [(values - values.mean(axis=0)).ravel() for values in (truth, said)]
        assert usefulness.learnable(task, said) == pytest.approx(np.corrcoef(*centred)[0, 1])
        assert usefulness.learnable(task, 7.0 * truth + 1.0) == pytest.approx(1.0)
        assert usefulness.learnable(task, np.zeros_like(truth)) == 0.0

    def test_agreement_score_written_out(self):
        assert usefulness.agreement_score(0.8, 0.25) == pytest.approx(0.8 + 0.2)
        assert usefulness.agreement_score(0.8, -0.25) == pytest.approx(0.8 - 0.2)
        near, agreeing = usefulness.agreement_score(0.9, 0.0), usefulness.agreement_score(0.5, 0.1)
        assert near > agreeing > usefulness.agreement_score(0.5, -0.1)

    def test_combined_score_written_out(self):
        assert combined_score(Gain(0.2, 0.1), 0.3, 0.4, 0.5) == pytest.approx((0.2 * 0.04 / 0.05 + 0.3 + 0.4) * 0.5)
        assert combined_score(Gain(0.0, 0.0), 0.0, 0.0, 0.5) == 0.0
        assert Gain(0.1, 0.1).steady == pytest.approx(0.05)
        assert Gain(-0.1, 0.1).steady == pytest.approx(-0.05)

    def test_verdicts_at_their_borders(self):
        verdict = usefulness.verdict_of
        many, few = usefulness.FEW_LABELS + 1, usefulness.FEW_LABELS
        assert verdict(Gain(0.1, 0.05), 0.0, 0.9, False, few) == HELPS  # what was measured outweighs hints
        assert (
            verdict(Gain(0.1, 0.05), 0.0, 0.5, True, many) == HURTS
        )  # but random labels can only seem to tell something
        assert verdict(Gain(0.001, 0.0), 0.0, 0.5, False, many) == USELESS  # sure, but too little to matter
        assert verdict(Gain(0.04, 0.05), 0.3, 0.5, False, many) == HELPS
        assert verdict(Gain(-0.01, 0.05), 0.3, 0.5, False, many) == UNSURE  # no proof of a gain is no proof of none
        assert verdict(Gain(-0.1, 0.05), 0.0, 0.5, False, many) == USELESS  # a gain of 1% is more than two errors away
        assert verdict(Gain(-0.089, 0.05), 0.0, 0.5, False, many) == UNSURE
        assert verdict(Gain(-0.1, 0.05), 0.0, 0.5, False, few) == UNSURE  # few labels prove nothing useless
        assert verdict(Gain(0.0, 0.05), -0.3, 0.5, False, many) == HURTS
        assert verdict(Gain(0.0, 0.05), 0.0, 0.7, False, many) == HURTS
        assert verdict(Gain(0.0, 0.05), 0.0, 0.5, True, many) == HURTS


def text_tasks():
    rng = random.Random(0)
    texts = [make_text(i % 5, rng) for i in range(120)]
    words = [[rng.choice(WORDS) for _ in range(rng.randint(2, 7))] for _ in range(60)]
    tags = [["ADJ" if word in WORDS[:8] else "O" for word in sentence] for sentence in words]
    topics = [tuple(name for name in ("shoe", "book") if name in text) for text in texts]
    tasks = [
        ct.Task.from_arrays("stars", texts[:60], [str(i % 5) for i in range(60)]),
        ct.Task.from_arrays("polarity", [make_text(4 * (i % 2), rng) for i in range(100)], ["-", "+"] * 50),
        ct.Task.from_arrays("pairs", list(zip(texts[:80], texts[5:85], strict=True)), [str(i % 2) for i in range(80)]),
        ct.Task.from_arrays("tags", words, tags),
        ct.Task.from_arrays("rating", texts, [float(i % 5) for i in range(120)], kind="regression"),
        ct.Task.from_arrays("topics", texts, topics, kind="multilabel"),
    ]
    return {task.name: task for task in tasks}


class TestKinds:
    @pytest.mark.parametrize("name", ["stars", "pairs", "tags", "rating", "topics"])
    def test_every_kind_with_every_other(self, name, tiny_encoder):
        tasks = text_tasks()
        target = tasks.pop(name)
        rows = by_name(rank(target, list(tasks.values()), encoder=tiny_encoder("bert"), all_scores=True))
        assert set(rows) == set(tasks)
        classes = {"stars", "polarity", "pairs", "tags"}
        for source, row in rows.items():
            assert row.verdict in (HELPS, UNSURE, USELESS, HURTS)
            assert row.reasons
            scores = row.scores
            for score in ("leep", "nce"):
                assert (scores[score] is not None) == (name in classes and source in classes), (source, score)
            assert (scores["h_score"] is not None) == (name != "rating")
            empty = {key for key, value in scores.items() if value is None}
            assert empty <= {"leep", "nce", "h_score"}
            assert 0.0 <= scores["disturbance"] <= 1.0

    def test_vectors_have_no_words(self):
        row = rank(*known_truth(0), all_scores=True).rows[0]
        assert row.scores["vocabulary_overlap"] is row.scores["length_overlap"] is None

    def test_the_covariance_score_is_the_paper_s(self):
        from crosstask.gradients.covariance import covariance_similarity

        target, sources = known_truth(0)
        import torch

        inputs = [torch.from_numpy(task.train.inputs) for task in (target, sources[0])]
        row = by_name(rank(target, sources, all_scores=True))["same rule"]
        assert row.scores["covariance_similarity"] == pytest.approx(covariance_similarity(*inputs))
        normalised = covariance_similarity(*inputs, normalize=True)
        assert row.scores["covariance_similarity_normalised"] == pytest.approx(normalised)
        assert row.score == pytest.approx(normalised * (1 + row.scores["gradient_cosine"]))

    def test_features_are_computed_once(self, tiny_encoder, monkeypatch, tmp_path):
        from crosstask.models.encoders.frozen import FrozenEncoder

        monkeypatch.setenv("CROSSTASK_CACHE", str(tmp_path))
        tasks = text_tasks()
        target, sources = tasks["stars"], [tasks["polarity"], tasks["tags"]]
        first = rank(target, sources, encoder=tiny_encoder("bert")).to_json()
        monkeypatch.setattr(FrozenEncoder, "_features", lambda *_: pytest.fail("features are on disk"))
        assert rank(target, sources, encoder=tiny_encoder("bert")).to_json() == first
        assert rank(target, sources, encoder=tiny_encoder("bert"), examples=30).rows[0].examples == 30

    @pytest.mark.parametrize("name", ["tags", "rating"])
    def test_features_on_disk_give_the_same_without_the_encoder(self, name, tiny_encoder, monkeypatch, tmp_path):
        monkeypatch.setenv("CROSSTASK_CACHE", str(tmp_path))
        tasks = text_tasks()
        target, sources = tasks.pop(name), list(tasks.values())
        first = rank(target, sources, encoder=tiny_encoder("bert")).to_json()
        monkeypatch.setattr(rank_features, "build_encoder", lambda *_: pytest.fail("nothing has to be computed"))
        assert rank(target, sources, encoder=tiny_encoder("bert")).to_json() == first

    def test_a_changed_encoder_or_a_new_text_is_computed(self, tiny_encoder, monkeypatch, tmp_path):
        monkeypatch.setenv("CROSSTASK_CACHE", str(tmp_path / "cache"))
        encoder = tmp_path / "encoder"
        shutil.copytree(tiny_encoder("bert"), encoder)
        tasks = text_tasks()
        target, source = tasks["stars"], tasks["polarity"]
        first = rank(target, [source], encoder=str(encoder)).rows[0].scores
        more = replace(source, train=replace(source.train, inputs=["not so bad", *source.train.inputs[1:]]))
        assert rank(target, [more], encoder=str(encoder)).rows[0].scores != first
        weights = load_file(encoder / "model.safetensors")
        save_file({key: 2.0 * value for key, value in weights.items()}, encoder / "model.safetensors")
        assert rank(target, [source], encoder=str(encoder)).rows[0].scores != first

    def test_how_many_examples(self):
        assert ranking.max_source_examples(14, is_costly=False) == 2_000
        assert ranking.max_source_examples(1, is_costly=True) == 2_000
        assert 15 * ranking.max_source_examples(14, is_costly=True) < 4_000
        assert ranking.max_source_examples(1_000, is_costly=True) == 200

    def test_the_caller_s_random_numbers_stay(self):
        import torch

        torch.manual_seed(5)
        expected = torch.rand(1)
        torch.manual_seed(5)
        rank(*known_truth(0))
        assert torch.equal(torch.rand(1), expected)


def test_random_labels_of_repeated_inputs_do_not_look_learnable():
    rng = np.random.default_rng(0)
    target, sources = known_truth(0)
    vectors = rng.normal(size=(50, WIDTH)).astype("float32")
    repeated = ct.Task.from_arrays(
        "repeated", np.repeat(vectors, 6, axis=0), np.repeat(rng.integers(2, size=50), 6), dev=False
    )
    row = by_name(rank(target, [repeated, sources[0]]))["repeated"]
    assert row.verdict == HURTS
    assert row.scores["learnable"] < 0.3
    copy = replace(target, spec=replace(target.spec, name="few"), train=target.train.take([0, 1, 2] * 5))
    assert by_name(rank(target, [copy]))["few"].reasons == ("it has only 3 different inputs",)


class TestCannotBeJudged:
    def vector_task(self, name, inputs, labels, label_names=("0", "1")):
        """A task past the checks of `Task.assemble`, as an encoder of one's own could lead to."""
        spec = TaskSpec(name, "classification", "vector", label_names)
        return ct.Task(spec, Examples(np.asarray(inputs, dtype=np.float32), [str(label) for label in labels]))

    def judged(self, *bad):
        target, sources = known_truth(100)
        rows = by_name(rank(target, [*bad, sources[0]]))
        assert rows["same rule"].verdict == HELPS
        return rows

    def test_the_row_says_why_and_the_others_go_on(self):
        x = np.random.default_rng(0).normal(size=(40, WIDTH))
        nan = x.copy()
        nan[3, 2] = np.nan
        labels = np.arange(40) % 2
        rows = self.judged(
            self.vector_task("one class", x, np.zeros(40, int)),
            self.vector_task("many labels", x[:10], np.arange(10), tuple(str(i) for i in range(17))),
            self.vector_task("nan", nan, labels),
            self.vector_task("constant", np.ones((40, WIDTH)), labels),
            self.vector_task("narrow", x[:, :5], labels),
            self.vector_task("few", x[:3], labels[:3]),
            ct.Task.from_arrays("texts", ["good", "bad"] * 10, ["1", "0"] * 10),
        )
        expected = {
            "one class": "all of its 40 examples have the same label",
            "many labels": "fewer examples (10) than labels (17)",
            "nan": "1 of its 40 feature vectors hold numbers that are not finite",
            "constant": "its features are the same for every example",
            "narrow": "its vectors have 5 numbers, the target's 20",
            "few": "only 3 examples",
            "texts": "no encoder takes both",
        }
        for name, why in expected.items():
            assert rows[name].verdict == UNKNOWN
            assert rows[name].score is None
            assert why in rows[name].reasons[0]

    def test_texts_that_cannot_be_judged(self, tiny_encoder):
        """The same for texts, whose features come from an encoder."""
        tasks = text_tasks()
        target, polarity = tasks["stars"], tasks["polarity"]

        def changed(name, **parts):
            return ct.Task(replace(polarity.spec, name=name), replace(polarity.train, **parts))

        texts, labels = polarity.train.inputs, polarity.train.labels
        many = replace(polarity.spec, name="many labels", labels=tuple(str(i) for i in range(99)))
        bad = [
            changed("one class", labels=[labels[0]] * len(labels)),
            changed("one text", inputs=[texts[0]] * len(texts)),
            ct.Task(many, replace(polarity.train, labels=[str(i % 99) for i in range(len(labels))]).take(range(40))),
        ]
        rows = by_name(rank(target, [*bad, polarity], encoder=tiny_encoder("bert")))
        expected = {"one class": "the same label", "one text": "the same for every", "many labels": "(40) than labels"}
        for name, why in expected.items():
            assert rows[name].verdict == UNKNOWN
            assert why in rows[name].reasons[0]
        assert rows["polarity"].score is not None

    def test_features_that_are_not_finite(self, tiny_encoder, monkeypatch):
        tasks = text_tasks()
        target, sources = tasks["stars"], [tasks["polarity"], tasks["rating"]]
        whole = rank_features.all_units

        def broken(*arguments):
            found = whole(*arguments)
            found["polarity"].features[3, 2] = np.nan
            return found

        monkeypatch.setattr(ranking, "all_units", broken)
        rows = by_name(rank(target, sources, encoder=tiny_encoder("bert")))
        assert rows["polarity"].verdict == UNKNOWN
        assert "1 of its 80 feature vectors hold numbers that are not finite" in rows["polarity"].reasons[0]
        assert rows["rating"].score is not None

    def test_the_target_over_again_in_texts(self, tiny_encoder):
        target = text_tasks()["stars"]
        copy = replace(target, spec=replace(target.spec, name="copy"))
        row = rank(target, [copy], encoder=tiny_encoder("bert")).rows[0]
        assert row.reasons == ("the same examples with the same labels as the target: it adds nothing",)

    def test_a_single_constant_feature_is_no_harm(self):
        target, sources = known_truth(100)

        def flattened(task):
            inputs = task.train.inputs.copy()
            inputs[:, 4] = 7.0
            return replace(task, train=replace(task.train, inputs=inputs))

        rows = by_name(rank(flattened(target), [flattened(source) for source in sources]))
        assert rows["same rule"].verdict == HELPS
        assert all(np.isfinite(row.score) for row in rows.values())

    def test_the_target_over_again(self):
        target, sources = known_truth(100)
        copy = replace(target, spec=replace(target.spec, name="copy"))
        row = by_name(rank(target, [copy, *sources]))["copy"]
        assert row.verdict == USELESS
        assert row.reasons == ("the same examples with the same labels as the target: it adds nothing",)

    def test_the_target_s_inputs_with_other_labels(self):
        target, _ = known_truth(100)
        labels = [str(i % 2) for i in range(len(target.train))]
        other = ct.Task(replace(target.spec, name="other"), replace(target.train, labels=labels))
        row = rank(target, [other]).rows[0]
        assert "100% of the target's inputs stand in it too" in row.reasons

    def test_common_inputs_are_counted_on_all_examples(self):
        """Samples of 60 and 600 inputs hardly meet by chance; half of the target's 60 stand in a source of 600."""
        target, sources = known_truth(100)
        half = target.train.take(range(30))
        inputs = np.concatenate([sources[0].train.inputs, half.inputs])
        source = ct.Task.from_arrays("source", inputs, [*sources[0].train.labels, *half.labels], dev=False)
        for examples in (None, 20, 40):
            row = rank(target, [source], examples=examples).rows[0]
            assert "50% of the target's inputs stand in it too" in row.reasons, examples

    def test_a_copy_is_told_by_all_examples(self):
        """A sample of a copy may be a sample of something else; a sample of something else is no copy."""
        target, sources = known_truth(100)
        copy = replace(sources[0], spec=replace(sources[0].spec, name="copy"))
        row = rank(sources[0], [copy], examples=50).rows[0]
        assert row.reasons == ("the same examples with the same labels as the target: it adds nothing",)
        more = np.concatenate([target.train.inputs, sources[1].train.inputs])
        longer = ct.Task.from_arrays("longer", more, [*target.train.labels, *sources[1].train.labels], dev=False)
        row = rank(target, [longer], examples=20).rows[0]
        assert "100% of the target's inputs stand in it too" in row.reasons

    def test_what_a_source_has_memorized_of_the_target_s_inputs_does_not_count(self):
        """Labels at random, more features than examples: on inputs that are new to it such a source tells nothing."""
        alignments, gains = [], []
        for seed in range(4):
            rng = np.random.default_rng(seed)
            inputs, labels = rng.normal(size=(60, 100)).astype("float32"), rng.integers(2, size=60)
            target = ct.Task.from_arrays("target", inputs, labels, dev=False)
            almost = np.where(np.arange(60) == 0, 1 - labels, labels)  # else it would be a copy
            source = ct.Task.from_arrays("source", inputs, almost, dev=False)
            row = rank(target, [source], all_scores=True).rows[0]
            alignments.append(row.scores["cka"])
            gains.append(row.scores["gain"])
        assert np.mean(alignments) < 0.2  # of outputs of a model that has seen the inputs: 0.6
        assert np.mean(gains) < 0.1  # 0.6

    def test_a_target_that_cannot_be_judged_is_an_error(self):
        x = np.random.default_rng(0).normal(size=(40, WIDTH))
        _, sources = known_truth(0)
        with pytest.raises(ct.CrossTaskError, match="for the target 'bad': all of its 40 examples"):
            rank(self.vector_task("bad", x, np.zeros(40, int)), sources)

    def test_no_source_or_two_of_one_name(self):
        target, sources = known_truth(0)
        with pytest.raises(ct.CrossTaskError, match="no source to rank"):
            rank(target, [])
        with pytest.raises(ct.CrossTaskError, match="Two tasks are called 'same rule'"):
            rank(target, [sources[0], sources[0]])
        with pytest.raises(ct.CrossTaskError, match="`examples` must be at least 2"):
            rank(target, sources, examples=1)


class TestOutput:
    def test_table_and_json(self):
        result = rank(*known_truth(100))
        table = str(result)
        lines = table.splitlines()
        assert lines[0] == "Sources for 'target', best first"
        assert max(len(line) for line in lines[1:8]) <= 120
        for row in result.rows:
            assert sum(line.startswith(f"{row.source}:") for line in lines) == 1
        data = json.loads(result.to_json())
        assert data["best"] == result.best
        assert [row["source"] for row in data["rows"]] == [row.source for row in result.rows]
        assert set(data["rows"][0]["scores"]) >= {"gain", "leep", "nce", "logme", "h_score", "cka", "label_noise"}

    def test_scores_without_a_part_in_the_ranking_are_computed_when_asked_for(self):
        plain, full = (rank(*known_truth(100), all_scores=all_scores) for all_scores in (False, True))
        assert [row.source for row in plain.rows] == [row.source for row in full.rows]
        assert str(plain).splitlines()[:8] == str(full).splitlines()[:8]
        assert "LEEP" not in str(plain)
        assert "LEEP" in str(full)
        for row, row_with_all in zip(plain.rows, full.rows, strict=True):
            assert list(row.scores) == list(row_with_all.scores)
            assert {name for name, score in row.scores.items() if score != row_with_all.scores[name]} == {
                "combined", "covariance_similarity", "cka", "leep", "nce", "logme", "h_score", "label_noise",
            }  # fmt: skip

    def test_nothing_helps(self):
        target, sources = known_truth(100)
        assert rank(target, sources[4:]).best is None


class TestCommandLine:
    @pytest.fixture
    def recipe(self, star_files, tiny_encoder):
        path = star_files / "stars.yaml"
        path.write_text(path.read_text().replace("{name: mlp, dimension: 16, hidden: 16}", tiny_encoder("bert")))
        return path

    def test_table(self, recipe):
        outcome = crosstask("rank", recipe)
        assert (outcome.code, outcome.err) == (0, "")
        assert outcome.out.startswith("Sources for 'stars', best first")
        assert "polarity" in outcome.out
        assert not (recipe.parent / "runs").exists()

    def test_the_run_folder_gets_it_for_its_page(self, recipe):
        folder = recipe.parent / "runs" / "stars"
        folder.mkdir(parents=True)
        crosstask("rank", recipe, "--target", "polarity")
        assert list(folder.iterdir()) == []  # a run of another target
        said = json.loads(crosstask("rank", recipe, "--json").out)
        assert json.loads((folder / "rank.json").read_text()) == said
        ranking = read_json(folder / "rank.json", Ranking)
        for row, expected in zip(ranking.rows, said["rows"], strict=True):
            assert asdict(row) == {name: expected[name] for name in vars(row)}

    def test_a_file_instead(self, recipe):
        (recipe.parent / "runs" / "stars").mkdir(parents=True)
        place = recipe.parent / "new" / "ranking.json"
        assert crosstask("rank", recipe, "-o", place).out.startswith("Sources for 'stars', best first")
        assert json.loads(place.read_text())["target"] == "stars"
        assert list((recipe.parent / "runs" / "stars").iterdir()) == []
        assert "is a folder; name a file" in refused("rank", recipe, "-o", place.parent, folder=recipe.parent)

    def test_json_for_each_target(self, recipe):
        data = json.loads(crosstask("rank", recipe, "--json").out)
        assert (data["target"], len(data["rows"])) == ("stars", 1)
        assert json.loads(crosstask("rank", recipe, "--json", "--target", "polarity").out)["target"] == "polarity"
        recipe.write_text(recipe.read_text().replace("target: stars", "target: [stars, polarity]"))
        both = json.loads(crosstask("rank", recipe, "--json").out)
        assert [one["target"] for one in both] == ["stars", "polarity"]

    def test_a_source_that_cannot_be_read_has_a_row(self, recipe):
        (recipe.parent / "one.csv").write_text("review,label\ngood,a\nbad,a\n")
        line = "  one: {train: one.csv, text: review, label: label}\n"
        recipe.write_text(recipe.read_text().replace("tasks:\n", "tasks:\n" + line))
        rows = {row["source"]: row for row in json.loads(crosstask("rank", recipe, "--json").out)["rows"]}
        assert rows["one"]["verdict"] == UNKNOWN
        assert "has only the label 'a'" in rows["one"]["reasons"][0]
        assert rows["polarity"]["score"] is not None

    def test_mistakes(self, recipe):
        assert "Unknown task 'star'. Did you mean 'stars'?" in refused(
            "rank", recipe, "--target", "star", folder=recipe.parent
        )
        assert "There is no recipe" in refused("rank", recipe.parent / "no.yaml", folder=recipe.parent)

    def test_an_encoder_that_knows_nothing(self, star_files):
        assert "'mlp' without `vectors`" in refused("rank", star_files / "stars.yaml", folder=star_files)
