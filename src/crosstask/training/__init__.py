"""From a plan of phases to a trained model: trainer, forward passes, paradigms, devices and checkpoints."""
