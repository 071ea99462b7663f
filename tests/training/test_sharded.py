"""Ranks that hold a part of the encoder each learn what one process learns, stop, and go on in another number."""

import json
import os
import random
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import distributed

import crosstask as ct
from crosstask.gradients import sharded
from crosstask.gradients.distributed import Ranks
from crosstask.storage import DamagedFileError
from crosstask.training import checkpoints
from crosstask.training.devices import Devices, launched_with_fsdp
from crosstask.training.trainer import Trainer
from crosstask.transfer.base import Terms, Transfer, WholeModel
from crosstask.weighting.base import Weighting
from helpers import WORDS, make_text, write_tiny_encoder
from weighting_problem import Ranks as ThreadRanks

WEIGHTINGS = [
    {"name": "uniform"},
    {"name": "mgda"},
    {"name": "mgda-ub"},
    {"name": "gradnorm", "last_shared": 1},
    {"name": "tawt", "every": 2},
    {"name": "tawt", "every": 2, "similarity": "exact"},
    {"name": "tawt-samples", "every": 2, "warmup": 2},
    {"name": "metaweighting", "step_size": 10.0},
    {"name": "torchjd", "method": "GradDrop"},
]
TEXT_CASES = [
    {"encoder": {"gradient_checkpointing": True}, "weighting": {"name": "tawt", "every": 2}},
    {"encoder": {"lora": {"rank": 2}}, "weighting": "mgda", "paradigm": "pretrain"},
    {"transfer": ["adapters"]},
    {"transfer": ["alignment"]},
    {"transfer": [{"name": "label-transfer", "start": "nothing"}, "representation-transfer"]},
]
REFUSED = {
    "adversarial": {"transfer": ["adversarial"]},
    "forkmerge": {"transfer": [{"name": "forkmerge", "merges": 1, "parts": 2}], "epochs": 20},
    "label-transfer": {"transfer": [{"name": "label-transfer", "look_ahead": "adam"}]},
    "freeze": {"encoder": {"freeze": True, "hidden": 4, "cache": False}},
    "freeze 1": {"encoder": {"freeze": 1, "cache": False}},
}


def vector_learner(weighting, **settings):
    settings = {"epochs": 2, "batch_size": 8, "learning_rate": 0.01, "progress": False, **settings}
    hidden = settings.pop("hidden", 7)
    return ct.Learner({"name": "relu", "hidden": hidden}, weighting=weighting, **settings)


def vector_tasks(size=44):
    """The last batch of a task has fewer examples than there are ranks."""
    generator = np.random.default_rng(0)
    vectors = generator.normal(size=(size, 6)).astype("float32")
    target = ct.Task.from_arrays("target", vectors[:21], vectors[:21, 0] > 0)
    helpful = ct.Task.from_arrays("helpful", vectors, vectors[:, 0] + 0.2 * vectors[:, 1] > 0)
    noise = ct.Task.from_arrays("noise", vectors, generator.integers(3, size=size))
    return target, [helpful, noise]


class SpoiledGradient(Transfer):
    """The loss of a source stays as it is, but its gradient is no number, in two updates."""

    name, summary = "spoiled-gradient", "for this test"
    needs_whole_model = WholeModel.NEVER

    def before_step(self, moment):
        self.update = moment.update
        return moment.step

    def terms(self, forward):
        if self.update not in (1, 2) or "noise" not in forward.logits:
            return Terms()
        return Terms(added={"noise": [(forward.logits["noise"].sum() * 0.0).abs().sqrt()]})


def spoiled_run(**settings):
    settings = {"epochs": 2, "batch_size": 8, "learning_rate": 0.01, "progress": False, **settings}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ct.CrossTaskWarning)  # which says that updates were skipped
        learner = ct.Learner({"name": "relu", "hidden": 7}, weighting="mgda", transfer=[SpoiledGradient()], **settings)
        return learner.fit(*vector_tasks())


def text_learner(case, folder, **settings):
    options = {key: value for key, value in case.items() if key not in ("encoder", "weighting")}
    settings = {"epochs": 1, "batch_size": 7, "learning_rate": 1e-3, "progress": False, **options, **settings}
    encoder = {"name": str(folder / "bert"), "dropout": 0.0, **case.get("encoder", {})}
    return ct.Learner(encoder, weighting=case.get("weighting"), **settings)


def text_tasks():
    generator = random.Random(0)
    texts = [make_text(i % 5, generator) for i in range(40)]
    stars = ct.Task.from_arrays("stars", texts[:25], [str(i % 5 + 1) for i in range(25)])
    polarity = ct.Task.from_arrays("polarity", texts[::-1], ["-+"[i % 5 < 2] for i in range(40)])
    words = [[generator.choice(WORDS) for _ in range(generator.randint(1, 12))] for _ in range(30)]
    tags = ct.Task.from_arrays("tags", words, [["B-X" if w in WORDS[:4] else "O" for w in s] for s in words])
    return stars, [polarity, tags]


def learned(run):
    """Losses, weights and parameters."""
    updates = [row for row in run.history if row["event"] == "update"]
    parameters = {name: tensor.tolist() for name, tensor in run.model.state_dict().items()}
    return [[row["losses"], row["weights"]] for row in updates], run.weights, parameters


def stopping(learner, tasks, folder):
    """Start a run and stop it after its first checkpoint."""
    real = {name: getattr(checkpoints, name) for name in ("save", "save_shards")}

    def stop_after(save):
        def save_and_stop(*arguments):
            save(*arguments)
            raise KeyboardInterrupt

        return save_and_stop

    for name, save in real.items():
        setattr(checkpoints, name, stop_after(save))
    try:
        learner.fit(*tasks, output=folder)
    except KeyboardInterrupt:
        return
    finally:
        for name, save in real.items():
            setattr(checkpoints, name, save)
    raise AssertionError("the run did not stop")


def sent_for_weights(weighting, hidden):
    """Numbers that pass through the sums of a weighting in a sharded run of four updates, and through slices."""
    counts = [0, 0]
    connect = Weighting.connect

    def counting(call, place):
        def count(values):
            counts[place] += values.numel()
            return call(values)

        return count

    def connect_counting(self, reduce, num_ranks, scatter, rank):
        connect(self, counting(reduce, 0), num_ranks, counting(scatter, 1), rank)

    Weighting.connect = connect_counting
    try:
        vector_learner(weighting, hidden=hidden, updates=4, shard=True).fit(*vector_tasks())
    finally:
        Weighting.connect = connect
    return counts


def rows_of_parameters():
    """What each rank holds while it trains, seen from inside."""
    shapes = {}
    real = Trainer._finish_phase

    def look(self, *arguments):
        for name, parameter in self.model.named_parameters():
            shapes[name] = [list(parameter.shape), list(sharded.rows_here(parameter).shape)]
        real(self, *arguments)

    Trainer._finish_phase = look
    try:
        vector_learner({"name": "mgda"}, updates=2, shard=True).fit(*vector_tasks())
    finally:
        Trainer._finish_phase = real
    return shapes


def refusal(case, folder):
    try:
        text_learner(case, folder, shard=True).fit(*text_tasks())
    except ct.CrossTaskError as error:
        return str(error)
    return ""


def work(folder):
    """What each rank does; the main one writes down what came out."""
    found = {"vectors": [], "texts": [], "refused": {}, "sent": {}}
    for weighting in WEIGHTINGS:
        found["vectors"].append(learned(vector_learner(weighting, shard=True).fit(*vector_tasks())))
    for case in TEXT_CASES:
        found["texts"].append(learned(text_learner(case, folder, shard=True).fit(*text_tasks())))
    broken = spoiled_run(shard=True)
    found["broken"] = [learned(broken), [row["event"] for row in broken.history]]
    for name, case in REFUSED.items():
        found["refused"][name] = refusal(case, folder)
    for weighting in ({"name": "mgda"}, {"name": "tawt", "every": 1}, {"name": "gradnorm"}, {"name": "metaweighting"}):
        found["sent"][weighting["name"]] = [sent_for_weights(weighting, hidden) for hidden in (4, 64)]
    found["rows"] = rows_of_parameters()
    settings = {"epochs": 3, "checkpoint_every": 4, "shard": True}
    stopping(vector_learner({"name": "metaweighting"}, **settings), vector_tasks(), folder / "run")
    if distributed.get_rank() == 0:
        shutil.copytree(folder / "run", folder / "copy")
    distributed.barrier()
    resumed = vector_learner({"name": "metaweighting"}, **settings)
    found["resumed"] = learned(resumed.fit(*vector_tasks(), output=folder / "run", resume=True))
    if distributed.get_rank() == 0:
        (folder / "found.json").write_text(json.dumps(found))
    distributed.barrier()
    os._exit(0)  # threads of torch's process groups can abort an interpreter that ends in its own way


def assert_same(found, expected):
    """To the tolerance that is promised."""
    for (losses, weights), (expected_losses, expected_weights) in zip(found[0], expected[0], strict=True):
        assert losses == pytest.approx(expected_losses, abs=1e-5)
        assert weights == pytest.approx(expected_weights, abs=1e-5)
    assert found[1] == pytest.approx(expected[1], abs=1e-5)
    assert found[2].keys() == expected[2].keys()
    for name, values in expected[2].items():
        np.testing.assert_allclose(found[2][name], values, atol=1e-5, err_msg=name)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Where two ranks have left what they found."""
    folder = tmp_path_factory.mktemp("ranks")
    (folder / "bert").mkdir()
    write_tiny_encoder("bert", folder / "bert")
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    paths = os.pathsep.join(path for path in sys.path if path)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": paths}
    command = [*launch, __file__, str(folder)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-5000:]
    return folder


@pytest.fixture(scope="module")
def found(folder):
    return json.loads((folder / "found.json").read_text())


@pytest.mark.slow
class TestTwoRanks:
    def test_learn_what_one_process_learns(self, found):
        for weighting, outcome in zip(WEIGHTINGS, found["vectors"], strict=True):
            expected = learned(vector_learner(weighting).fit(*vector_tasks()))
            assert_same(outcome, expected)

    def test_with_a_transformer_and_transfers(self, found, folder):
        for case, outcome in zip(TEXT_CASES, found["texts"], strict=True):
            assert_same(outcome, learned(text_learner(case, folder).fit(*text_tasks())))

    def test_hold_half_of_the_encoder_each(self, found):
        for name, (shape, rows) in found["rows"].items():
            expected = shape
            if name.startswith("encoder."):
                expected = [-(-shape[0] // 2), *shape[1:]]
            assert rows == expected, name

    def test_send_as_much_for_weights_whatever_the_size_of_the_model(self, found):
        for name, (narrow, wide) in found["sent"].items():
            assert narrow[0] == wide[0], name
            assert 0 < narrow[0] <= 4 * (3 * 3 + 4 * 3), name
            if name != "metaweighting":  # which compares gradients on heads, too
                assert narrow[1] == wide[1] == 0  # the passes have added gradients up

    def test_leave_out_what_is_not_finite(self, found):
        outcome, events = found["broken"]
        assert "skipped" in events
        expected = spoiled_run()
        assert events == [row["event"] for row in expected.history]
        assert_same(outcome, learned(expected))

    def test_refuse_what_needs_the_whole_model(self, found):
        for name in ("adversarial", "forkmerge", "label-transfer"):
            assert f"the transfer '{name}' with these options works on all of it at once" in found["refused"][name]
        for name in ("freeze", "freeze 1"):
            assert "`shard` divides an encoder that learns" in found["refused"][name]

    def test_go_on_from_their_checkpoint(self, found):
        expected = vector_learner({"name": "metaweighting"}, epochs=3).fit(*vector_tasks())
        assert_same(found["resumed"], learned(expected))

    def test_one_process_goes_on_from_it(self, folder, tmp_path):
        """With the whole model; nothing of the run depends on how many ranks there are."""
        shutil.copytree(folder / "copy", tmp_path / "run")
        settings = {"epochs": 3, "checkpoint_every": 4, "shard": True}
        resumed = vector_learner({"name": "metaweighting"}, **settings)
        run = resumed.fit(*vector_tasks(), output=tmp_path / "run", resume=True)
        expected = vector_learner({"name": "metaweighting"}, epochs=3).fit(*vector_tasks())
        assert_same(learned(run), learned(expected))
        notes = [row["text"] for row in run.history if row["event"] == "note"]
        assert any("more or fewer processes" in note for note in notes)

    def test_a_rank_s_rows_are_missing(self, folder, tmp_path):
        shutil.copytree(folder / "copy", tmp_path / "run")
        (checkpoint,) = (tmp_path / "run" / "checkpoints").iterdir()
        (checkpoint / "rows-00001.safetensors").unlink()
        with pytest.raises(DamagedFileError, match=r"rows-00001.safetensors' is missing"):
            checkpoints.load_latest(tmp_path / "run" / "checkpoints", lambda checkpoint: None)

    def test_rows_that_do_not_make_up_a_tensor(self, folder, tmp_path):
        shutil.copytree(folder / "copy", tmp_path / "run")
        (checkpoint,) = (tmp_path / "run" / "checkpoints").iterdir()
        (checkpoint / "manifest.json").unlink()
        state = json.loads((checkpoint / "state.json").read_text())
        del state["recipe_digest"]  # as those without a manifest
        state["shards"]["shapes"]["model/encoder.layer.0.weight"] = [9, 6]
        (checkpoint / "state.json").write_text(json.dumps(state))
        with pytest.raises(DamagedFileError, match=r"lacks rows of 'model/encoder.layer.0.weight'"):
            checkpoints.load_latest(tmp_path / "run" / "checkpoints", lambda checkpoint: None)


# One process ------------------------------------------------------------------------------------------------------


def test_one_process_needs_no_shards(monkeypatch):
    run = vector_learner({"name": "mgda"}, shard=True).fit(*vector_tasks())
    assert any("`shard` plays no part" in row["text"] for row in run.history if row["event"] == "note")
    assert_same(learned(run), learned(vector_learner({"name": "mgda"}).fit(*vector_tasks())))
    assert not launched_with_fsdp()
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    assert launched_with_fsdp()
    assert Devices().is_asked_to_shard


def test_rows_of_several_files(tmp_path):
    from safetensors.torch import save_file

    values = torch.arange(14.0).reshape(7, 2)
    files = []
    for number, part in enumerate((values[:3], values[3:6], values[6:], values[:0])):
        files.append(tmp_path / f"{number}.safetensors")
        save_file({"a": part.contiguous()}, files[-1])
    stored = checkpoints.StoredShards("a", files, torch.Size((7, 2)), torch.float32)
    assert torch.equal(checkpoints.loaded(stored), values)
    for start in range(8):
        for end in range(start, 8):
            assert torch.equal(stored.rows(start, end), values[start:end]), (start, end)


def test_vectors_of_different_lengths_are_joined():
    vectors = [torch.tensor([1.0, 2.0]), torch.zeros(0), torch.tensor([3.0])]
    threads, joined = ThreadRanks(3), {}

    def work(rank):
        ranks = Ranks(lambda values: threads.sum(rank, values), 3, None, rank)
        joined[rank] = ranks.join(vectors[rank]).tolist()

    threads.run(work)
    assert [joined[rank] for rank in range(3)] == [[1.0, 2.0, 3.0]] * 3


def test_slices_of_gradients_make_up_their_products():
    """Three ranks in turn: what each passes, and what it gets back."""
    generator = torch.Generator().manual_seed(0)
    parameters = [torch.nn.Parameter(torch.zeros(2, 3)), torch.nn.Parameter(torch.zeros(4))]
    parts = torch.randn(3, 2, 10, generator=generator, dtype=torch.float64)  # [ranks, tasks, entries]
    totals = parts.sum(0)
    slices = torch.zeros(2, 2, dtype=torch.float64)
    for rank in range(3):

        def scatter(values, rank=rank):
            assert values.numel() == 12  # a multiple of the number of ranks
            task = next(task for task in range(2) if torch.equal(values[:10], parts[rank, task]))
            return torch.nn.functional.pad(totals[task], (0, 2)).chunk(3)[rank]

        ranks = Ranks(lambda values: values, 3, scatter, rank)
        gradients = [[part[:6].view(2, 3), part[6:]] for part in parts[rank]]
        slices += ranks.gram(gradients, parameters)
    torch.testing.assert_close(slices, totals @ totals.T)


if __name__ == "__main__":
    work(Path(sys.argv[1]))
