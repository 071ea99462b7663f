"""From the `encoder` section of a recipe to an encoder."""

from collections.abc import Mapping, Sequence
from typing import Any

from crosstask.data.task import Task
from crosstask.errors import CrossTaskError
from crosstask.models.encoder import Encoder
from crosstask.models.encoders import ENCODERS, encoder_class
from crosstask.models.encoders.frozen import FrozenEncoder
from crosstask.validation import check_options, name_and_options, option_names


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


def feature_section(given: str | Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The `encoder` section of a method that only reads features, and notes on what it leaves out of the given one.

    A Hugging Face encoder is frozen and gives the mean of its token vectors, unless `pooling` says otherwise. Layers
    that would have to be trained first are left out: of the encoders over word vectors and over numeric vectors only
    those vectors stay.
    """
    name, options = name_and_options("encoder", given)
    layers = f"the features are read as they are, without the layers of the encoder '{name}'"
    if name in ("linear", "relu"):
        check_options("encoder", encoder_class(name).from_tasks, options, without=("tasks",))
        return {"name": "vectors"}, [layers]
    if name in ("textcnn", "lstm", "mlp"):
        options = {key: value for key, value in options.items() if key not in ("freeze", "cache")}
        check_options("encoder", encoder_class(name).from_tasks, options, without=("tasks",))
        if options.get("vectors") is None:
            raise CrossTaskError(
                f"encoder: '{name}' without `vectors` knows nothing before it is trained, so a linear model has "
                "nothing to read: give a file of word vectors, or use 'minilm' or another Hugging Face encoder."
            )
        kept = option_names(encoder_class("words").from_tasks, without=("tasks",))
        return {"name": "words"} | {key: value for key, value in options.items() if key in kept}, [layers]
    if name in ENCODERS and name != "hugging-face":
        return {"name": name, **options}, []
    notes = [
        f"`{key}` under `encoder` plays no part: nothing in the encoder is trained"
        for key in ("hidden", "lora", "gradient_checkpointing", "dropout")
        if options.pop(key, None)
    ]
    return {"pooling": "mean", **options, "name": name, "freeze": True}, notes
