import torch
from torch import Tensor

from fgmix.algorithms import Algorithm, Batches, descend_along, register
from fgmix.functional.gradients import domain_gradients


@register("pcgrad")
class PCGrad(Algorithm):
    """Gradient surgery: project each domain's gradient onto the normal plane of every gradient it conflicts with.

        v_i ← g_i;   for j ≠ i in a new random order:   if v_i·g_j < 0:   v_i ← v_i − (v_i·g_j / ‖g_j‖²) g_j
        ∇ = mean_i v_i

    with g_e = ∂L_e/∂θ the gradient of domain e's mean cross-entropy in all parameters θ, as one vector. Projections use
    the original g_j, never the projected v_j. It has no settings of its own.

    With v_i = Σ_j C_ij g_j, the projections are computed on the k×k matrices C and G_ij = g_i·g_j, and the gradients
    are read only for G and for the result ∇ = Σ_j (mean_i C_ij) g_j.

    Yu et al., "Gradient Surgery for Multi-Task Learning", 2020, algorithm 1, https://arxiv.org/abs/2001.06782.
    Variant: the tasks are the domains, and the mean of the v_i replaces the paper's sum, so that without conflicts the
    step is that of the mean loss.
    """

    label = "PCGrad"
    family = "gradient"
    cost = 1.0
    min_domains = 2
    targets = "weighted"

    def update(self, batches: Batches) -> dict[str, Tensor]:
        theta = [p for p in self.parameters() if p.requires_grad]
        L, g = domain_gradients(self.predict, batches, theta)
        G = gram(g)
        w = surgery(G, random_orders(len(g))).mean(0)  # (k,), stays on the device
        descend_along(self.optimizer, theta, weighted_sum_(g, w))
        return {"loss": L.mean(), "conflicts": conflicts(G)}


def gram(g: list[list[Tensor]]) -> Tensor:
    """Compute G_ij = g_i·g_j (k, k), summed over all parameter tensors.

    >>> gram([[torch.tensor([1.0, 2.0])], [torch.tensor([0.0, 1.0])]]).tolist()
    [[5.0, 2.0], [2.0, 1.0]]
    """
    k = len(g)
    G = g[0][0].new_zeros(k, k)
    for i in range(k):
        for j in range(i + 1):
            # Products per tensor: concatenating each domain's gradients would copy them all.
            products = [torch.dot(*in_memory_order(a, b)) for a, b in zip(g[i], g[j])]
            G[i, j] = G[j, i] = torch.stack(products).sum()
    return G


def weighted_sum_(g: list[list[Tensor]], w: Tensor) -> list[Tensor]:
    """Compute Σ_j w_j g_j for each parameter tensor, in the memory of g[0].

    >>> g = [[torch.tensor([1.0, 2.0])], [torch.tensor([0.0, 1.0])]]
    >>> weighted_sum_(g, torch.tensor([2.0, 3.0]))[0].tolist()
    [2.0, 7.0]
    """
    for total, *others in zip(*g):
        total.mul_(w[0])
        for g_j, w_j in zip(others, w[1:]):
            total.addcmul_(g_j, w_j)
    return g[0]


def in_memory_order(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Return two tensors of the same shape as vectors, with corresponding entries at the same index.

    `flatten` copies channels-last tensors (100 ms for all of ResNet-18's); two of the same layout are read in memory
    order instead.

    >>> a = torch.arange(4.0).view(1, 2, 1, 2).contiguous(memory_format=torch.channels_last)
    >>> in_memory_order(a, a)[0].tolist()
    [0.0, 2.0, 1.0, 3.0]
    """
    if a.dim() == 4 and a.stride() == b.stride() and a.is_contiguous(memory_format=torch.channels_last):
        return a.permute(0, 2, 3, 1).flatten(), b.permute(0, 2, 3, 1).flatten()
    return a.flatten(), b.flatten()


def random_orders(k: int) -> Tensor:
    """Draw for each domain the others in random order, (k, k − 1).

    >>> random_orders(2).tolist()
    [[1], [0]]
    """
    return torch.rand(k, k).fill_diagonal_(2.0).argsort(1)[:, :-1]  # i itself is last in row i, and dropped


def surgery(G: Tensor, orders: Tensor) -> Tensor:
    """Return coefficients C (k, k) of the projected gradients v_i = Σ_j C_ij g_j.

    G_ij = g_i·g_j are the products of the domains' gradients. Row i of `orders` (k, k − 1) lists the domains j ≠ i in
    the order in which v_i is compared with them.

    >>> G = torch.tensor([[1.0, -1.0], [-1.0, 2.0]])  # g_1 = (1, 0), g_2 = (−1, 1)
    >>> surgery(G, torch.tensor([[1], [0]])).tolist()  # v_1 = g_1 + g_2 / 2, v_2 = g_2 + g_1
    [[1.0, 0.5], [1.0, 1.0]]
    """
    C = torch.eye(len(G), dtype=G.dtype, device=G.device)
    rows = torch.arange(len(G), device=G.device)
    smallest = torch.finfo(G.dtype).tiny  # a zero gradient has zero products: nothing to remove
    for j in orders.to(G.device, non_blocking=True).T:  # v_i is compared with the gradient of domain j[i]
        products = (C * G[j]).sum(1)  # v_i·g_j
        C[rows, j] -= products.clamp(max=0) / G[j, j].clamp(min=smallest)
    return C


def conflicts(G: Tensor) -> Tensor:
    """Compute the share of ordered pairs i ≠ j with g_i·g_j < 0."""
    k = len(G)
    return (G < 0).sum() / (k * (k - 1))
