"""The arrays of figures that need the weights of a run, or torch. One kind per file."""
