"""A method of your own: one class, checked against the contract, then trained beside ERM like any other.

To use it in every `fgmix` command, declare it as an entry point of your package (docs/guides/plug-in.md):

    [project.entry-points."fgmix.algorithms"]
    variance_of_risks = "my_package.new_method:VarianceOfRisks"
"""

import tempfile

import numpy as np
from torch import Tensor

import fgmix
from fgmix.algorithms import Batches, search, uniform
from fgmix.data import from_arrays
from fgmix.functional.domains import domain_risks


@fgmix.register("variance_of_risks")
class VarianceOfRisks(fgmix.Algorithm):
    """Minimise the mean and the standard deviation of the domains' risks: L = mean_e L_e + β std_e L_e."""

    label = "Variance of risks"

    class Config(fgmix.BaseConfig):
        beta: float = search(1.0, uniform(0, 4), help="weight β of the standard deviation", ge=0)

    def objective(self, batches: Batches) -> dict[str, Tensor]:
        risks = domain_risks(map(self.classifier, self.encode(batches)), batches)
        spread = risks.std(correction=0)
        return {"loss": risks.mean() + self.config.beta * spread, "spread": spread}


fgmix.testing.check_algorithm("variance_of_risks")

rng = np.random.default_rng(0)
y, domain = np.arange(600) % 3, np.arange(600) // 150  # three classes, four domains that differ by a shift
X = rng.normal(size=(3, 8))[y] + rng.normal(size=(4, 8))[domain] + rng.normal(size=(600, 8))
data = from_arrays(X, y, domain)
found = {}
with tempfile.TemporaryDirectory() as out:
    for algorithm in ("erm", "variance_of_risks"):
        spec = fgmix.RunSpec(dataset="arrays", algorithm=algorithm, test_domains="3", steps=60, eval_every=30)
        record = fgmix.train(spec, out, dataset=data, progress=False)
        found[record.label] = record.selected("raw").accuracy["raw"]["3"]["train"]
for label, accuracy in found.items():
    print(f"{label}: {accuracy:.1%} on the domain that was held out")
