"""Cross-task learning: the names that `import crosstask as ct` offers, for editors and type checkers."""

from crosstask.automl import auto as auto
from crosstask.data.task import Examples as Examples
from crosstask.data.task import Task as Task
from crosstask.errors import CrossTaskError as CrossTaskError
from crosstask.errors import CrossTaskWarning as CrossTaskWarning
from crosstask.learner import Learner as Learner
from crosstask.runs.loading import load as load
from crosstask.runs.run import Run as Run
from crosstask.studies.capacity import capacity as capacity
from crosstask.studies.compare import compare as compare
from crosstask.studies.transfer_matrix import transfer_matrix as transfer_matrix
from crosstask.training.config import Training as Training
from crosstask.transfer.adapter_fusion import AdapterFusion as AdapterFusion
from crosstask.transfer.adapters import Adapters as Adapters
from crosstask.transfer.adversarial import Adversarial as Adversarial
from crosstask.transfer.adversarial import TchebycheffAdversarial as TchebycheffAdversarial
from crosstask.transfer.alignment import Alignment as Alignment
from crosstask.transfer.base import Transfer as Transfer
from crosstask.transfer.label_transfer import LabelTransfer as LabelTransfer
from crosstask.transfer.representation_transfer import RepresentationTransfer as RepresentationTransfer
from crosstask.transferability.distance import task_distance as task_distance
from crosstask.transferability.rank import rank as rank
from crosstask.weighting.bandit import BanditMTL as BanditMTL
from crosstask.weighting.base import Weighting as Weighting
from crosstask.weighting.dwa import DWA as DWA
from crosstask.weighting.getmtl import GetMTL as GetMTL
from crosstask.weighting.gradnorm import GradNorm as GradNorm
from crosstask.weighting.metaweighting import MetaWeighting as MetaWeighting
from crosstask.weighting.mgda import MGDA as MGDA
from crosstask.weighting.mgda_ub import MGDAUB as MGDAUB
from crosstask.weighting.random_weights import RandomWeights as RandomWeights
from crosstask.weighting.static import BySize as BySize
from crosstask.weighting.static import Fixed as Fixed
from crosstask.weighting.static import Uniform as Uniform
from crosstask.weighting.svd import SVDWeighting as SVDWeighting
from crosstask.weighting.tawt import TAWT as TAWT
from crosstask.weighting.tawt_samples import SampleTAWT as SampleTAWT
from crosstask.weighting.tchebycheff import Tchebycheff as Tchebycheff
from crosstask.weighting.torchjd import TorchJD as TorchJD
from crosstask.weighting.uncertainty import Uncertainty as Uncertainty
from crosstask_papers import reproduce as reproduce
from crosstask_papers.linearized.affinity import linearised_affinity as linearised_affinity
from crosstask_papers.linearized.affinity import linearized_affinity as linearized_affinity
from crosstask_papers.linearized.affinity import task_affinity as task_affinity

__version__: str
