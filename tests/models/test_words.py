import numpy as np
import pytest
import torch

from crosstask.data.task import Task
from crosstask.errors import CrossTaskError
from crosstask.models.encoders.mlp import MLP
from crosstask.models.encoders.vocabulary import Vocabulary, tokenize


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("", []),
        (" \t\n\x85", []),
        ("It's GOOD.", ["it", "'s", "good", "."]),
        ("it 's n't", ["it", "'s", "n't"]),
        ("DON’T!", ["do", "n't", "!"]),
        ("'sugar'", ["'", "sugar", "'"]),
        ("1,000.5 or 7", ["1,000.5", "or", "7"]),
        ("Straße naïve Ωμέγα", ["straße", "naïve", "ωμέγα"]),
        ("cafe\u0301", ["caf\u00e9"]),
        ("हिन्दी में", ["हिन्दी", "में"]),
        ("我爱film。", ["我", "爱", "film", "。"]),
        ("ok 👍❤\ufe0f", ["ok", "👍", "❤\ufe0f"]),
    ],
)
def test_tokenize(text, tokens):
    assert tokenize(text) == tokens


def test_tokenize_keeps_case_when_asked():
    assert tokenize("It'S Good", lower=False) == ["It", "'S", "Good"]


class TestVocabulary:
    def test_numbers_start_behind_the_special_ones(self):
        vocabulary = Vocabulary(["good", "bad"])
        assert vocabulary.ids(["bad", "good", "ugly"]) == [4, 3, 1]
        assert len(vocabulary) == 5

    def test_most_frequent_first_then_alphabet(self):
        counts = {"b": 2, "a": 2, "c": 5, "d": 1}
        assert Vocabulary.from_counts(counts).words == ("c", "a", "b", "d")
        assert Vocabulary.from_counts(counts, min_count=2).words == ("c", "a", "b")
        assert Vocabulary.from_counts(counts, limit=2).words == ("c", "a")

    def test_file_gives_back_odd_words(self, tmp_path):
        words = ["good", "\xa0", "x\x85y", "\r", "", "我", "\ud800"]
        Vocabulary(words).save(tmp_path)
        assert Vocabulary.load(tmp_path).words == tuple(words)

    def test_empty_vocabulary_survives_its_file(self, tmp_path):
        Vocabulary([]).save(tmp_path)
        assert Vocabulary.load(tmp_path).words == ()

    def test_word_with_a_line_break_is_unknown(self):
        assert Vocabulary(["a\nb", "c"]).words == ("c",)

    def test_missing_file(self, tmp_path):
        with pytest.raises(CrossTaskError, match=r"no vocabulary '.*vocabulary\.txt'"):
            Vocabulary.load(tmp_path)


class TestWhichWordsAreKnown:
    def test_words_of_all_tasks(self, text_task, pair_task, tagging_task):
        words = MLP.from_tasks([text_task, tagging_task, pair_task]).words.vocabulary.words
        assert {"so", "the", "good"} <= set(words)
        assert words == MLP.from_tasks([pair_task, text_task, tagging_task]).words.vocabulary.words

    def test_held_out_texts_do_not_count(self):
        task = Task.from_arrays("mood", ["good", "bad"], ["+", "-"], dev=(["seen"], ["+"]), test=(["nowhere"], ["+"]))
        assert set(MLP.from_tasks([task]).words.vocabulary.words) == {"good", "bad"}

    def test_min_count_and_cap(self, text_task):
        assert MLP.from_tasks([text_task], min_count=3).words.vocabulary.words == ("a", "film", "so")
        assert MLP.from_tasks([text_task], vocabulary=2).words.vocabulary.words == ("a", "film")

    def test_case(self, tagging_task):
        assert set(MLP.from_tasks([tagging_task]).words.vocabulary.words) == {"the", "film", "bad"}
        assert set(MLP.from_tasks([tagging_task], lower=False).words.vocabulary.words) == {"The", "film", "Bad"}

    def test_fixed_vectors_bring_all_their_words(self, text_task, vector_file):
        words = MLP.from_tasks([text_task], vectors=vector_file).words.vocabulary
        assert words.words[-1] == "splendid"
        assert "Film" not in words.index  # could never be looked up

    def test_words_of_the_file_stop_at_the_cap(self, text_task, vector_file):
        known = len(MLP.from_tasks([text_task]).words.vocabulary.words)
        encoder = MLP.from_tasks([text_task], vectors=vector_file, vocabulary=known)
        assert "splendid" not in encoder.words.vocabulary.index

    def test_trained_vectors_know_training_words_alone(self, text_task, vector_file):
        encoder = MLP.from_tasks([text_task], vectors=vector_file, train_vectors=True)
        assert "splendid" not in encoder.words.vocabulary.index
        assert encoder.words.table[encoder.words.vocabulary.index["good"]].tolist() == [1, 0, 0, 0]


class TestTable:
    def test_pretrained_random_and_special_rows(self, text_task, vector_file):
        words = MLP.from_tasks([text_task], vectors=vector_file).words
        index, table = words.vocabulary.index, words.table
        assert words.dimension == 4
        assert table.dtype == torch.float32
        assert table[index["film"]].tolist() == [0, 2, 0, 0]
        assert table[0].tolist() == [0, 0, 0, 0]
        assert table[index["nobody"]].abs().min() > 0
        assert table[2].abs().min() > 0
        # Unknown is the mean of the vectors that were read.
        read = np.array([[1, 0, 0, 0], [-1, 0, 0, 0], [0, 2, 0, 0], [0.9, 0.1, 0, 0], [0, 9, 9, 9]], np.float32)
        assert torch.allclose(table[1], torch.from_numpy(read.mean(axis=0)))

    def test_new_words_spread_like_the_pretrained_ones(self, tmp_path):
        words = [f"w{i}" for i in range(3000)]
        lines = [f"{word} {value} {-value}" for word, value in zip(words[:2], (0.01, -0.01), strict=True)]
        path = tmp_path / "v.txt"
        path.write_text("\n".join(lines), encoding="utf-8")
        task = Task.from_arrays("t", [words, words], [["a"] * 3000, ["b"] * 3000], dev=False)
        table = MLP.from_tasks([task], vectors=path).words.table
        assert table[10:].std().item() == pytest.approx(0.01, rel=0.05)

    def test_seeded_by_torch(self, text_task):
        tables = []
        for seed in (3, 3, 4):
            torch.manual_seed(seed)
            tables.append(MLP.from_tasks([text_task], dimension=7).words.table)
        assert tables[0].shape[1] == 7
        assert torch.equal(tables[0], tables[1])
        assert not torch.equal(tables[0], tables[2])

    def test_dimension_must_fit_the_file(self, text_task, vector_file):
        with pytest.raises(CrossTaskError, match=r"`dimension` is 3, but vectors from .* have 4"):
            MLP.from_tasks([text_task], vectors=vector_file, dimension=3)

    def test_file_without_any_training_word(self, tmp_path, text_task):
        path = tmp_path / "v.txt"
        path.write_text("gut 1 2\n", encoding="utf-8")
        with pytest.raises(CrossTaskError, match=r"none of the .* training words, such as 'a'"):
            MLP.from_tasks([text_task], vectors=path)


class TestPrepare:
    @pytest.fixture
    def encoder(self, text_task):
        return MLP.from_tasks([text_task], max_length=5)

    def numbers(self, encoder, *words):
        return encoder.words.vocabulary.ids(words)

    def test_text_is_split_and_cut(self, encoder):
        (row,) = encoder.prepare(["Good, bad film! so so"], "text")
        assert row["ids"].tolist() == self.numbers(encoder, "good", ",", "bad", "film", "!")
        assert row["ids"].dtype == np.int64

    def test_tokens_stay_whole(self, encoder):
        (row,) = encoder.prepare([["Good-film", "Bad"]], "tokens")
        assert row["ids"].tolist() == [1, *self.numbers(encoder, "bad")]

    def test_empty_inputs_hold_one_unknown_word(self, encoder):
        assert encoder.prepare([""], "text")[0]["ids"].tolist() == [1]
        assert encoder.prepare([[]], "tokens")[0]["ids"].tolist() == [1]

    @pytest.mark.parametrize(
        ("first", "second", "kept"),
        [(1, 1, (1, 1)), (9, 1, (3, 1)), (1, 9, (1, 3)), (9, 9, (2, 2)), (0, 2, (0, 2)), (0, 0, (0, 0))],
    )
    def test_pair_keeps_a_share_of_both(self, encoder, first, second, kept):
        (row,) = encoder.prepare([("good " * first, "bad " * second)], "pair")
        good, bad = self.numbers(encoder, "good", "bad")
        assert row["ids"].tolist() == [good] * kept[0] + [2] + [bad] * kept[1]

    def test_collate_pads_with_mask(self, encoder):
        batch = encoder.collate(encoder.prepare(["good film", "bad"], "text"))
        assert batch["ids"].shape == (2, 2)
        assert batch["mask"].tolist() == [[True, True], [True, False]]
        assert batch["ids"][1, 1] == 0

    def test_vectors_are_refused(self, encoder):
        with pytest.raises(CrossTaskError, match="'mlp' reads words"):
            encoder.prepare(np.zeros((2, 3)), "vector")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"vocabulary": 0}, "`vocabulary` must be a whole number, at least 1; found 0"),
        ({"min_count": "2"}, "`min_count` must be"),
        ({"dimension": 1.5}, "`dimension` must be"),
        ({"max_length": 2}, "`max_length` must be a whole number, at least 3"),
        ({"dropout": 1.0}, "`dropout` must be a number from 0"),
        ({"vectors": "no/such/file.txt"}, "there is no file"),
        ({"vectors": "a" * 5000}, "is no path: a name in it has more than 255 bytes"),
        ({"hidden": True}, "`hidden` must be"),
        ({"layers": 0}, "`layers` must be"),
    ],
)
def test_bad_options(text_task, options, message):
    with pytest.raises(CrossTaskError, match=message):
        MLP.from_tasks([text_task], **options)
