"""From the `encoder` section of a recipe to an encoder, or to its features on disk."""

from collections.abc import Sequence

from crosstask.data.task import Task
from crosstask.errors import CrossTaskError
from crosstask.models.arrays import PreparedInput
from crosstask.models.encoder import Config, Encoder, FeatureSection, Options
from crosstask.models.encoders import ENCODERS, encoder_class
from crosstask.models.encoders.feature_cache import FeatureCache
from crosstask.models.encoders.feature_pass import feature_device, feature_precision
from crosstask.models.encoders.frozen import FrozenEncoder
from crosstask.models.memory import within_machine
from crosstask.validation import check_options, name_and_options, shown

Section = str | Options
"""An `encoder` section: a name, or a mapping with `name` and options."""


def class_and_options(section: Section) -> tuple[type[Encoder], Config]:
    """The class that a section names, and its options. A name that is not built in is a folder or an id on the hub."""
    name, options = name_and_options("encoder", section)
    if name in ENCODERS:
        return encoder_class(name), options
    return encoder_class("hugging-face"), {"path": name, **options}


def trusts_remote_code(section: Section) -> bool:
    """Whether the user's own section allows code that comes with the encoder to run."""
    return not isinstance(section, str) and section.get("trust_remote_code") is True


def build_encoder(section: Section, tasks: Sequence[Task]) -> Encoder:
    """An encoder by name and options.

    Every encoder also takes `freeze` (its weights stay as they are, features are computed once and kept on disk) and,
    with it, `hidden` (width of a ReLU layer on the features that all tasks share and train), `cache` and `precision`
    (of the features). With a Hugging Face encoder `freeze` can be a number: so many layers and what is before them stay
    as they are.
    """
    cls, options = class_and_options(section)
    freeze = options.pop("freeze", False)
    if not isinstance(freeze, bool):
        cls = _partly_frozen_class(cls, freeze)
        options["freeze"], freeze = freeze, False
    frozen_options: Config = {}
    for key in ("hidden", "cache", "precision"):
        if freeze and key in options:
            frozen_options[key] = options.pop(key)
    check_options("encoder", FrozenEncoder, frozen_options, without=("inner",))
    cls.check_options(options)
    if freeze and any(task.spec.form == "vector" for task in tasks):
        raise CrossTaskError("encoder: `freeze` is for texts; numeric vectors are features already.")
    with within_machine("encoder"):
        encoder = cls.from_tasks(tasks, **options)
        for task in tasks:
            encoder.check(task)
        if freeze:
            encoder = FrozenEncoder(encoder, **frozen_options)
    return encoder


def _partly_frozen_class(cls: type[Encoder], num_layers: object) -> type[Encoder]:
    """The class of a Hugging Face encoder with so many frozen layers."""
    if not isinstance(num_layers, int) or num_layers < 1:
        raise CrossTaskError(
            f"encoder: `freeze` must be true or false, or a number of layers from 1 up, found {shown(num_layers)}."
        )
    if cls is not encoder_class("hugging-face"):
        raise CrossTaskError(
            f"encoder: `freeze` must be true or false with the encoder '{cls.name}'; found {shown(num_layers)}. Only "
            "of a Hugging Face encoder can some layers be frozen."
        )
    return encoder_class("partly-frozen")


def feature_section(section: Section) -> FeatureSection:
    """The `encoder` section of a method that only reads features, and notes on what it leaves out of `section`.

    A Hugging Face encoder is frozen and gives the mean of its token vectors, unless `pooling` says otherwise. Layers
    that would have to be trained first are left out: of the encoders over word vectors and over numeric vectors only
    those vectors stay.
    """
    cls, _ = class_and_options(section)
    return cls.feature_section(*name_and_options("encoder", section))


def mean_section(section: Section) -> Section:
    """The section of a method that compares vectors: a Hugging Face encoder gives the mean of its token vectors.

    What its own head would read was made for that head, and says little of a text before it is trained.

    >>> mean_section("minilm"), mean_section("lstm")
    ({'pooling': 'mean', 'name': 'minilm'}, 'lstm')
    """
    cls, _ = class_and_options(section)
    if cls is not encoder_class("hugging-face"):
        return section
    name, options = name_and_options("encoder", section)
    return {"pooling": "mean", **options, "name": name}


def features_on_disk(
    section: Options, tasks: Sequence[Task], samples: Sequence[Task]
) -> dict[str, list[PreparedInput]] | None:
    """Features of all training examples of the samples by task, without loading the encoder.

    None where one of them has to be computed.

    Args:
        section: the `encoder` section, with `freeze`.
        tasks: those that the encoder would be built for.
        samples: tasks with the training examples whose features are needed.
    """
    identity = _cache_identity(section, tasks)
    if identity is None:
        return None
    cache = FeatureCache.of_identity(identity)
    if cache is None:
        return None
    features: dict[str, list[PreparedInput]] = {}
    for task in samples:
        rows = cache.find(task.train.inputs, task.train.form)
        if rows is None:
            return None
        features[task.name] = rows
    return features


def index_features(section: Options, tasks: Sequence[Task], encoder: Encoder) -> None:
    """Let `features_on_disk` find what this encoder, built from `section`, has computed."""
    identity = _cache_identity(section, tasks)
    if identity is not None and isinstance(encoder, FrozenEncoder) and encoder.cache is not None:
        encoder.cache.add_to_index(identity)


def _cache_identity(section: Section, tasks: Sequence[Task]) -> str | None:
    """Identifies a frozen encoder whose features are cached; None where there is no cache or no known files."""
    cls, options = class_and_options(section)
    if options.get("freeze") is not True or options.get("cache") is False:
        return None
    identity = cls.weights_identity(tasks, options)
    precision = feature_precision(feature_device())
    if identity is None or precision == "float32":
        return identity
    return f"{identity} {precision}"
