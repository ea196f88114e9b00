"""Features of penguins: predict the sex on a species that was not seen in training.

The domains are the three species, the groups their nests: birds of one species, island and nest number
are never in both the training part and the holdout part of a domain. Both are natural.

Gorman, Williams and Fraser, 2014, https://doi.org/10.1371/journal.pone.0090081. Install: `pip install palmerpenguins`.
"""

from palmerpenguins import load_penguins_raw

import fgmix

FEATURES = ["Culmen Length (mm)", "Culmen Depth (mm)", "Flipper Length (mm)", "Body Mass (g)"]


@fgmix.data.register_dataset("penguins", depends_on_trial=False)
def load(_options):
    """Sex of 333 penguins of three species, from four measurements."""
    birds = load_penguins_raw().dropna(subset=[*FEATURES, "Sex"])
    species = birds["Species"].str.split().str[0]
    nest = species + " " + birds["Island"] + " " + birds["Individual ID"].str.split("A").str[0]  # N12A1 → N12
    return fgmix.data.from_arrays(
        birds[FEATURES].to_numpy(),
        birds["Sex"].str.lower().to_numpy(str),
        species.to_numpy(str),
        name="penguins",
        group=nest.to_numpy(str),
    )
