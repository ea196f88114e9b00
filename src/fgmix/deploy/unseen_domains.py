"""What `DomainGeneralizer.leave_one_domain_out` returns."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from fgmix.deploy.estimate import Estimate
from fgmix.records.metrics import NAMES
from fgmix.results.unseen import worst_domain


@dataclass(frozen=True)
class UnseenDomains:
    """Metrics on each domain, of a model trained on the others; `print` shows a table.

    Args:
        accuracy: by domain id.
        estimate: the same with calibration and novelty.
    """

    accuracy: dict[Hashable, float]
    estimate: Estimate

    @property
    def mean(self) -> float:
        """Mean over the domains, of accuracy or of the estimator's metric."""
        return self.estimate.value

    @property
    def interval(self) -> tuple[float, float] | None:
        """95 % prediction interval for its value on one more domain; None with fewer than three domains."""
        return self.estimate.interval

    def __str__(self) -> str:
        width = max(len("held out"), *(len(d.domain) for d in self.estimate.domains))
        head = f"{'held out':{width}}    samples  majority  accuracy  balanced  macro F1  AUROC  in-domain"
        rows = []
        for d in self.estimate.domains:
            m = d.metrics
            shares = "  ".join(f"{v:8.1%}" for v in (m.majority, m.accuracy, m.balanced_accuracy, m.macro_f1))
            auroc = "    –" if m.auroc is None else f"{m.auroc:5.3f}"
            rows.append(f"{d.domain:{width}}  {m.samples:9d}  {shares}  {auroc}  {d.in_domain_accuracy:9.1%}")
        if self.interval is None:
            expected = "too few domains for an interval"
        else:
            expected = f"95 % prediction interval for one more domain: {self.interval[0]:.1%} to {self.interval[1]:.1%}"
        worst = worst_domain(self.estimate.metrics, self.estimate.metric)
        name = NAMES[self.estimate.metric]
        return "\n".join([head, *rows, f"mean {name} {self.mean:.1%}, worst {worst}; {expected}"])
