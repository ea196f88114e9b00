"""Figures from arrays: one kind per file; each function accepts arrays and returns a `matplotlib.figure.Figure`.

Nothing here computes results, imports torch or uses pyplot's global state.
"""
