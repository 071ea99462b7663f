"""Task affinity by linearization: sources ranked by one trained model and many small regressions."""
