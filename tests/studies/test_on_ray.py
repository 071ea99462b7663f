"""Ray: the same cells as on this machine bit for bit, also when a worker is killed."""

import sys

import pytest
from compare_problem import QUICK, table, tiny, without_times
from dying_bench import DyingStudy
from dying_work import Work

import crosstask as ct
from command_line import crosstask, tree
from crosstask.errors import CrossTaskError
from crosstask.studies import compare as comparing
from crosstask.studies.executors import finished

HOW = {**QUICK, "targets": ["a", "b"], "methods": ["single", "joint+tawt"]}


@pytest.fixture(scope="module")
def cluster():
    ray = pytest.importorskip("ray")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        ray.init(
            "local", num_cpus=2, object_store_memory=80 * 2**20, include_dashboard=False, log_to_driver=False,
            logging_level="ERROR",
        )  # fmt: skip
        yield ray
        ray.shutdown()


@pytest.mark.slow
class TestOnACluster:
    def test_a_killed_worker_loses_nothing(self, cluster, tmp_path):
        assert dict(finished(Work(tmp_path, deadly=2), range(4), None, on="ray")) == {0: 0, 1: 1, 2: 4, 3: 9}
        assert (tmp_path / "died").exists()
        assert cluster.is_initialized()  # not ours to end

    def test_work_that_always_kills_comes_last_and_is_given_up(self, cluster, tmp_path):
        results = finished(Work(tmp_path, deadly=0, always=True), range(5), 1, on="ray")
        assert [item for item, _ in (next(results) for _ in range(4))] == [1, 2, 3, 4]
        with pytest.raises(CrossTaskError, match="before they had a result, 3 in a row"):
            next(results)

    def test_an_error_of_the_work_is_raised_as_it_is(self, cluster):
        with pytest.raises(TypeError, match=r"^bad operand type for abs"):
            dict(finished(abs, ["one"], None, on="ray"))

    def test_nothing_is_begun_when_the_time_is_over(self, cluster, tmp_path):
        assert dict(finished(Work(tmp_path, deadly=9), range(4), None, on="ray", minutes=1e-9)) == {}

    def test_the_same_cells_bit_for_bit_also_when_one_dies(self, cluster, tmp_path, monkeypatch):
        here = ct.compare(tiny(), output=tmp_path / "here", **HOW)
        monkeypatch.setattr(comparing, "MethodStudy", DyingStudy)
        there = ct.compare(tiny(), output=tmp_path / "there", on="ray", **HOW)
        assert (tmp_path / "there" / "died").exists()
        assert without_times(list(there.cells)) == without_times(list(here.cells))
        assert table(tmp_path / "there") == table(tmp_path / "here")
        for row in here.cells:
            for name in ("recipe.yaml", "predictions.jsonl"):
                one, two = (tmp_path / place / row["run"] / name for place in ("here", "there"))
                assert one.read_bytes() == two.read_bytes()


@pytest.mark.slow
def test_a_cluster_of_its_own_is_silent_and_gone_afterwards(tmp_path, monkeypatch, capfd):
    ray = pytest.importorskip("ray")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    ray.shutdown()
    assert dict(finished(Work(tmp_path, deadly=0), range(2), 1, on="ray")) == {0: 0, 1: 1}
    assert (tmp_path / "died").exists()
    assert not ray.is_initialized()
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("command", ["compare", "transfer-matrix", "capacity"])
def test_without_the_package(command, star_files, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    before = tree(star_files)
    outcome = crosstask(command, star_files / "stars.yaml", "--on", "ray")
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.endswith("'ray', which is not installed. Install it with: pip install \"crosstask[ray]\"\n")
    assert tree(star_files) == before


def test_a_cluster_that_is_not_there(monkeypatch):
    ray = pytest.importorskip("ray")

    def refuse(*arguments, **options):
        raise ConnectionError("Nobody answers.\nTraceback of Ray's.")

    monkeypatch.setenv("RAY_ADDRESS", "ray://nowhere:1")
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", refuse)
    with pytest.raises(
        CrossTaskError, match=r"at RAY_ADDRESS=ray://nowhere:1 could not be reached: Nobody answers\. See"
    ):
        dict(finished(abs, [1], None, on="ray"))
