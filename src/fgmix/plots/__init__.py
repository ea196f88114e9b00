"""Figures from arrays: one kind a file, each function takes arrays and returns a `matplotlib.figure.Figure`.

Nothing here computes, imports torch or touches pyplot's global state.
"""
