"""From the `encoder` section of a recipe to an encoder."""

from collections.abc import Mapping, Sequence
from typing import Any

from crosstask.encoders import ENCODERS, encoder_class
from crosstask.encoders.base import Encoder
from crosstask.encoders.frozen import FrozenEncoder
from crosstask.errors import CrossTaskError
from crosstask.options import check_options, name_and_options
from crosstask.tasks import Task


def build_encoder(given: str | Mapping[str, Any], tasks: Sequence[Task]) -> Encoder:
    """An encoder by name and options. A name that is not built in is a folder or an id on the Hugging Face hub.

    Every encoder also takes `freeze` (its weights stay as they are, features are computed once and kept on disk) and,
    with it, `hidden` (width of a ReLU layer on the features that all tasks share and train) and `cache`.
    """
    name, options = name_and_options("encoder", given)
    freeze = options.pop("freeze", False)
    if not isinstance(freeze, bool):
        raise CrossTaskError(f"encoder: `freeze` must be true or false, found {freeze!r}.")
    frozen_options = {key: options.pop(key) for key in ("hidden", "cache") if freeze and key in options}
    if name == "minilm" or name not in ENCODERS:
        options["path"], name = name, "hugging-face"
    method = encoder_class(name).from_tasks
    check_options("encoder", method, options, without=("tasks", "path") if "path" not in options else ("tasks",))
    if freeze and any(task.spec.form == "vector" for task in tasks):
        raise CrossTaskError("encoder: `freeze` is for texts; numeric vectors are features already.")
    encoder = encoder_class(name).from_tasks(tasks, **options)
    for task in tasks:
        encoder.check(task)
    return FrozenEncoder(encoder, **frozen_options) if freeze else encoder
