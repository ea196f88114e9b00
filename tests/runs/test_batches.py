"""Which batches a run draws: what its method declares reaches the sampler."""

from __future__ import annotations

from fgmix.data.sampling import PairedSampler, UniformSampler
from fgmix.runs.prepared import batch_source, prepare
from fgmix.runs.spec import RunSpec


def test_ddg_at_the_papers_size_gets_a_positive_that_is_another_image() -> None:
    """Eight images per domain: two a, two b and the four positives, which a search in the batch seldom found."""
    settings = {"pairs": 2}
    spec = RunSpec(dataset="digits", algorithm="ddg", test_domains=("photo",), settings=settings, batch_size=8)
    source = batch_source(prepare(spec, progress=False))
    assert isinstance(source.sampler, PairedSampler)
    for step in range(20):
        for indices, domain in zip(source.sampler.draw(step), source.domains, strict=True):
            assert (domain.y[indices[:4]] == domain.y[indices[4:]]).all()
            assert (indices[:4] != indices[4:]).all()


def test_other_methods_draw_as_before() -> None:
    spec = RunSpec(dataset="digits", algorithm="erm", test_domains=("photo",))
    assert isinstance(batch_source(prepare(spec, progress=False)).sampler, UniformSampler)
