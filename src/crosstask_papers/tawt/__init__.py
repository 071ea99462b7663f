"""Experiments of TAWT (Chen et al. 2022)."""
