"""Several tasks in `transformers.Trainer`: a model with one encoder, a trainer with a loss and a weight for each task.

>>> MultiTaskTrainer.__mro__[1] is WeightedTasksMixin
True
"""

from crosstask.hugging_face.shared_encoder import MultiTaskModel
from crosstask.hugging_face.trainer import MultiTaskTrainer, WeightedTasksMixin

__all__ = ["MultiTaskModel", "MultiTaskTrainer", "WeightedTasksMixin"]
