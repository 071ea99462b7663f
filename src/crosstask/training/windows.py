"""Sources that are larger than memory: other examples for each epoch, and what does not go with that."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from crosstask.data.overlap import positions_outside
from crosstask.data.readers.streamed import StreamPosition
from crosstask.data.task import Examples, Task
from crosstask.errors import CrossTaskError
from crosstask.models.batches import Prepared
from crosstask.models.encoder import Encoder
from crosstask.training.trainer import Phase
from crosstask.weighting.evidence import Need


@dataclass(frozen=True)
class PreparedWindows:
    """Prepared examples of a source by the number of an epoch, as many as are in the first window.

    - `held_out`: sets whose inputs must not train;
    - `first`: the prepared first window.
    """

    task: Task
    encoder: Encoder
    held_out: Sequence[Examples]
    first: Prepared

    def position(self, epoch: int) -> StreamPosition | None:
        """Where the window of an epoch begins, if a run that goes on has to be told."""
        return None if self.task.windows is None else self.task.windows.position(epoch)

    def restore(self, position: StreamPosition) -> None:
        """Let a window begin where `position` said."""
        if self.task.windows is not None:
            self.task.windows.restore(position)

    def __call__(self, epoch: int) -> Prepared:
        if epoch == 0:
            return self.first
        windows = self.task.windows
        assert windows is not None
        examples = windows.examples(epoch)
        positions = np.asarray(positions_outside(examples, self.held_out), dtype=np.int64)
        if not len(positions):
            raise CrossTaskError(
                f"Task '{self.task.name}': all examples of a window stand in dev or test; enlarge `window`."
            )
        # A window has a few rows more or less than another: some stand out, or come twice.
        order = np.random.default_rng([epoch]).permutation(positions)
        rows = np.sort(np.resize(order, len(self.task.train))).tolist()
        return Prepared.of(self.encoder, self.task.spec, examples.take(rows))


def check_windows(tasks: Sequence[Task], targets: Sequence[str], phases: Sequence[Phase]) -> None:
    """What asks for all examples of a task does not go with one of which a part is in memory."""
    for task in tasks:
        if task.windows is None:
            continue
        if task.name in targets:
            raise CrossTaskError(
                f"Task '{task.name}': `window` is for sources; a target is read as a whole. Leave it out, or draw a "
                "part with `limit`."
            )
        for phase in phases:
            weighting = phase.weighting
            held_out = weighting.held_out
            if task.name not in phase.tasks:
                continue
            cuts_query = held_out is not None and held_out.kind == "query"
            if cuts_query and held_out is not None and (held_out.query != "dev" or task.dev is None):
                raise CrossTaskError(
                    f"weighting '{weighting.name}' sets examples of every task aside, and `window` brings others of "
                    f"'{task.name}' in each epoch. Use `query: dev`, with a dev set of each task."
                )
            if Need.EXAMPLE_WEIGHTS in weighting.needs(0):
                raise CrossTaskError(
                    f"weighting '{weighting.name}' weighs single examples, and `window` brings others of "
                    f"'{task.name}' in each epoch. Weigh tasks, or leave `window` out."
                )
