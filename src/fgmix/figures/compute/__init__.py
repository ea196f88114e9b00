"""The arrays of figures that need the weights of a run, or torch. One kind per file.

Most functions share these arguments: `which` are the weights after the last step, or the best; `model` is raw or
averaged; `samples` is the number of samples of each domain, at most; `seed` is that of every random draw; `progress`
shows a bar.
"""
