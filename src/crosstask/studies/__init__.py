"""Grids of runs over methods, targets and seeds: one grid, one executor, one estimate."""
