"""FGMix in a plain PyTorch training loop: four classes, three domains that differ by a shift of the inputs."""

import torch
from torch import nn

from fgmix import FGMix

torch.manual_seed(0)
centres, shifts = torch.randn(4, 20), torch.randn(3, 20)
featurizer, classifier = nn.Sequential(nn.Linear(20, 32), nn.ReLU()), nn.Linear(32, 4)
fgmix = FGMix(32, classifier, lr=1e-2)  # with `lr`, it trains its own policy and discriminator
optimizer = torch.optim.Adam([*featurizer.parameters(), *classifier.parameters()], lr=1e-3)
for step in range(300):
    y, domains = torch.randint(4, (96,)), torch.arange(3).repeat_interleave(32)
    z = featurizer(centres[y] + shifts[domains] + 2 * torch.randn(96, 20))
    if step < 180:  # warm-up without mixing; `observe` updates the prior over the codes
        fgmix.observe(z)
        loss = nn.functional.cross_entropy(classifier(z), y)
    else:
        mixed = fgmix(z, y, domains, classifier)
        loss = nn.functional.cross_entropy(classifier(torch.cat([z, mixed.z])), torch.cat([y, mixed.y]))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"loss {loss:.4f}, " + ", ".join(f"{name} {value:.3f}" for name, value in mixed.metrics.items()))
