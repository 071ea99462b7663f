"""What every encoder promises, whatever it computes."""

import inspect
import json
import subprocess
import sys
from typing import Unpack, get_args, get_origin, get_type_hints

import numpy as np
import pytest
import torch
from torch.autograd import forward_ad

from crosstask.data.task import Task
from crosstask.errors import CrossTaskError
from crosstask.models.encoder import Encoder
from crosstask.models.encoders import ENCODERS, encoder_class, encoder_names

SMALL = {
    "textcnn": [{"kernels": [2, 4], "channels": 6}],
    "lstm": [{"hidden": 5, "pooling": pooling} for pooling in ("max", "mean", "last")]
    + [{"hidden": 5, "bidirectional": False, "layers": 2, "pooling": "last"}],
    "mlp": [{"hidden": 6, "layers": 2}],
    "linear": [{"hidden": 3}, {"hidden": 3, "standardise": True}, {"hidden": 3, "standardize": True}],
    "relu": [{"hidden": 6, "layers": 2, "dropout": 0.3}, {"standardise": False}],
}
WORD_CASES = [(name, options) for name in ("textcnn", "lstm", "mlp") for options in SMALL[name]]
VECTOR_CASES = [(name, options) for name in ("linear", "relu") for options in SMALL[name]]


def word_encoder(name, options, tasks, **more):
    return encoder_class(name).from_tasks(tasks, dimension=8, **options, **more).eval()


@pytest.mark.parametrize(("name", "options"), WORD_CASES)
class TestWordEncoders:
    def test_shapes(self, name, options, text_task, tagging_task):
        encoder = word_encoder(name, options, [text_task, tagging_task])
        out = encoder(encoder.collate(encoder.prepare(text_task.train.inputs, "text")))
        assert out.pooled.shape == (4, encoder.width)
        assert (out.tokens is not None) == encoder.gives_tokens
        if encoder.gives_tokens:
            longest = len(text_task.train.inputs[3].split())
            assert out.tokens.shape == (4, longest, encoder.width)
            assert out.mask.shape == (4, longest)
            assert out.tokens[~out.mask].abs().max() == 0

    def test_heads_fit(self, name, options, text_task, pair_task):
        encoder = word_encoder(name, options, [text_task, pair_task])
        for task in (text_task, pair_task):
            encoder.check(task)
            batch = encoder.collate(encoder.prepare(task.train.inputs, task.spec.form))
            assert encoder.make_head(task.spec)(encoder(batch), batch).shape == (len(task.train), 2)

    def test_padding_changes_nothing(self, name, options, text_task):
        encoder = word_encoder(name, options, [text_task])
        rows = encoder.prepare([*text_task.train.inputs, "", "film film"], "text")
        together = encoder(encoder.collate(rows))
        for i, row in enumerate(rows):
            alone = encoder(encoder.collate([row]))
            assert torch.allclose(alone.pooled[0], together.pooled[i], atol=1e-6)
            if encoder.gives_tokens:
                assert torch.allclose(alone.tokens[0], together.tokens[i, : len(row["ids"])], atol=1e-6)

    def test_padding_vector_plays_no_part(self, name, options, text_task):
        encoder = word_encoder(name, options, [text_task])
        batch = encoder.collate(encoder.prepare(text_task.train.inputs, "text"))
        before = encoder(batch).pooled
        with torch.no_grad():
            encoder.words.table[0] = 100.0
        assert torch.equal(encoder(batch).pooled, before)

    def test_round_trip(self, name, options, text_task, pair_task, tmp_path):
        encoder = word_encoder(name, options, [text_task, pair_task], lower=False, max_length=9, dropout=0.25)
        check_round_trip(encoder, pair_task, tmp_path)

    def test_round_trip_with_fixed_vectors(self, name, options, text_task, vector_file, tmp_path):
        encoder = encoder_class(name).from_tasks([text_task], vectors=vector_file, **options).eval()
        vector_file.unlink()
        again = check_round_trip(encoder, text_task, tmp_path)
        assert again.words.table.dtype == torch.float32
        assert "words.table" not in dict(again.named_parameters())

    def test_gradients_reach_every_parameter(self, name, options, text_task):
        encoder = word_encoder(name, options, [text_task]).train()
        batch = encoder.collate(encoder.prepare(text_task.train.inputs, "text"))
        encoder(batch).pooled.square().sum().backward()
        for key, parameter in encoder.named_parameters():
            assert parameter.grad is not None, key
            assert parameter.grad.abs().sum() > 0, key
        seen = set(batch["ids"].flatten().tolist()) - {0}
        moved = encoder.words.table.grad.abs().sum(dim=1).nonzero().flatten().tolist()
        assert set(moved) <= seen

    def test_fixed_vectors_are_out_of_reach(self, name, options, text_task, vector_file):
        encoder = encoder_class(name).from_tasks([text_task], vectors=vector_file, **options)
        encoder.requires_grad_(True)
        before = encoder.words.table.clone()
        batch = encoder.collate(encoder.prepare(text_task.train.inputs, "text"))
        optimizer = torch.optim.SGD(encoder.parameters(), lr=1.0)
        encoder(batch).pooled.square().sum().backward()
        optimizer.step()
        assert not encoder.words.table.requires_grad
        assert torch.equal(encoder.words.table, before)
        assert all(parameter.grad is not None for parameter in encoder.parameters())

    @pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")  # torch's own, in jvp
    def test_forward_mode_agrees_with_backward(self, name, options, text_task):
        """Per-example gradient products are taken by forward mode, so every encoder must allow it."""
        encoder = word_encoder(name, options, [text_task]).double()
        batch = encoder.collate(encoder.prepare(text_task.train.inputs, "text"))
        parameters = dict(encoder.named_parameters())
        direction = {key: torch.randn_like(value) for key, value in parameters.items()}

        def losses(values):
            return torch.func.functional_call(encoder, values, (batch,)).pooled.square().sum(dim=1)

        with forward_ad.dual_level():  # not torch.func.jvp, which torch's own LSTM does not stand
            duals = {key: forward_ad.make_dual(value, direction[key]) for key, value in parameters.items()}
            derivative = forward_ad.unpack_dual(losses(duals)).tangent
        if name != "lstm":
            assert torch.allclose(torch.func.jvp(losses, (parameters,), (direction,))[1], derivative)
        for i, loss in enumerate(losses(parameters)):
            gradients = torch.autograd.grad(loss, list(parameters.values()), retain_graph=True)
            product = sum((g * d).sum() for g, d in zip(gradients, direction.values(), strict=True))
            assert torch.allclose(derivative[i], product)


@pytest.mark.parametrize(("name", "options"), VECTOR_CASES)
def test_round_trip_of_vector_encoders(name, options, vector_task, tmp_path):
    check_round_trip(encoder_class(name).from_tasks([vector_task], **options).eval(), vector_task, tmp_path)


def check_round_trip(encoder: Encoder, task: Task, folder) -> Encoder:
    """Save options, assets and weights, build again from them, and compare outputs and options."""
    encoder.save_assets(folder)
    config = json.loads(json.dumps(encoder.config()))
    again = type(encoder).restore(config, folder)
    again.load_state_dict(encoder.state_dict())
    again.eval()
    assert again.config() == encoder.config()
    assert again.width == encoder.width
    rows = [one.prepare(task.train.inputs, task.spec.form) for one in (encoder, again)]
    assert all(np.array_equal(a[key], b[key]) for a, b in zip(*rows, strict=True) for key in a)
    batch = encoder.collate(rows[0])
    assert torch.equal(again(batch).pooled, encoder(batch).pooled)
    return again


class TestRegistry:
    @pytest.mark.parametrize("name", sorted(SMALL))
    def test_class_of_a_name(self, name):
        found = encoder_class(name)
        assert issubclass(found, Encoder)
        assert found.name == name
        assert found.summary
        assert name in encoder_names()

    @pytest.mark.parametrize("name", sorted(SMALL))
    def test_every_option_is_named_and_described(self, name):
        encoder = encoder_class(name)
        method = encoder.from_tasks
        for option, parameter in inspect.signature(method).parameters.items():
            assert parameter.annotation is not inspect.Parameter.empty
            assert f"{option}: " in inspect.getdoc(method)
            if get_origin(parameter.annotation) is Unpack:
                self.check_keywords(get_args(parameter.annotation)[0], encoder.option_defaults)
            elif option != "tasks":
                assert parameter.kind is inspect.Parameter.KEYWORD_ONLY

    def check_keywords(self, options, defaults):
        for option in get_type_hints(options):
            assert f"{option}: " in inspect.getdoc(options)
            assert option in defaults

    def test_unknown_name(self):
        with pytest.raises(CrossTaskError, match=r"Unknown encoder 'textcn'\. Did you mean 'textcnn'\?"):
            encoder_class("textcn")

    def test_names_load_no_torch(self):
        code = "import sys, crosstask.models.encoders as e; assert e.ENCODERS; sys.exit('torch' in sys.modules)"
        assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

    def test_lines_name_module_and_class(self):
        assert all(target.count(":") == 1 for target in ENCODERS.locations.values())


def test_tagging_needs_tokens(text_task, tagging_task):
    with pytest.raises(CrossTaskError, match="'tags' is tagging"):
        word_encoder("textcnn", {}, [text_task]).check(tagging_task)
