"""How much each task counts. A method is one file here and one line below."""

from typing import TYPE_CHECKING, Any

from crosstask.registry import Registry

if TYPE_CHECKING:
    from crosstask.weighting.base import Weighting as Weighting

WEIGHTINGS: "Registry[Weighting]" = Registry(
    "crosstask.weighting",
    {
        "uniform": "static:Uniform",
        "by-size": "static:BySize",
        "fixed": "static:Fixed",
        "scale-invariant": "scale_invariant:ScaleInvariant",
        "random": "random_weights:RandomWeights",
        "tawt": "tawt:TAWT",
        "tawt-held-out": "tawt_held_out:HeldOutTAWT",
        "tawt-samples": "tawt_samples:SampleTAWT",
        "metaweighting": "metaweighting:MetaWeighting",
        "uncertainty": "uncertainty:Uncertainty",
        "dwa": "dwa:DWA",
        "gradnorm": "gradnorm:GradNorm",
        "mgda": "mgda:MGDA",
        "mgda-ub": "mgda_ub:MGDAUB",
        "bandit": "bandit:BanditMTL",
        "tchebycheff": "tchebycheff:Tchebycheff",
        "getmtl": "getmtl:GetMTL",
        "db-mtl": "db_mtl:DBMTL",
        "go4align": "go4align:GO4Align",
        "svd": "svd:SVDWeighting",
        "torchjd": "torchjd:TorchJD",
    },
)

__all__ = ["WEIGHTINGS", "Weighting"]


def __getattr__(name: str) -> Any:
    if name == "Weighting":
        from crosstask.weighting.base import Weighting

        return Weighting
    method = WEIGHTINGS.find(name)
    if method is None:
        raise AttributeError(f"module 'crosstask.weighting' has no attribute '{name}'")
    return method
