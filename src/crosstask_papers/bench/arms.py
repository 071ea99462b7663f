"""What trained methods are made of, and what each part is worth: methods that differ by it alone."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Arm:
    """A method by its parts.

    - `sources`: whether there are any;
    - `order`: of the phases;
    - `head`: how the target's begins, "fresh" or as a "probe";
    - `soft_labels`: what the sources' labels say of the target: nothing, what a probe says, or what a network learns;
    - `ending`: the tasks of the last phase.
    """

    sources: str = "all"
    order: str = "together"
    head: str = "fresh"
    soft_labels: str = "none"
    ending: str = "all tasks"


FIRST = "sources, then all"
ARMS: dict[str, Arm] = {
    "single": Arm("none", "target", ending="target"),
    "single-probed": Arm("none", "target", "probe", ending="target"),
    "normalized-joint": Arm(),
    "joint-then-target": Arm(order="together, then target", ending="target"),
    "pretrain": Arm(order="sources, then target", ending="target"),
    "pretrain-probed": Arm(order="sources, then target", head="probe", ending="target"),
    "sources-first": Arm(order=FIRST, head="probe"),
    "sources-first-then-target": Arm(order=f"{FIRST}, then target", head="probe", ending="target"),
    "label-transfer-off": Arm(order=FIRST, head="probe"),
    "label-transfer-fixed": Arm(order=FIRST, head="probe", soft_labels="of a probe"),
    "label-transfer": Arm(order=FIRST, head="probe", soft_labels="of a network"),
    "label-transfer-then-target": Arm(
        order=f"{FIRST}, then target", head="probe", soft_labels="of a network", ending="target"
    ),
}
"""By the name of the method, from few parts to many."""
PARTS = (
    ("training the encoder, next to a linear model on it", "single", "probe"),
    ("sources, all tasks in every step", "normalized-joint", "single"),
    ("sources, all heads begun as probes", "sources-first", "single-probed"),
    ("each task counts the same, not each example", "normalized-joint", "joint"),
    ("order: sources first and then the target, not all together", "pretrain", "normalized-joint"),
    ("order: sources first and then all, not the target alone", "sources-first", "pretrain-probed"),
    ("an end on the target alone", "joint-then-target", "normalized-joint"),
    (
        "an end on the target alone, after sources and a probe",
        "sources-first-then-target",
        "sources-first",
    ),
    ("an end on the target alone, after label transfer", "label-transfer-then-target", "label-transfer"),
    ("a probe as head, target alone", "single-probed", "single"),
    ("a probe as head, after the sources", "pretrain-probed", "pretrain"),
    ("soft labels from the sources", "label-transfer-fixed", "label-transfer-off"),
    ("a network that learns these labels", "label-transfer", "label-transfer-fixed"),
    ("weights that are learned, by gradients", "tawt", "normalized-joint"),
    ("weights that are learned, by held-out losses", "metaweighting", "normalized-joint"),
    ("sources for contrast", "contrastive-sources", "contrastive"),
    ("sources for a linear model", "stacking", "probe"),
)
"""What is switched on, and the methods with and without it."""
