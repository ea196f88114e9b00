"""Seeds: the draws of torch's own functions, and that seeding leaves nothing behind."""

import torch

from fgmix.seeding import seed_torch


def test_the_global_draws_are_those_of_the_key():
    seed_torch("step", 1, 2)
    first = torch.rand(3)
    torch.rand(5)
    seed_torch("step", 1, 2)
    assert torch.equal(torch.rand(3), first)
    seed_torch("step", 1, 3)
    assert not torch.equal(torch.rand(3), first)


def test_draws_are_those_of_manual_seed():
    seed_torch("init", 0)
    seed = torch.initial_seed()
    drawn = torch.rand(4)
    torch.manual_seed(seed)
    assert torch.equal(torch.rand(4), drawn)


def test_no_call_is_kept_for_accelerators_that_are_not_used():
    kept = len(torch.cuda._queued_calls)
    seed_torch("step", 0, 0)
    assert len(torch.cuda._queued_calls) == kept
