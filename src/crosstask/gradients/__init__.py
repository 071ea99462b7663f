"""Tensor algebra of task gradients: torch alone, no model, no data."""
