"""Linear models on frozen features: linear probes and stacking."""
