"""Tensor maths that two or more methods share; no state, no settings, no knowledge of algorithms."""
