import copy
from typing import Literal

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import cross_entropy, relu

from fgmix.algorithms import Algorithm, BaseConfig, Batches, batch_of, descend, register, setting
from fgmix.errors import UserError
from fgmix.networks.generators import (
    Disentangler,
    PatchDiscriminator,
    PixelRange,
    discriminator_loss,
    generator_loss,
    image_channels,
)

PAPER_STAGE0 = 25_000 / 35_000  # 25,000 steps of stage 0, 10,000 of stage 1
PIXEL = 0.5 / 0.226  # one unit of [−1, 1] in ImageNet-normalised pixels (mean standard deviation 0.226)


@register("ddg")
class DDG(Algorithm):
    """Train on generated images that combine the semantics of one image with the variation of another.

    E_s (the featurizer) gives the semantics f, E_v the variation s, and Dec decodes both to an image. Images come in
    pairs (a, b); x_ab = Dec(s_a, f_b). Sums below are over the pair: each term occurs for a and for b.

    Stage 0, a share `stage0` of the steps, trains a GAN with the least-squares losses L_D and L_adv; the base model is
    not trained:

        D:         Σ L_D(x_ba, x_a)
        E_v, Dec:  Σ L_adv(x_ab) + ½·Σ |Dec(s_a, f_a) − x_a| + ω_c·Σ |Dec(E_v(x_ab), E_s(x_ba)) − x_a|

    Stage 1 takes a snapshot of E_s, E_v, Dec, which generates the x_ab, and minimises over h, E_s, E_v, Dec

        r_a = mean |Dec(s_a, E_s(a⁺)) − x_a| per image,    w ← clip(w + η·(mean r_a − γ), 0, 1)
        L = 4·CE(h(E_s(x)), y) + w·Σ mean max(r_a − γ, 0) + ½·Σ CE(h(E_s(x_ab)), y_a)

    with a⁺ another image of a's class and domain: the Lagrangian of the constraint that an image is reconstructed from
    its own variation and the semantics of its class up to an error γ, with dual variable w. Pixel errors are in
    ImageNet-normalised units, those of the authors' weights and γ, for any range of the inputs.

    Zhang et al., "Towards Principled Disentanglement for Domain Generalization", 2022,
    https://arxiv.org/abs/2111.13839. Variant: the authors' code, https://github.com/hlzhang109/DDG, with pairs from
    the step's batch; differences are listed in docs/algorithms/ddg.md.
    """

    label = "DDG"
    family = "augmentation"
    cost = 4.35
    keeps = "a generator"
    at_work = {"stage0": 0.0}
    needs_stages = True
    paired_batches = True

    class Config(BaseConfig):
        stage0: float = setting(
            0.3,
            help=f"share of the steps that pre-trains the generator as a GAN; paper: {PAPER_STAGE0:.3f}",
            ge=0,
            lt=1,
        )
        pairs: int | None = setting(
            None,
            help="images per domain in each of a and b; none: 4, or half the batch where that is less; paper: 2",
            ge=1,
        )
        margin: float = setting(0.25, help="γ, the reconstruction error allowed, of ImageNet-normalised pixels", ge=0)
        eta: float = setting(0.01, help="η, the step size of the dual variable w", ge=0)
        swap_weight: float = setting(0.5, help="weight of the swaps' class loss in stage 1", ge=0)
        reconstruction_weight: float = setting(0.5, help="weight of the reconstruction in stage 0", ge=0)
        gan_weight: float = setting(1.0, help="weight of the adversarial losses in stage 0", ge=0)
        cycle_weight: float = setting(
            2.0, help="final value of ω_c, which grows by 0.005 per step after 0.2 of stage 0", ge=0
        )
        swap_label: Literal["structure", "semantics"] = setting(
            "structure", help="a swap's label: of the image that gave s (the authors' code on photos) or f (on digits)"
        )
        lr_generator: float = setting(1e-4, help="learning rate of E_v, Dec and D", gt=0)
        width: int = setting(16, help="channels of the first layers of E_v and D; paper: 16 and 32", ge=1)
        downs: int = setting(2, help="number of times s halves the image; paper: 4, at 224 pixels", ge=1)

    w: Tensor

    def __init__(self, featurizer: nn.Module, classifier: nn.Module, n_domains: int, config: Config) -> None:
        super().__init__(featurizer, classifier, n_domains, config)
        channels = image_channels(featurizer)
        self.range = PixelRange(channels)
        self.generator = Disentangler(channels, self.code_size, config.width, config.downs)
        self.D = PatchDiscriminator(channels, config.width)
        self.snapshot_E_s = copy.deepcopy(featurizer).requires_grad_(False)
        self.snapshot_generator = copy.deepcopy(self.generator).requires_grad_(False)
        self.register_buffer("w", torch.tensor(0.5))
        lr = config.lr_generator
        self.optimizer_generator = self.build_optimizer(
            self.generator.parameters(), lr=lr, weight_decay=5e-4, betas=(0.0, 0.999)
        )
        self.optimizer_D = self.build_optimizer(self.D.parameters(), lr=lr, weight_decay=0.0)

    @classmethod
    def first_base_step(cls, config: Config) -> int:  # type: ignore[override]  # its own Config
        """Return after how many steps stage 1 begins."""
        return int(config.stage0 * config.steps)

    @classmethod
    def check_batch(cls, config: Config, batch_size: int, shape: tuple[int, ...]) -> None:  # type: ignore[override]
        least = 2 * (config.pairs or 1)
        if batch_size < least:
            raise UserError(
                f"ddg with pairs = {config.pairs or 'none'} needs at least {least} images per domain and step. "
                f"Found {batch_size}. Raise the batch size or lower `pairs`."
            )
        side = max(16, 2 ** (config.downs + 1))  # D's second scale, and s, need maps of two pixels to reflect
        if len(shape) == 3 and min(shape[-2:]) < side:  # without maps the network is refused
            raise UserError(
                f"ddg with downs = {config.downs} needs images of at least {side} pixels a side. "
                f"Found {shape[-2]}×{shape[-1]}. Enlarge them or lower `downs`."
            )

    @property
    def stage0_steps(self) -> int:
        """Return the number of steps of stage 0."""
        return self.first_base_step(self.config)

    def update(self, batches: Batches) -> dict[str, Tensor]:
        x, y = batch_of(batches)
        sizes = [len(y_e) for _, y_e in batches]
        self.check_batch(self.config, min(sizes), tuple(x.shape[1:]))
        self.range.observe(x)
        pair = draw_pairs(sizes, self._n_pairs(min(sizes)), x.device)
        if self.updates < self.stage0_steps:
            return self.update_gan(x[pair])
        if self.updates == self.stage0_steps:
            self.begin_stage1()
        return self.update_model(x, y, pair, positives(sizes, y)[pair])

    # Stage 0. Tensors of a pair contain the images a, then as many b: one pass for both; `exchange` swaps the halves.

    def update_gan(self, x: Tensor) -> dict[str, Tensor]:
        """Take one step of D, then one of E_v and Dec against the new D; x (2n, c, h, w) is a pair."""
        self._set_learning_rates()
        size, u = (x.shape[-2], x.shape[-1]), self.range.to_unit(x)
        f, s = encode_constant(self.featurizer, x), self.generator.E_v(u)
        swap = self.generator.Dec(s, exchange(f), size)  # x_ab, then x_ba

        # a and b are equally many: the sum of their two means is twice the mean over both.
        loss_D = 2 * self.config.gan_weight * discriminator_loss(self.D, swap.detach(), u, 0.01 / PIXEL**2)
        descend(self.optimizer_D, loss_D)

        terms = {
            "adversarial": 2 * generator_loss(self.D, swap),
            "reconstruction": 2 * pixel_errors(self.generator.Dec(s, f, size), u).mean(),
            "cycle": 2 * self._cycle(swap, u),
        }
        loss = (
            self.config.gan_weight * terms["adversarial"]
            + self.config.reconstruction_weight * terms["reconstruction"]
            + self._cycle_weight() * terms["cycle"]
        )
        descend(self.optimizer_generator, loss, self.generator)  # D is a fixed function here
        return {"loss": loss, "discriminator": loss_D, **terms}

    def _cycle(self, swap: Tensor, u: Tensor) -> Tensor:
        """Compute mean |Dec(E_v(x_ab), E_s(x_ba)) − x_a|: swapping twice gives the image back.

        With probability ½ each the gradient reaches either the weights of E_v, with the swap a constant, or the swap.
        """
        weights_learn = bool(torch.rand(()) < 0.5)
        if self._cycle_weight() == 0:
            return u.new_zeros(())
        E_v = self.generator.E_v
        if weights_learn:
            s = E_v(swap.detach())
        else:
            s = functional_call(E_v, {name: p.detach() for name, p in E_v.named_parameters()}, (swap,))
        f = encode_constant(self.featurizer, self.range.from_unit(swap))
        return pixel_errors(self.generator.Dec(s, exchange(f), (u.shape[-2], u.shape[-1])), u).mean()

    def _cycle_weight(self) -> float:
        """Compute ω_c: 0 for the first fifth of stage 0, then it grows by 0.005 per step up to `cycle_weight`."""
        omega: float = min(0.005 * max(0.0, self.updates - 0.2 * self.stage0_steps), self.config.cycle_weight)
        return omega

    def _set_learning_rates(self) -> None:
        """Divide by 10 at 60 % and again at 90 % of stage 0; a function of the step, so nothing to save."""
        progress = self.updates / self.stage0_steps
        lr = self.config.lr_generator * 0.1 ** ((progress >= 0.6) + (progress >= 0.9))
        for group in (*self.optimizer_D.param_groups, *self.optimizer_generator.param_groups):
            group["lr"] = lr * self.lr_factor

    # Stage 1

    def begin_stage1(self) -> None:
        """Take the snapshot that generates the swaps, and reset the generator's optimiser and its learning rate."""
        self.snapshot_E_s.load_state_dict(self.featurizer.state_dict())
        self.snapshot_generator.load_state_dict(self.generator.state_dict())
        self.optimizer_generator.state.clear()
        for group in self.optimizer_generator.param_groups:
            group["lr"] = self.config.lr_generator * self.lr_factor

    def update_model(self, x: Tensor, y: Tensor, pair: Tensor, positive: Tensor) -> dict[str, Tensor]:
        """Take one step of w, then one of h, E_s, E_v and Dec; `pair` and its `positive` index the batch x, y."""
        f = self.featurizer(x)  # (k·b, d)
        u = self.range.to_unit(x[pair])
        painted = self.generator.Dec(self.generator.E_v(u), f[positive], (u.shape[-2], u.shape[-1]))
        r = pixel_errors(painted, u)  # r_a, then r_b
        r_a = r[: len(r) // 2].detach().mean()
        self.w.copy_(dual_step(self.w, r_a, self.config.margin, self.config.eta))

        y_swap = y[pair] if self.config.swap_label == "structure" else exchange(y[pair])
        terms = {
            "class": 4 * cross_entropy(self.classifier(f), y),  # of a, b, a⁺ and b⁺
            "constraint": 2 * relu(r - self.config.margin).mean(),
            "swap": 2 * cross_entropy(self.predict(self.swaps(x[pair])), y_swap),
        }
        loss = terms["class"] + self.w * terms["constraint"] + self.config.swap_weight * terms["swap"]
        descend((self.optimizer, self.optimizer_generator), loss)
        return {"loss": loss, **terms, "r": r_a, "w": self.w.clone()}

    @torch.no_grad()
    def swaps(self, x: Tensor) -> Tensor:
        """Compute x_ab, then x_ba of a pair x, by the snapshot, in input units."""
        generator = self.snapshot_generator
        f, s = encode_constant(self.snapshot_E_s, x), generator.E_v(self.range.to_unit(x))
        return self.range.from_unit(generator.Dec(s, exchange(f), (x.shape[-2], x.shape[-1])))

    def _n_pairs(self, batch: int) -> int:
        """Return images per domain in each of a and b, which share a batch."""
        return self.config.pairs or min(4, batch // 2)


def draw_pairs(sizes: list[int], n: int, device: torch.device) -> Tensor:
    """Draw indices (2·k·n,) into the concatenated batch: the first n samples of every domain are a, the last n are b.

    b is shuffled so that swaps cross domains.

    >>> draw_pairs([4, 4], 1, torch.device("cpu"))[:2].tolist()  # b is 3 and 7 in random order
    [0, 4]
    """
    ends = torch.tensor(sizes).cumsum(0)
    own = torch.arange(n)
    a = ((ends - torch.tensor(sizes))[:, None] + own).flatten()
    b = (ends[:, None] - 1 - own).flatten()
    return torch.cat([a, b[torch.randperm(len(b))]]).to(device, non_blocking=True)


def exchange(pair: Tensor) -> Tensor:
    """Exchange the halves a and b of a pair.

    >>> exchange(torch.tensor([1, 2, 3, 4])).tolist()
    [3, 4, 1, 2]
    """
    return pair.roll(len(pair) // 2, 0)


def positives(sizes: list[int], y: Tensor) -> Tensor:
    """Find, for every sample of the concatenated batch, the index of another one of its class.

    In batches of a `PairedSampler` it is the sample half a batch away, which is never the same image. In other batches
    it is a random other sample of the class in the domain, else in any domain, else the sample itself. Labels y are in
    the order of the batch, which has `sizes` samples of the domains.

    >>> positives([4, 3], torch.tensor([0, 1, 0, 1, 2, 3, 1])).tolist()[:6]
    [2, 3, 0, 1, 4, 5]
    """
    own = torch.arange(len(y), device=y.device)
    partner = torch.cat([half_away(of_domain) for of_domain in own.split(sizes)])
    domain = torch.cat([torch.full_like(of_domain, e) for e, of_domain in enumerate(own.split(sizes))])
    ticket = torch.rand(len(y), len(y), device=y.device) + (domain[:, None] == domain)
    ticket = ticket.masked_fill(y[:, None] != y, -2.0).fill_diagonal_(-1.0)
    return torch.where((y[partner] == y) & (partner != own), partner, ticket.argmax(1))


def half_away(samples: Tensor) -> Tensor:
    """Return the samples with their halves exchanged; with an odd number the middle one stays.

    >>> half_away(torch.arange(5)).tolist()
    [3, 4, 2, 0, 1]
    """
    half = len(samples) // 2
    return torch.cat([samples[len(samples) - half :], samples[half : len(samples) - half], samples[:half]])


def encode_constant(E_s: nn.Module, x: Tensor) -> Tensor:
    """Compute E_s(x) as a constant, in evaluation mode so that batch-norm statistics do not change either."""
    training = E_s.training
    E_s.eval()
    with torch.no_grad():
        f: Tensor = E_s(x)
    E_s.train(training)
    return f


def pixel_errors(painted: Tensor, u: Tensor) -> Tensor:
    """Compute the mean absolute error of each image (n,), in ImageNet-normalised pixels; both images are in [−1, 1].

    >>> round(pixel_errors(torch.ones(1, 3, 2, 2), -torch.ones(1, 3, 2, 2)).item(), 2)
    4.42
    """
    return PIXEL * (painted - u).abs().mean((1, 2, 3))


def dual_step(w: Tensor, r: Tensor, margin: float, eta: float) -> Tensor:
    """Update w ← clip(w + η·(r − γ), 0, 1): grows while the constraint r ≤ γ is violated, decays while it holds.

    >>> round(dual_step(torch.tensor(0.5), torch.tensor(1.25), margin=0.25, eta=0.01).item(), 6)
    0.51
    """
    return (w + eta * (r - margin)).clamp(0, 1)
