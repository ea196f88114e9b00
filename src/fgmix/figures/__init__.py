"""Figures: arrays → one description → matplotlib (`draw`) or the page of `fgmix report`.

A file has kinds of one shape: their arrays, and the functions that describe them. `kinds` lists the kinds that can be
saved, and `compute` has what needs a network. Outside of `compute` nothing imports torch.
"""
