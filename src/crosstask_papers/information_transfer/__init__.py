"""Experiments of the study of information transfer (Wu, Zhang and Ré 2020)."""
