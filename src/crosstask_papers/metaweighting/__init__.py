"""Experiments of MetaWeighting (Mao et al. 2022)."""
