"""The bench: targets with few labels, sources with many, every method by name, and opponents.

    bench = Bench(Path("data"))
    keys = bench.keys(["sentences"], seeds=3)  # trials, and what needs no learning rate
    rows = {key: bench.work(key) for key in keys}
    keys = bench.keys(["sentences"], seeds=3, rows=rows)  # with the rates that the trials have chosen

`Bench.run` does this through the study core; any pool of processes can do it too, for `work` needs its key alone.
"""

from crosstask_papers.bench.exchange import score_predictions, write_problems
from crosstask_papers.bench.runs import Bench

__all__ = ["Bench", "score_predictions", "write_problems"]
