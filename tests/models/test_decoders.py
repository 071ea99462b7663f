"""Decoders as encoders: the last token, padding on either side, tokenizers without padding, training, export."""

import json
import random
import shutil

import numpy as np
import pytest
import torch
import transformers

import crosstask as ct
from crosstask.gradients import task_gradients as grads
from crosstask.gradients.inner_products import gram_matrix
from crosstask.models import heads
from crosstask.models.batches import Prepared
from crosstask.models.build import build_encoder
from crosstask.models.encoders.padding_token import set_padding
from crosstask.models.modes import without_dropout
from crosstask.models.multitask import Model
from crosstask.training import checkpoints
from crosstask.training.devices import Devices
from crosstask.training.forward import Graphs, PassOptions, Stepper
from helpers import DECODERS, WORDS, make_text

TEXTS = ["good great shoe", "awful bad", "the film was not so nice today really"]
SIZES = {"n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": 80}


def tasks():
    rng = random.Random(0)
    texts = [make_text(i % 5, rng) for i in range(60)]
    stars = ct.Task.from_arrays("stars", texts, [str(i % 5 + 1) for i in range(60)])
    polarity = ct.Task.from_arrays("polarity", texts[::-1], ["-+"[i % 5 < 2] for i in range(60)])
    words = [[rng.choice(WORDS) for _ in range(rng.randint(1, 12))] for _ in range(40)]
    tags = ct.Task.from_arrays("tags", words, [["B-X" if w in WORDS[:4] else "O" for w in s] for s in words])
    return stars, polarity, tags


def learner(encoder, **settings):
    settings = {"epochs": 2, "batch_size": 8, "learning_rate": 1e-3, "progress": False, **settings}
    return ct.Learner(encoder, weighting={"name": "tawt", "every": 2}, **settings)


def logits_of(model, task, texts):
    """Calibrated, as they are exported."""
    rows = model.encoder.prepare(texts, "text")
    with torch.no_grad():
        logits = model(model.encoder.collate(rows), {task: slice(0, len(rows))})[task]
    return logits / model.rules[task].temperature if task in model.rules else logits


def plain_logits(folder, texts, side="right", trusted=False):
    """What transformers alone make of an exported folder."""
    loader = transformers.AutoModelForSequenceClassification
    model = loader.from_pretrained(folder, trust_remote_code=trusted)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    assert tokenizer.padding_side == "right"
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token or "."  # its mask says that it is none
    tokenizer.padding_side = side
    with torch.no_grad():
        return model(**tokenizer(texts, padding=True, return_tensors="pt")).logits


@pytest.fixture
def folder_of(tmp_path, tiny_encoder):
    """A folder with this architecture and Llama's tokenizer, which has neither padding nor an end."""

    def make(architecture, **sizes):
        folder = tmp_path / architecture
        shutil.copytree(tiny_encoder("llama"), folder)
        config = transformers.AutoConfig.from_pretrained(folder)
        sizes = {"vocab_size": config.vocab_size, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": None, **sizes}
        model = transformers.AutoModel.from_config(transformers.AutoConfig.for_model(architecture, **sizes))
        model.save_pretrained(folder)
        return folder

    return make


# Training ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"lora": {"rank": 4}}], ids=["all", "lora"])
@pytest.mark.parametrize("architecture", [*DECODERS, "modernbert"])
def test_trains_stops_resumes_and_leaves_as_a_plain_model(architecture, options, tiny_encoder, tmp_path, monkeypatch):
    stars, polarity, _ = tasks()
    encoder = {"name": tiny_encoder(architecture), **options}
    whole = learner(encoder).fit(stars, [polarity], output=tmp_path / "whole")
    real, calls = checkpoints.save, []

    def dies(*arguments):
        real(*arguments)
        calls.append(arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(checkpoints, "save", dies)
    with pytest.raises(KeyboardInterrupt):
        learner(encoder).fit(stars, [polarity], output=tmp_path / "broken")
    monkeypatch.setattr(checkpoints, "save", real)
    resumed = learner(encoder).fit(stars, [polarity], output=tmp_path / "broken", resume=True)
    assert calls
    for name, tensor in whole.model.state_dict().items():
        assert torch.equal(tensor, resumed.model.state_dict()[name]), name
    ours = logits_of(resumed.model, "stars", TEXTS)
    assert ours.std() > 0.01
    folder = resumed.export(tmp_path / "plain")
    sides = ["right"] if architecture == "modernbert" else ["right", "left"]  # which reads the first position
    for side in sides:
        torch.testing.assert_close(plain_logits(folder, TEXTS, side), ours, atol=1e-4, rtol=0)
    assert ct.load(folder).predict([*TEXTS, ""]) == resumed.predict([*TEXTS, ""])


def test_in_bfloat16(tiny_encoder):
    stars, polarity, tags = tasks()
    encoder = {"name": tiny_encoder("llama"), "lora": True, "gradient_checkpointing": True}
    run = learner(encoder, precision="bfloat16").fit(stars, [polarity, tags])
    losses = [row["losses"]["stars"] for row in run.history if row["event"] == "update"]
    assert np.isfinite(losses).all()
    assert {tensor.dtype for tensor in run.model.parameters()} == {torch.float32}


def test_values_of_a_regression(tiny_encoder, tmp_path):
    """The head of a decoder has no bias, which would carry the mean of the values: the export is one of ours."""
    stars, *_ = tasks()
    values = [50.0 + len(text) for text in stars.train.inputs]
    ratings = ct.Task.from_arrays("rating", stars.train.inputs, values, kind="regression")
    run = learner(tiny_encoder("qwen3")).fit(ratings, [stars])
    folder = run.export(tmp_path / "out")
    assert ct.load(folder).predict(TEXTS) == pytest.approx(run.predict(TEXTS))
    assert "crosstask.load" in (folder / "README.md").read_text()


# Gradients --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"gradient_checkpointing": True}, {"pooling": "last"}])
@pytest.mark.parametrize("architecture", DECODERS)
def test_one_pass_over_all_tasks_gives_the_sum_of_separate_passes(architecture, options, tiny_encoder):
    """Texts and sentences of many lengths, one of them without a token: packed, padded to another length, or alone."""
    stars, polarity, tags = tasks()
    torch.manual_seed(0)
    encoder = build_encoder({"name": tiny_encoder(architecture), **options}, [stars, polarity, tags])
    model = Model(encoder, [task.spec for task in (stars, polarity, tags)])
    data = {task.name: Prepared.of(encoder, task.spec, task.train) for task in (stars, polarity, tags)}
    step = {name: np.arange(5) for name in data}
    stepper = Stepper(model, Devices())
    shared = model.shared_parameters()

    def gradients(losses):
        return [gradient for _, _, gradient in grads.each_gradient(losses, shared)]

    with without_dropout(model):
        apart = stepper.run(data, step, PassOptions(Graphs.ONE_PER_TASK))
        together = stepper.run(data, step)
        separate = gradients(apart.losses)
        (total,) = gradients({"all": torch.stack(list(together.losses.values())).sum()})
        # One example at a time has no padding at all.
        by_example = [stepper.run(data, {"tags": np.array([i])}).losses["tags"] for i in range(5)]
        counts = torch.tensor([len(tags.train.inputs[i]) for i in range(5)])
    assert together.values == pytest.approx(apart.values, rel=1e-5)
    mean = (torch.stack(by_example) * counts).sum() / counts.sum()
    assert apart.values["tags"] == pytest.approx(mean.item(), rel=1e-5)
    expected = [sum(parts) for parts in zip(*(gradient.shared for gradient in separate), strict=True)]
    for one, two in zip(total.shared, expected, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-4, atol=1e-6)
    gram = gram_matrix([gradient.shared for gradient in separate])
    flat = torch.stack([torch.cat([part.flatten() for part in gradient.shared]) for gradient in separate]).double()
    torch.testing.assert_close(gram, flat @ flat.T, rtol=1e-5, atol=1e-9)


# Padding ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pooling", ["stock", "last", "mean"])
@pytest.mark.parametrize("architecture", ["llama", "gpt2", "opt"])
def test_padding_on_either_side(architecture, pooling, folder_of, tiny_encoder):
    """Vectors of positions that are learned one by one must not move with the padding in front of them."""
    folder = tiny_encoder("llama")
    if architecture == "gpt2":
        folder = folder_of("gpt2", **SIZES)
    elif architecture == "opt":
        sizes = {"hidden_size": 32, "word_embed_proj_dim": 32, "ffn_dim": 48, "num_hidden_layers": 2}
        folder = folder_of("opt", **sizes, num_attention_heads=2, max_position_embeddings=80)
    encoder = build_encoder({"name": str(folder), "pooling": pooling}, tasks()[:1]).eval()
    right = encoder.collate(encoder.prepare(TEXTS, "text"))
    counts = right["attention_mask"].sum(1).tolist()
    left = {}
    for name, values in right.items():
        rows = zip(values, counts, strict=True)
        left[name] = torch.stack([torch.cat([row[count:], row[:count]]) for row, count in rows])
    assert not left["attention_mask"][1, 0]
    with torch.no_grad():
        torch.testing.assert_close(encoder(left).pooled, encoder(right).pooled, atol=1e-5, rtol=1e-5)
        alone = [encoder(encoder.collate(encoder.prepare([text], "text"))).pooled for text in TEXTS]
    torch.testing.assert_close(torch.cat(alone), encoder(right).pooled, atol=1e-5, rtol=1e-5)


def test_a_text_ends_with_what_the_tokenizer_pads_with(tiny_encoder, tmp_path):
    """The end of a text often serves as padding: who looks for the last other token reads the one before."""
    from tokenizers import processors

    folder = tmp_path / "ends"
    shutil.copytree(tiny_encoder("llama"), folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> $B:1 </s>:1", special_tokens=[("<s>", 1), ("</s>", 2)]
    )
    tokenizer.pad_token = "</s>"
    tokenizer.save_pretrained(folder)
    stars, polarity, _ = tasks()
    run = learner(str(folder), epochs=1).fit(stars, [polarity])
    encoder = run.model.encoder
    batch = encoder.collate(encoder.prepare(TEXTS, "text"))
    last = batch["attention_mask"].sum(1) - 1
    assert (batch["input_ids"][torch.arange(3), last] == 2).all()
    assert encoder.tokenizer.pad_token == "<unk>"
    representation = encoder(batch)
    torch.testing.assert_close(representation.pooled, representation.tokens[torch.arange(3), last])
    ours = logits_of(run.model, "stars", TEXTS)
    torch.testing.assert_close(plain_logits(run.export(tmp_path / "out"), TEXTS), ours, atol=1e-4, rtol=0)


def test_a_padding_token_for_which_there_is_no_vector(tiny_encoder):
    tokenizer = transformers.AutoTokenizer.from_pretrained(tiny_encoder("llama"))
    config = transformers.AutoConfig.from_pretrained(tiny_encoder("llama"))
    tokenizer.add_special_tokens({"pad_token": "<new>"})
    assert tokenizer.pad_token_id == config.vocab_size
    set_padding(config, tokenizer)
    assert tokenizer.pad_token == "<unk>"
    assert config.pad_token_id == 3


def test_texts_without_a_token(tiny_encoder):
    for architecture, expected in (("llama", 1), ("qwen3", 2)):  # a text begins with 1; 2 is where one would end
        encoder = build_encoder(tiny_encoder(architecture), tasks()[:1])
        rows = encoder.prepare(["", "good"], "text")
        assert rows[0]["input_ids"].tolist() == [expected]
        assert torch.isfinite(encoder(encoder.collate(rows)).pooled).all()


# Architectures ----------------------------------------------------------------------------------------------------


def test_which_heads_read_the_last_token(monkeypatch):
    monkeypatch.setattr(heads, "_last_token_readers", {})
    small = {"vocab_size": 9, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    for architecture in ("bert", "roberta", "electra", "deberta-v2", "modernbert"):
        config = transformers.AutoConfig.for_model(architecture, **small, pad_token_id=0)
        assert not heads.reads_last_token(config), architecture
    for architecture in ("llama", "qwen2", "mistral", "gemma2", "gpt_neox", "opt", "modernbert-decoder"):
        config = transformers.AutoConfig.for_model(architecture, **small, pad_token_id=0)
        with torch.inference_mode():  # as in prediction
            assert heads.reads_last_token(config), architecture
    bart = {"d_model": 8, "encoder_layers": 1, "decoder_layers": 1}
    assert not heads.reads_last_token(transformers.BartConfig(**bart, vocab_size=9, pad_token_id=1))


def test_an_architecture_that_transformers_has_no_classifier_of(folder_of, tmp_path):
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48}
    folder = str(folder_of("granite", **sizes))
    stars, polarity, tags = tasks()
    with pytest.raises(
        ct.CrossTaskError, match=r"no classifier of texts with the architecture 'granite'.*`pooling: last`"
    ):
        learner(folder).fit(stars, [polarity])
    run = learner({"name": folder, "pooling": "last"}).fit(stars, [polarity, tags])
    folder = run.export(tmp_path / "out")
    assert ct.load(folder).predict(TEXTS) == run.predict(TEXTS)
    ours = logits_of(run.model, "stars", TEXTS)
    for side in ("right", "left"):
        torch.testing.assert_close(plain_logits(folder, TEXTS, side, trusted=True), ours, atol=1e-4, rtol=0)


def test_gradient_checkpointing_that_an_architecture_has_not(folder_of):
    folder = str(folder_of("openai-gpt", **SIZES))
    with pytest.raises(ct.CrossTaskError, match="'openai-gpt' has no `gradient_checkpointing`"):
        build_encoder({"name": folder, "gradient_checkpointing": True}, tasks()[:1])


def test_low_rank_updates_of_layers_that_store_their_weights_transposed(folder_of, tmp_path):
    stars, polarity, _ = tasks()
    run = learner({"name": str(folder_of("gpt2", **SIZES)), "lora": True}).fit(stars, [polarity])
    ours = logits_of(run.model, "stars", TEXTS)
    torch.testing.assert_close(plain_logits(run.export(tmp_path / "out"), TEXTS), ours, atol=1e-4, rtol=0)


# Files in the format GGUF -----------------------------------------------------------------------------------------


def write_gguf(folder, path):
    """The tiny Llama of a folder in one file."""
    gguf = pytest.importorskip("gguf")
    model = transformers.AutoModel.from_pretrained(folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    config = model.config
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_vocab_size(config.vocab_size)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("default")
    vocabulary = sorted(tokenizer.get_vocab().items(), key=lambda pair: pair[1])
    writer.add_token_list([token for token, _ in vocabulary])
    writer.add_token_types([3 if number < 4 else 1 for _, number in vocabulary])
    merges = json.loads(tokenizer.backend_tokenizer.to_str())["model"]["merges"]
    writer.add_token_merges([" ".join(pair) for pair in merges])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(3)
    names = {"q_proj": "attn_q", "k_proj": "attn_k", "v_proj": "attn_v", "o_proj": "attn_output"}
    names |= {"gate_proj": "ffn_gate", "up_proj": "ffn_up", "down_proj": "ffn_down"}
    names |= {"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm"}
    for name, tensor in model.state_dict().items():
        array = tensor.numpy()
        parts = name.split(".")
        if parts[0] == "layers":
            stored = f"blk.{parts[1]}.{names[parts[-2]]}.weight"
            if parts[-2] in ("q_proj", "k_proj"):  # halves of a head's rows take turns
                num_heads = config.num_attention_heads if parts[-2] == "q_proj" else config.num_key_value_heads
                array = array.reshape(num_heads, 2, -1, array.shape[1]).swapaxes(1, 2).reshape(array.shape)
        else:
            stored = {"embed_tokens": "token_embd.weight", "norm": "output_norm.weight"}[parts[0]]
        writer.add_tensor(stored, np.ascontiguousarray(array))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def test_a_gguf_file_is_an_encoder(tiny_encoder, tmp_path):
    path = tmp_path / "tiny.gguf"
    write_gguf(tiny_encoder("llama"), path)
    stars, polarity, _ = tasks()
    one = build_encoder(tiny_encoder("llama"), [stars]).eval()
    two = build_encoder(str(path), [stars]).eval()
    for ours, other in zip(two.body.parameters(), one.body.parameters(), strict=True):
        torch.testing.assert_close(ours, other)
    assert two.tokenizer.tokenize(TEXTS[0]) == one.tokenizer.tokenize(TEXTS[0])
    assert two.weights_identity([stars], {"path": str(path)})
    run = learner(str(path), epochs=1).fit(stars, [polarity])
    ours = logits_of(run.model, "stars", TEXTS)
    torch.testing.assert_close(plain_logits(run.export(tmp_path / "out"), TEXTS), ours, atol=1e-4, rtol=0)


def test_a_damaged_gguf_file(tmp_path):
    pytest.importorskip("gguf")
    path = tmp_path / "bad.gguf"
    path.write_bytes(b"GGUF and nothing else")
    with pytest.raises(ct.CrossTaskError, match=r"the file '.*bad.gguf' holds no encoder that can be loaded"):
        build_encoder(str(path), tasks()[:1])
