"""All mutants, by the layer that they are in."""

from mutants import decisions, ensembles, gradients, learning, names, scores, transfers, weightings
from mutants.mutant import Mutant

MUTANTS: list[Mutant] = [
    *weightings.MUTANTS,
    *gradients.MUTANTS,
    *transfers.MUTANTS,
    *scores.MUTANTS,
    *learning.MUTANTS,
    *decisions.MUTANTS,
    *ensembles.MUTANTS,
    *names.MUTANTS,
]
