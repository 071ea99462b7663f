"""Experiments of MetaXT (Sharma et al. 2021)."""
