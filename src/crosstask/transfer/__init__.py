"""What passes between tasks besides weights. A method is one file here and one line below, and so is an insert."""

from typing import TYPE_CHECKING, Any

from crosstask.registry import Registry

if TYPE_CHECKING:
    from crosstask.models.hooks import Insert
    from crosstask.transfer.base import Transfer as Transfer

TRANSFERS: "Registry[Transfer]" = Registry(
    "crosstask.transfer",
    {
        "label-transfer": "label_transfer:LabelTransfer",
        "representation-transfer": "representation_transfer:RepresentationTransfer",
        "adversarial": "adversarial:Adversarial",
        "tchebycheff-adversarial": "adversarial:TchebycheffAdversarial",
        "alignment": "alignment:Alignment",
        "adapters": "adapters:Adapters",
        "adapter-fusion": "adapter_fusion:AdapterFusion",
        "forkmerge": "forkmerge:ForkMerge",
        "contrast": "contrast:Contrast",
        "merging": "merging:Merging",
    },
)

INSERTS: "Registry[Insert]" = Registry(
    "crosstask.transfer",
    {
        "private-encoders": "adversarial:PrivateEncoders",
        "alignment": "alignment:AlignmentMatrices",
        "adapters": "adapters:AdapterInsert",
        "adapter-fusion": "adapter_fusion:FusionInsert",
    },
)
"""What transfers put into a model, by the name under which a saved model lists it."""

__all__ = ["INSERTS", "TRANSFERS", "Transfer"]


def __getattr__(name: str) -> Any:
    if name == "Transfer":
        from crosstask.transfer.base import Transfer

        return Transfer
    transfer = TRANSFERS.find(name)
    if transfer is None:
        raise AttributeError(f"module 'crosstask.transfer' has no attribute '{name}'")
    return transfer
