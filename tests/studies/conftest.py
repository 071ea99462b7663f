"""Runs that are counted, or only pretended."""

import pytest

from crosstask.studies.compare_runs import MethodStudy


@pytest.fixture
def counted(monkeypatch):
    """The cells that are run for true."""
    cells = []
    train = MethodStudy.run

    def run(self, cell):
        cells.append(cell)
        return train(self, cell)

    monkeypatch.setattr(MethodStudy, "run", run)
    return cells


@pytest.fixture
def pretended(monkeypatch):
    """Scores by a rule instead of by training: `rule(cell) -> score`, or a text for a refusal, or None."""

    def put(rule, metric="accuracy", seconds=lambda cell: 1.0, dev=lambda cell: 0.5):
        def run(self, cell):
            score = rule(cell)
            if isinstance(score, str):
                return {"refused": score}
            scores = {"dev": {metric: dev(cell)}, "test": {metric: score}}
            return {"scores": scores, "weights": {}, "seconds": seconds(cell)}

        monkeypatch.setattr(MethodStudy, "run", run)

    return put
