"""Training examples of a task that is larger than memory: a window of it at a time."""

from dataclasses import dataclass

from crosstask.data.examples import Examples, TaskSpec
from crosstask.data.options import SplitOptions
from crosstask.data.readers.blocks import Blocks
from crosstask.data.readers.streamed import StreamBlocks, StreamPosition
from crosstask.data.splits import assemble_window


@dataclass(frozen=True)
class Windows:
    """The windows of a task's training set; `train` of the task is what remains of the first.

    - `blocks`: the data;
    - `spec`: the task, with the labels of the first window;
    - `options`: how rows become examples;
    - `num_examples`: in all windows of a pass, as far as it is known without reading them.
    """

    blocks: Blocks
    spec: TaskSpec
    options: SplitOptions
    num_examples: int

    def examples(self, number: int) -> Examples:
        """All examples of a window, from 0."""
        return assemble_window(self.spec, self.blocks.window(number), self.options)

    def position(self, number: int) -> StreamPosition | None:
        """Where a window of a stream begins; None where its number says it all."""
        return self.blocks.positions.get(number) if isinstance(self.blocks, StreamBlocks) else None

    def restore(self, position: StreamPosition) -> None:
        """Let a window of a stream begin where `position` said."""
        if isinstance(self.blocks, StreamBlocks):
            self.blocks.restore(position)
