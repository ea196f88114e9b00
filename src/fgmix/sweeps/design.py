"""A sweep: datasets × algorithms × test domains × hyper-parameter samples × trials, the same list of runs every time.

Progress is stored only in the runs' own folders: a finished run has a record, a run in progress is locked, and a failed
run has an error.json. Start a sweep twice, kill it, add an algorithm: only what is missing runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations, product
from math import prod
from typing import Any

from fgmix.data import DomainDataset, depends_on_trial
from fgmix.errors import UserError, bad_value, unknown
from fgmix.records.schema import RunSpec
from fgmix.seeding import seed_hash
from fgmix.sweeps.search import Space, draw
from fgmix.training.prepare import load_dataset
from fgmix.training.resolve import notes_of, resolve
from fgmix.training.trunk import shared_trunks

Point = dict[str, Any]  # one combination of a grid's settings
MOST_RUNS = 1_000_000  # of a sweep: each is planned before the first is trained


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """The runs of a sweep.

    Args:
        datasets: names or paths.
        algorithms: registered names.
        test_domains: domains to hold out, of each dataset that has them; by default all domains of every dataset.
        pairs: also hold out every pair of domains, as required by leave-one-domain-out selection.
        trials: number of trials; trial t splits the domains with seed t.
        hparams: hyper-parameter samples per trial; sample 0 is the defaults.
        space: "domainbed" or "paper".
        common: fields of RunSpec that all runs share, such as steps or backbone. They override the searched fields
            (batch_size, dropout), as `settings` overrides searched settings.
        settings: settings of every algorithm that has them.
        grid: settings and their values; every combination is run, and reported separately.
    """

    datasets: tuple[str, ...]
    algorithms: tuple[str, ...]
    test_domains: tuple[str, ...] | None = None
    pairs: bool = False
    trials: int = 3
    hparams: int = 20
    space: Space = "domainbed"
    common: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    grid: dict[str, tuple[Any, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("trials", "hparams"):
            if getattr(self, name) < 1:
                raise bad_value(name, "a positive integer", getattr(self, name))
        if not self.datasets or not self.algorithms:
            raise UserError("Expected a dataset and an algorithm to sweep over. Found none. Name at least one of each.")
        sizes = map(len, (self.datasets, self.algorithms, *self.grid.values()))
        least = self.trials * self.hparams * prod(sizes)  # with one test domain
        if least > MOST_RUNS:
            raise UserError(
                f"Expected a sweep of {MOST_RUNS:,} runs at most. Found {least:,} or more. Make it smaller."
            )

    def runs(self) -> Iterator[tuple[RunSpec, DomainDataset]]:
        """Every run with its dataset, trial by trial, so that an interrupted sweep has complete trials."""
        seen: set[str] = set()
        for dataset in self.datasets:
            for trial_seed in range(self.trials):
                if trial_seed == 0 or depends_on_trial(dataset):
                    data = self._load(dataset, trial_seed)
                seen |= set(data.domain_names)
                for hparams_seed, held_out, algorithm, point in product(
                    range(self.hparams), self._held_out(data), self.algorithms, self.points()
                ):
                    yield self._run(dataset, data, algorithm, held_out, hparams_seed, trial_seed, point), data
        for name in self.test_domains or ():
            if name not in seen:
                raise unknown("test domain", name, seen)

    def points(self) -> list[Point]:
        """Every combination of the grid's values; without a grid, a single empty one."""
        return [dict(zip(self.grid, values)) for values in product(*self.grid.values())]

    def _load(self, dataset: str, trial_seed: int) -> DomainDataset:
        """The dataset of a trial; notes and progress are shown for the first trial only."""
        nothing_held_out = RunSpec(dataset=dataset, algorithm=self.algorithms[0], trial_seed=trial_seed, **self.common)
        return load_dataset(nothing_held_out, progress=trial_seed == 0)

    def _held_out(self, data: DomainDataset) -> list[tuple[str, ...]]:
        chosen = [name for name in data.domain_names if self.test_domains is None or name in self.test_domains]
        if not chosen:
            raise UserError(
                f"Expected a domain of {data.name} among the test domains {', '.join(self.test_domains or ())}. "
                f"Found none; it has {', '.join(data.domain_names)}."
            )
        singles = [(name,) for name in chosen]
        pairs = [pair for pair in combinations(data.domain_names, 2) if set(pair) & set(chosen)]
        return [*singles, *pairs] if self.pairs else [*singles]

    def _run(
        self,
        dataset: str,
        data: DomainDataset,
        algorithm: str,
        held_out: tuple[str, ...],
        hparams_seed: int,
        trial_seed: int,
        point: Point,
    ) -> RunSpec:
        from fgmix.algorithms import get

        # With a frozen backbone, the network for features is trained, whatever the backbone.
        frozen = self.common.get("frozen")
        kind, backbone = ("features", None) if frozen else (data.kind, self.common.get("backbone"))
        drawn = draw(algorithm, data.name, kind, hparams_seed, trial_seed, self.space, backbone)
        known = get(algorithm).Config.names()
        fixed = {name: value for name, value in {**self.settings, **point}.items() if name in known}
        spec = RunSpec(
            dataset=dataset,
            algorithm=algorithm,
            test_domains=held_out,
            settings={**drawn["settings"], **fixed},
            batch_size=drawn["batch_size"],
            dropout=drawn["dropout"],
            trial_seed=trial_seed,
            hparams_seed=hparams_seed,
            keep="best",  # all weights of twenty thousand runs would be terabytes
            # Independent of the algorithm: methods are compared with the same initial weights and batches.
            seed=seed_hash(data.name, held_out, hparams_seed, trial_seed),
        )
        return replace(spec, **self.common)


@dataclass(frozen=True)
class PlannedRun:
    """A run of a sweep.

    Args:
        name: of its folder.
        spec: the run.
        trunk: how many first steps it shares with other runs.
        notes: notes to print before it starts.
        log: trackers to log it to, see `fgmix.logs`.
    """

    name: str
    spec: RunSpec
    trunk: int = 0
    notes: tuple[str, ...] = ()
    log: tuple[str, ...] = ()


def plan(sweep: Sweep) -> list[PlannedRun]:
    """All runs of a sweep, each once."""
    return plan_all([sweep])[0]


def plan_all(sweeps: Sequence[Sweep]) -> list[list[PlannedRun]]:
    """The runs of each sweep; trunks are shared by the runs of all of them."""
    wanted = [{(run := resolve(spec, data)).name: (spec, run) for spec, data in sweep.runs()} for sweep in sweeps]
    trunks = shared_trunks({name: run for runs in wanted for name, (_, run) in runs.items()}.values())
    return [
        [PlannedRun(name, spec, trunks[name], tuple(notes_of(spec, run))) for name, (spec, run) in runs.items()]
        for runs in wanted
    ]
