"""Which tasks help: before, during and after training."""
