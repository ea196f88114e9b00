"""ERM against its closed form."""

import torch

from algorithms.toys import linear_algorithm, toy_batches


def test_step_follows_the_closed_form_gradient() -> None:
    """∂L/∂W = mean (softmax − onehot) ⊗ x; Adam's first step is lr·g/(|g| + ε)."""
    erm = linear_algorithm("erm", lr=1e-2)
    batches = toy_batches(3, b=6, shape=(5,), classes=3)
    W, b = erm.classifier.weight.detach().clone(), erm.classifier.bias.detach().clone()
    x, y = torch.cat([x for x, _ in batches]), torch.cat([y for _, y in batches])

    delta = torch.softmax(x @ W.T + b, 1) - torch.eye(3)[y]
    g_W, g_b = delta.T @ x / len(x), delta.mean(0)
    expected_loss = -(torch.log_softmax(x @ W.T + b, 1)[torch.arange(len(y)), y]).mean()

    metrics = erm.step(batches)

    torch.testing.assert_close(metrics["loss"], expected_loss)
    torch.testing.assert_close(erm.classifier.weight, W - 1e-2 * g_W / (g_W.abs() + 1e-8))
    torch.testing.assert_close(erm.classifier.bias, b - 1e-2 * g_b / (g_b.abs() + 1e-8))


def test_permuting_domains_changes_nothing() -> None:
    batches = toy_batches(shape=(5,), classes=3)
    a, b = linear_algorithm("erm"), linear_algorithm("erm")
    torch.testing.assert_close(a.step(batches)["loss"], b.step(batches[::-1])["loss"])
    torch.testing.assert_close(a.classifier.weight, b.classifier.weight)
