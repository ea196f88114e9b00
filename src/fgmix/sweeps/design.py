"""A sweep: datasets × algorithms × test domains × hyper-parameter samples × trials, the same list of runs every time.

Progress is stored only in the runs' own folders: a finished run has a record, a run in progress is locked, and a failed
run has an error.json. Start a sweep twice, kill it, add an algorithm: only what is missing runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, product
from math import prod
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any

from msgspec import structs

from fgmix.algorithms import get
from fgmix.data import DomainDataset, depends_on_trial
from fgmix.errors import UserError, bad_value, unknown
from fgmix.records.files import check_path
from fgmix.records.protocols import PROTOCOLS
from fgmix.records.schema import RunRecord, RunSpec
from fgmix.seeding import seed_hash
from fgmix.sweeps.search import Space, sample_hparams
from fgmix.training.prepare import load_dataset
from fgmix.training.resolve import list_notes, resolve
from fgmix.training.trunk import find_shared_trunks

if TYPE_CHECKING:
    from fgmix.sweeps.execute import SweepResult
    from fgmix.sweeps.plan import SweepCosts

Setting = bool | int | float | str | None
MAX_RUNS = 1_000_000  # of a sweep: each is planned before the first is trained


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """A sweep over datasets, algorithms, test domains, hyper-parameter samples and trials.

    Args:
        datasets: names or paths; one or several.
        algorithms: registered names; one or several.
        test_domains: domains to hold out, of each dataset that has them; by default all domains of every dataset.
        pairs: also hold out every pair of domains, as required by leave-one-domain-out selection.
        single_source: train on each domain alone and test on all others, instead of holding out domains in turn.
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
    single_source: bool = False
    trials: int = 3
    hparams: int = 20
    space: Space = "domainbed"
    common: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Setting] = field(default_factory=dict)
    grid: dict[str, tuple[Setting, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("datasets", "algorithms", "test_domains"):
            object.__setattr__(self, name, _list_names(name, getattr(self, name)))
        for name in ("trials", "hparams"):
            if getattr(self, name) < 1:
                raise bad_value(name, "a positive integer", getattr(self, name))
        if not self.datasets or not self.algorithms:
            raise UserError("Expected a dataset and an algorithm to sweep over. Found none. Name at least one of each.")
        if self.single_source and (self.pairs or self.test_domains is not None):
            raise UserError("Expected `single_source`, or `pairs` and `test_domains`. Found both. Leave one out.")
        sizes = map(len, (self.datasets, self.algorithms, *self.grid.values()))
        least = self.trials * self.hparams * prod(sizes)  # with one test domain
        if least > MAX_RUNS:
            raise UserError(f"Expected a sweep of {MAX_RUNS:,} runs at most. Found {least:,} or more. Make it smaller.")

    def run(
        self,
        out: str | PathLike[str],
        *,
        launcher: str = "local",
        workers: int | None = None,
        device: str = "auto",
        runs_per_gpu: int = 1,
        cpus: int = 1,
        gpus: float | None = None,
        address: str = "",
        slurm: Mapping[str, Any] | None = None,
        retry_failed: bool = False,
        accept_code: bool = False,
        finished: Iterable[RunRecord] = (),
        log: Sequence[str] = (),
        progress: bool = True,
    ) -> SweepResult:
        """Train the runs that are missing in a folder, as `fgmix sweep` does. Call it again to resume.

        A script that registers methods or datasets of its own must guard the call by `if __name__ == "__main__":`, so
        that worker processes can import it. What is in another file is imported by `fgmix.load_plugin`, here and there.

        Args:
            out: folder of the runs.
            launcher: where runs are executed: "local", "ray" or "slurm".
            workers: processes (local; one per GPU by default) or jobs (slurm).
            device: "auto", "cpu", or devices to share, such as "cuda:0,cuda:1".
            runs_per_gpu: runs that share a GPU (local, slurm).
            cpus: cores per run (ray, slurm).
            gpus: GPUs per run (ray; fractions share one) or per job (slurm).
            address: address of a Ray cluster; without one, a cluster is started here.
            slurm: options of Slurm, such as {"partition": "gpu"}.
            retry_failed: rerun runs that failed before.
            accept_code: treat runs of other code of their method as equal.
            finished: runs made elsewhere, such as `read_runs("study.records.xz")`, not to train again.
            log: trackers, such as ["tensorboard"].
            progress: show a progress bar.
        """
        from fgmix.sweeps.execute import run_sweeps
        from fgmix.sweeps.launchers import make_launch

        where: dict[str, Any] = {"workers": workers, "device": device, "runs_per_gpu": runs_per_gpu, "cpus": cpus}
        launch = make_launch(launcher, gpus=gpus, address=address, slurm=slurm or {}, **where)
        how: dict[str, Any] = {"retry_failed": retry_failed, "accept_code": accept_code, "finished": finished}
        return run_sweeps(self._check(), check_path("out", out), launch, log=log, progress=progress, **how)

    def estimate(self, *, workers: int = 1, device: str = "auto") -> SweepCosts:
        """Estimate the time and the space of every run by a calibration of a few steps, as `fgmix plan` does."""
        from fgmix.sweeps.plan import estimate_costs

        return estimate_costs(self._check(), device=device, workers=workers)

    def _check(self) -> tuple[Sweep, ...]:
        """Check options and settings, which methods declare, before any run starts."""
        from fgmix.sweeps.presets import change_sweeps

        return change_sweeps((self,), common=self.common, settings=self.settings, grid=self.grid)

    def generate_specs(self) -> Iterator[tuple[RunSpec, DomainDataset]]:
        """Generate every run with its dataset, trial by trial, so that an interrupted sweep has complete trials."""
        seen: set[str] = set()
        known: dict[str, tuple[str, str]] = {}  # path and fingerprint of the data of each name
        for dataset in self.datasets:
            for trial_seed in range(self.trials):
                if trial_seed == 0 or depends_on_trial(dataset):
                    data = self._load(dataset, trial_seed)
                other, fingerprint = known.setdefault(data.name, (dataset, data.fingerprint))
                if other != dataset and fingerprint != data.fingerprint:
                    raise UserError(
                        f"Expected datasets of different names, which tables print. Found `{data.name}` at {other} and "
                        f"{dataset}. Rename one of them."
                    )
                seen |= set(data.domain_names)
                for hparams_seed, test_domains, algorithm, point in product(
                    range(self.hparams), self._list_test_domains(data), self.algorithms, self.list_points()
                ):
                    if hparams_seed and not get(algorithm).trains:
                        continue  # all samples would be equal
                    spec = self._build_spec(data, algorithm, test_domains, hparams_seed, trial_seed, point)
                    yield structs.replace(spec, dataset=dataset, **self.common), data
        for name in self.test_domains or ():
            if name not in seen:
                raise unknown("test domain", name, seen)

    def list_points(self) -> list[dict[str, Setting]]:
        """List every combination of the grid's values; without a grid, a single empty one."""
        return [dict(zip(self.grid, values)) for values in product(*self.grid.values())]

    def _load(self, dataset: str, trial_seed: int) -> DomainDataset:
        """Load the dataset of a trial; notes and progress are shown for the first trial only."""
        nothing_held_out = RunSpec(dataset=dataset, algorithm=self.algorithms[0], trial_seed=trial_seed, **self.common)
        return load_dataset(nothing_held_out, progress=trial_seed == 0)

    def _list_test_domains(self, data: DomainDataset) -> list[tuple[str, ...]]:
        chosen = [name for name in data.domain_names if self.test_domains is None or name in self.test_domains]
        if not chosen:
            raise UserError(
                f"Expected a domain of {data.name} among the test domains {', '.join(self.test_domains or ())}. "
                f"Found none; it has {', '.join(data.domain_names)}."
            )
        if self.single_source:
            return [tuple(name for name in data.domain_names if name != source) for source in data.domain_names]
        singles = [(name,) for name in chosen]
        pairs = [pair for pair in combinations(data.domain_names, 2) if set(pair) & set(chosen)]
        return [*singles, *pairs] if self.pairs else [*singles]

    def _build_spec(
        self,
        data: DomainDataset,
        algorithm: str,
        test_domains: tuple[str, ...],
        hparams_seed: int,
        trial_seed: int,
        point: dict[str, Setting],
    ) -> RunSpec:
        # With a frozen backbone, the network for features is trained, whatever the backbone.
        frozen = self.common.get("frozen")
        kind = "features" if frozen else data.kind
        rules = PROTOCOLS[self.common.get("protocol", "clean")]
        named = self.common.get("backbone") or rules.backbone
        backbone = None if frozen or self.common.get("lora") else named  # as in `resolve`
        sample = sample_hparams(algorithm, data.name, kind, hparams_seed, trial_seed, self.space, backbone)
        if hparams_seed == 0:  # the defaults: those of the protocol
            sample["settings"] |= {name: value for name, value in rules.optimizer.items() if name in sample["settings"]}
        accepted = get(algorithm).Config.names()
        fixed = {name: value for name, value in {**self.settings, **point}.items() if name in accepted}
        return RunSpec(
            dataset=data.name,
            algorithm=algorithm,
            test_domains=test_domains,
            settings={**sample["settings"], **fixed},
            batch_size=sample["batch_size"],
            dropout=sample["dropout"],
            trial_seed=trial_seed,
            hparams_seed=hparams_seed,
            keep="best",  # all weights of twenty thousand runs would be terabytes
            # Independent of the algorithm: algorithms are compared with the same initial weights and batches.
            seed=seed_hash(data.name, test_domains, hparams_seed, trial_seed),
        )


def _list_names(what: str, names: Any) -> tuple[str, ...] | None:
    """List one name or several; a path is a name, too."""
    several = names if isinstance(names, list | tuple) else [names]
    if not all(isinstance(name, str | PathLike) for name in several) and names is not None:
        raise bad_value(what, "a name or several", names)
    return None if names is None else tuple(map(fspath, several))


@dataclass(frozen=True)
class PlannedRun:
    """A run of a sweep."""

    name: str  # of its folder
    spec: RunSpec
    trunk: int = 0  # how many first steps it shares with other runs
    notes: tuple[str, ...] = ()  # to print before it starts
    log: tuple[str, ...] = ()  # trackers to log it to, see `fgmix.logs`
    accept_code: bool = False  # whether to resume it with other code of its method
    plugins: tuple[str, ...] = ()  # files that its worker imports first


def plan(sweep: Sweep) -> list[PlannedRun]:
    """Plan all runs of a sweep, each once."""
    return plan_all([sweep])[0]


def plan_all(sweeps: Sequence[Sweep]) -> list[list[PlannedRun]]:
    """Plan the runs of each sweep; trunks are shared by the runs of all of them."""
    plans = [
        {(run := resolve(spec, data)).name: (spec, run) for spec, data in sweep.generate_specs()} for sweep in sweeps
    ]
    trunks = find_shared_trunks({name: run for runs in plans for name, (_, run) in runs.items()}.values())
    return [
        [PlannedRun(name, spec, trunks[name], tuple(list_notes(spec, run))) for name, (spec, run) in runs.items()]
        for runs in plans
    ]
