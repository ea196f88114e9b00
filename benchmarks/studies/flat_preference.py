"""Measure which samples of a tuple L_flat prefers, by the distance γ: the table of docs/algorithms/fgmix.md.

    OMP_NUM_THREADS=1 python benchmarks/studies/flat_preference.py pacs_resnet50_features.npz

For each test domain ERM is trained for 300 steps. Then −∂L_flat/∂ã is computed at uniform weights ã = 1/k, for γ at
which the noise of the logits is a multiple of the median margin: the direction in which the policy is pushed.
"""

from __future__ import annotations

from argparse import ArgumentParser
from statistics import fmean

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity, cross_entropy

from fgmix import RunSpec
from fgmix.algorithms import Algorithm
from fgmix.data import DomainDataset, load
from fgmix.data.loading import BatchSource, deliver
from fgmix.mixing import draw_tuples, flat_loss, mixing_matrix
from fgmix.mixing.flatness import margins, measure_noise
from fgmix.mixing.weights import rank_correlation
from fgmix.seeding import seed_torch
from fgmix.training.prepare import build_algorithm, build_source, prepare

RATIOS = (0.1, 0.25, 0.5, 1.0, 2.0)  # noise of the logits ÷ median margin
COLUMNS = ("signal ÷ noise", "cosine with the descent of L_mix", "ρ with the margin", "ρ with ‖z‖")
STEPS, TUPLES = 300, 32


def train_erm(data: DomainDataset, test: str) -> tuple[Algorithm, BatchSource]:
    """Train ERM on all domains but one; return it and the source of its batches."""
    run = prepare(RunSpec(dataset=data.name, algorithm="erm", test_domains=test, steps=STEPS), data, progress=False)
    algorithm, source = build_algorithm(run).train(), build_source(run)
    for step, batches in enumerate(deliver(source.prepare, range(STEPS), device=torch.device("cpu"))):
        seed_torch("step", run.spec.seed, step)
        algorithm.step(batches)
    return algorithm.eval(), source


def measure(algorithm: Algorithm, source: BatchSource, ratio: float, batches: int, repeats: int) -> list[float]:
    """Measure the `COLUMNS` for one ratio, as means over batches."""
    rows = []
    for step in range(STEPS, STEPS + batches):
        [parts] = deliver(source.prepare, range(step, step + 1), device=torch.device("cpu"))
        torch.manual_seed(step)
        y = torch.cat([y for _, y in parts])
        with torch.no_grad():
            z: Tensor = algorithm.featurizer(torch.cat([x for x, _ in parts]))
        domains = torch.cat([torch.full((len(y_e),), e) for e, (_, y_e) in enumerate(parts)])
        index, labels = draw_tuples(y, domains, TUPLES)
        noise, margin = measure_noise(algorithm.classifier, z, margins(algorithm.classifier, z, y))
        a = torch.full(index.shape, 1 / index.shape[1], requires_grad=True)
        A = mixing_matrix(a, index, len(z))
        head, gamma = algorithm.classifier, ratio * margin / noise
        drawn = [-descend(flat_loss(head, A, z, labels, gamma=gamma), a) for _ in range(repeats)]
        pushes = torch.stack(drawn)
        push = pushes.mean(0)
        spread = (pushes - push).square().sum((1, 2)).mean().sqrt()
        own = -descend(cross_entropy(head(A @ z), labels), a)
        rows.append(
            (
                push.norm() / spread,
                cosine_similarity(push.flatten(), own.flatten(), 0),
                rank_correlation(push, margins(head, z, y)[index]),
                rank_correlation(push, z.norm(dim=1)[index]),
            )
        )
    return [fmean(float(row[i]) for row in rows) for i in range(len(COLUMNS))]


def descend(loss: Tensor, a: Tensor) -> Tensor:
    """Return ∂loss/∂ã without its mean over a tuple, which a sum of weights of 1 excludes."""
    (gradient,) = torch.autograd.grad(loss, a, retain_graph=True)
    return gradient - gradient.mean(1, keepdim=True)


def main() -> None:
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("data", help="dataset, such as an .npz file of features")
    parser.add_argument("--batches", type=int, default=10)
    parser.add_argument("--repeats", type=int, default=20, help="estimates of 100 directions each")
    options = parser.parse_args()
    data = load(options.data)
    trained = [train_erm(data, test) for test in data.domain_names]
    print("| noise ÷ median margin |", " | ".join(COLUMNS), "|")
    print("| ---: |" + " ---: |" * len(COLUMNS))
    for ratio in RATIOS:
        cells = [measure(*pair, ratio, options.batches, options.repeats) for pair in trained]
        means = [fmean(column) for column in zip(*cells)]
        print(f"| {ratio} | {means[0]:.1f} |", " | ".join(f"{value:+.2f}" for value in means[1:]), "|")


if __name__ == "__main__":
    main()
