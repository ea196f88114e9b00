"""Figures from arrays: one kind per file; each function accepts arrays and returns a `matplotlib.figure.Figure`.

Nothing here computes, imports torch or touches pyplot's global state.
"""
