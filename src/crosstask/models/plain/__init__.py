"""Models for transformers alone, where it has no class of its own for what crosstask trained."""
