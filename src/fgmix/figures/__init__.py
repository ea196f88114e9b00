"""Figures: arrays → one description → matplotlib (`draw`) or the page of `fgmix report`.

One kind per file: its arrays, and the function that describes them. `kinds` lists the kinds that can be saved, and
`compute` has what needs a network. Outside of `compute` nothing imports torch.
"""
