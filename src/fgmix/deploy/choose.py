"""Choose the recipe of a model by leave-one-domain-out, within a budget of time.

With a_r(e | S) the metric on domain e of recipe r trained on the domains S, and all of them D:

    r*  = choice_r  (a_r(e | D − e))_{e in D}                 the recipe of the model
    r_d = choice_r  (a_r(e | D − e − d))_{e ≠ d}              the recipe that the other domains choose
    estimate = mean_d a_{r_d}(d | D − d)                      of this procedure: domain d has no part in choosing r_d

`choice` is the recipe with the highest mean (`choose_best` has an exception for networks), among those that were not
far behind (`Trials._race`). max_r mean_e a_r(e | D − e) is no estimate: it is too high, because chance selects,
too. So is one that only leaves out the score of domain d and keeps a_r(e | D − e), trained with d: domains that are
alike by chance then choose what suits them (tests/deploy/test_choose.py simulates all three). Varma and Simon, "Bias in
error estimation when using cross-validation for model selection", 2006, https://doi.org/10.1186/1471-2105-7-91.

r_d needs trainings without pairs of domains. Where only one domain is left to train on after that, or where the budget
is too short, r_d is the recipe with the best metric on the holdout parts of D − d: a weaker choice, as honest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import combinations
from statistics import fmean, stdev

from fgmix.deploy.candidate import Candidate, Fold
from fgmix.progress import Progress, format_duration
from fgmix.records.model import Trial

TRIED = 0.5  # share of the budget to try recipes; the rest is for trainings without pairs of domains
REACH = 0.1  # how far a recipe may be behind another one after the first domain
FEW = 9  # errors e of n samples: e / 3 exceeds its standard error, √e, from 9 on
CHEAP = 0.1  # seconds of a training
DEARER = 3.0  # times the cost of the recipe that it follows, or of all classifiers: one that takes longer is not tried

Values = dict[Candidate, list[float]]  # by candidate, the metric on the first domains


@dataclass
class Trials:
    """Trainings of the candidates on all domains but one, and on all but two.

    Args:
        candidates: what to try, in the order of preference.
        domains: names of the domains.
        samples: how many they have together.
        holdout: the share of them in the holdout parts.
        budget: seconds for all trainings; what earlier, interrupted calls spent on finished ones counts.
        progress: show a bar.
    """

    candidates: Sequence[Candidate]
    domains: Sequence[str]
    samples: int
    holdout: float
    budget: float
    progress: bool = True
    spent: float = 0.0  # seconds
    folds: dict[Candidate, dict[frozenset[str], Fold]] = field(default_factory=dict)  # by what was held out
    skipped: dict[Candidate, str] = field(default_factory=dict)  # why
    objections: dict[Candidate, str] = field(default_factory=dict)  # why a candidate was not worth while
    values: Values = field(default_factory=dict)  # on the domains
    nested: dict[str, Values] = field(default_factory=dict)  # without a domain
    is_nested: bool = False  # on the other domains, not on holdout samples of the domains trained on
    guesses: dict[Candidate, float] = field(init=False)  # seconds of a training

    def __post_init__(self) -> None:
        self.guesses = {each: each.guess_seconds() for each in self.candidates}

    def run(self) -> None:
        """Race the candidates on all domains, then without each domain on the others, if there is time for that.

        Classifiers come before networks, cheap before costly. A candidate that would exceed its share of the budget is
        skipped. Its cost is guessed before its first training, and taken from it after that; the first one is tried in
        any case.
        """
        k, guesses, order = len(self.domains), self.guesses, {}
        dearest = max(
            (guesses[each] for each in self.candidates if each.recipe.fit and not each.recipe.after), default=0
        )
        for each in self.candidates:
            parent = find_parent(each, self.candidates) or each
            order[each] = each.recipe.fit is None, guesses[parent], parent is not each, guesses[each]
            if guesses[each] > DEARER * guesses[parent]:
                self.skipped[each] = f"more than {DEARER:g} times as long as {parent.recipe.name}"
            elif parent is each and each.is_small_network and guesses[each] > DEARER * dearest > 0:
                self.skipped[each] = f"more than {DEARER:g} times as long as any classifier"
        racing = sorted((each for each in self.candidates if each not in self.skipped), key=order.__getitem__)
        with Progress("fit", len(racing) * k, "trainings", show=self.progress) as bar:

            def measure(each: Candidate, domain: str) -> float | None:
                bar.skip(k * racing.index(each) + self.domains.index(domain) - bar.done)
                done = self.folds.get(each, {})
                seconds = fmean(fold.seconds for fold in done.values()) if done else guesses[each]
                needed = seconds * (k + 2 - len(done) - bool(done))
                left = max(TRIED * self.budget - self.spent, 0)
                if each is not racing[0] and needed > left:
                    self.skipped[each] = f"{format_duration(needed)} needed, {format_duration(left)} left"
                    return None
                value = self._train(each, bar, domain).values[domain]
                bar.advance()
                return value

            self.values = self._race(racing, self.domains, measure, self.samples)
            bar.skip(k * len(racing) - bar.done)
        self._nest([each for each in racing if each in self.values and each not in self.skipped])

    def _nest(self, racing: Sequence[Candidate]) -> None:
        """Race what was tried without each domain on the others, each pair held out of training, if there is time.

        Otherwise it races by the metric on holdout samples of the other domains.
        """
        k, pairs = len(self.domains), list(combinations(self.domains, 2))
        able = [each for each in racing if each.min_domains <= k - 2]
        counts = {each: len(pairs) if len(values) == k else k for each, values in self.values.items() if each in able}
        cost = sum(n * fmean(fold.seconds for fold in self.folds[each].values()) for each, n in counts.items())
        self.is_nested = len(able) > 1 and self.spent + cost <= self.budget
        if self.is_nested:
            racing = able
        with Progress("choose", len(pairs) * len(racing), "trainings", show=self.progress and self.is_nested) as bar:

            def measure_pair(each: Candidate, other: str, domain: str) -> float:
                pair = [name for name in self.domains if name in (domain, other)]
                bar.advance(frozenset(pair) not in self.folds.get(each, {}))
                return self._train(each, bar, *pair).values[other]

            for i, domain in enumerate(self.domains):
                # Symmetric in i and j, so that both domains of a pair come to it early or late: what falls behind
                # after two of six domains has trained 7 pairs instead of 9.
                others = [self.domains[j] for j in sorted(range(k), key=lambda j: (i + j) % k) if j != i]
                if self.is_nested:
                    self.nested[domain] = self._race(racing, others, partial(measure_pair, domain=domain), self.samples)
                else:
                    self.nested[domain] = self._race(
                        racing,
                        [domain],
                        lambda each, name: self._train(each, bar, name).in_domain_value,
                        self.holdout * self.samples,
                    )
            bar.skip(bar.total - bar.done)

    def _race(
        self,
        candidates: Sequence[Candidate],
        domains: Sequence[str],
        measure: Callable[[Candidate, str], float | None],
        samples: float,
    ) -> Values:
        """Measure candidates one after the other on domains; `measure` returns None for one to be left out.

        One that is too far behind another one, on the domains that both were measured on, is not measured on the rest.
        Candidates `by_domain` do not compete with the rest, which can predict a sample alone, but the rest
        do with them.
        """
        values: Values = {}
        for each in candidates:
            rivals = {other: v for other, v in values.items() if other.by_domain <= each.by_domain}
            means = {other: fmean(v) for other, v in rivals.items() if len(v) == len(domains)}
            if means and (why := self._object(each, means, samples)):
                self.objections.setdefault(each, why)
                continue
            found: list[float] = []
            for number, domain in enumerate(domains, 1):
                if (value := measure(each, domain)) is None:
                    break
                values[each] = found
                found.append(value)
                ahead = {r: fmean(v[:number]) - fmean(found) for r, v in rivals.items() if len(v) >= number}
                if any(gap > _set_reach(each, rival, number) for rival, gap in ahead.items()):
                    break
        return values

    def _object(self, each: Candidate, means: Mapping[Candidate, float], samples: float) -> str:
        """Say why not to measure a candidate, from the means of others; empty if it is worth while.

        One that follows a recipe is, if that or another one that follows it is the best. One that is not cheap is, if
        the best makes errors enough: a third fewer than `FEW` would not be more than chance.
        """
        best = max(means, key=means.__getitem__)
        is_akin = best.by_domain == each.by_domain and each.recipe.after in (best.recipe.name, best.recipe.after)
        parent = find_parent(each, self.candidates)
        if parent and not is_akin:
            return f"{parent.recipe.name} is not the best"
        is_worth_while = self.guesses[each] < CHEAP or (1 - means[best]) * samples > FEW
        return "" if is_worth_while else "simpler ones make few errors"

    def _train(self, each: Candidate, bar: Progress, *held_out: str) -> Fold:
        """Train a candidate once; read the result after that."""
        folds, key = self.folds.setdefault(each, {}), frozenset(held_out)
        if key not in folds:
            bar.advance(0, f"{each.title} without {' and '.join(held_out)}")
            folds[key] = each.train(*held_out)
            self.spent += folds[key].seconds
        return folds[key]

    def choose(self, *, by_domain: bool = False) -> Candidate | None:
        """Choose a candidate, among those `by_domain` or the others; None if no such candidate kept up."""
        kept = [each for each in self.candidates if len(self.values.get(each, ())) == len(self.domains)]
        group = {each: self.values[each] for each in kept if each.by_domain is by_domain}
        return choose_best(group) if group else None

    def choose_without(self, domain: str, *, by_domain: bool = False) -> Candidate:
        """Return the candidate that the other domains choose; `domain` has no part in it."""
        found = self.nested[domain]
        values = {each: found[each] for each in self.candidates if each in found and each.by_domain is by_domain}
        if not values:  # they are not worth while among the others
            return next(each for each in self.candidates if each.by_domain is by_domain and each in self.values)
        longest = max(map(len, values.values()))
        return choose_best({each: v for each, v in values.items() if len(v) == longest})

    def describe(self) -> tuple[Trial, ...]:
        """List what was tried and skipped, for the record of the choice."""
        return tuple(map(self._describe, sorted(self.candidates, key=lambda each: each not in self.values)))

    def _describe(self, each: Candidate) -> Trial:
        values, why = self.values.get(each, []), self.skipped.get(each, "")
        if not why and not values:
            why = self.objections[each]
        elif not why and len(values) < len(self.domains):
            why = f"behind on {', '.join(list(self.domains)[: len(values)])}"
        return Trial(
            recipe=each.recipe.name,
            about=each.recipe.about,
            by_domain=each.by_domain,
            values={} if why else dict(zip(self.domains, values)),
            cpu_seconds=sum(fold.cpu_seconds for fold in self.folds.get(each, {}).values()),
            skipped=why,
        )


def _set_reach(candidate: Candidate, rival: Candidate, domains: int) -> float:
    """Set how far a candidate may be behind a rival after some domains: the more, the less.

    From the second domain on, a network may not be behind a classifier, because `choose_best` wants it to be ahead.
    """
    needs_lead = candidate.recipe.fit is None and rival.recipe.fit is not None
    return 0.0 if needs_lead and domains > 1 else REACH / domains


def find_parent(candidate: Candidate, others: Iterable[Candidate]) -> Candidate | None:
    """Find the candidate that another one follows."""
    after, by_domain = candidate.recipe.after, candidate.by_domain
    return next((each for each in others if (each.recipe.name, each.by_domain) == (after, by_domain)), None)


def choose_best(values: Mapping[Candidate, Sequence[float]]) -> Candidate:
    """Choose the candidate with the highest mean; a network only if it is more than a standard error above classifiers.

    The error is that of the mean of paired differences from the best classifier: a few domains often favour a network
    by chance, whose result also depends on its seed. With a single domain, the mean decides.
    """
    best = _find_best(values)
    fitted = {each: own for each, own in values.items() if each.recipe.fit}
    if not fitted or best in fitted:
        return best
    rival = _find_best(fitted)
    ahead = [b - r for b, r in zip(values[best], fitted[rival], strict=True)]
    error = stdev(ahead) / len(ahead) ** 0.5 if len(ahead) > 1 else 0.0
    return best if fmean(ahead) > error else rival


def _find_best(values: Mapping[Candidate, Sequence[float]]) -> Candidate:
    return max(values, key=lambda each: round(fmean(values[each]), 9))
