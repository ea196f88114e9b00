"""`fgmix soup`: combine several finished runs into one model, by the mean of their weights or of their logits.

    uniform     θ̄ = mean of all θ_i
    greedy      runs in the order of their validation accuracy (or other metric); each is added if that of the mean does
                not fall
    ensemble    o(x) = mean of h_i(g_i(x))

Ramé et al., "Diverse Weight Averaging for Out-of-Distribution Generalization" (DiWA), 2022,
https://arxiv.org/abs/2205.09739; Wortsman et al., "Model Soups", 2022, https://arxiv.org/abs/2203.05482; Arpit et al.,
"Ensemble of Averages" (EoA), 2022, https://arxiv.org/abs/2110.10832, whose members are averaged models.

Weights can be averaged only if the runs started from the same initial weights; logits need only the same network.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import get_args

import torch
from torch import Tensor

import fgmix
from fgmix.algorithms import Algorithm
from fgmix.data import DomainDataset
from fgmix.deploy.card import write_card
from fgmix.deploy.composition import Composition, Kind
from fgmix.deploy.fit import counts_of, date_of, dtype_of
from fgmix.deploy.hold_out import familiar_to
from fgmix.deploy.info import ModelInfo
from fgmix.deploy.model import Model, load_model
from fgmix.deploy.network import Ensemble, Network
from fgmix.deploy.soup_runs import check_alike, common_weights, find_runs
from fgmix.errors import UserError, bad_value, unknown
from fgmix.progress import Progress
from fgmix.records.files import checked_path, make_folder
from fgmix.records.metrics import Metric
from fgmix.records.schema import RECORD, Evaluation, ResolvedSpec, RunRecord, printed, selected_weights
from fgmix.records.schema import Model as Weights
from fgmix.training.averaging import Mean, predictor_tensors
from fgmix.training.evaluate import Predict, Score, Subset, bind_weights, score_subsets
from fgmix.training.open_run import OpenedRun, open_run
from fgmix.training.prepare import frozen_backbone, load_dataset

Tensors = dict[str, Tensor]


def soup(
    runs: Sequence[str | Path],
    out: str | Path,
    *,
    kind: Kind = "uniform",
    weights: Weights | None = None,
    algorithm: str | None = None,
    test_domains: Sequence[str] = (),
    trial_seed: int | None = None,
    dataset: DomainDataset | str | None = None,
    data_root: str | None = None,
    device: str = "auto",
    progress: bool = True,
) -> Model:
    """Combine finished runs into a model, evaluate it on the domains that they held out, and save it.

    Args:
        runs: folders of runs, or folders that contain them.
        out: the model's folder, new or empty; also contains a record, for `fgmix report`.
        kind: "uniform" or "greedy", which average weights, or "ensemble".
        weights: "raw", "swa" or "swad"; None for the average if all runs have one, else raw.
        algorithm: only runs of this method; None for all.
        test_domains: only runs that hold out exactly these domains; all runs if empty.
        trial_seed: only runs of this trial; None for all.
        dataset: the dataset or its path; None for the path in the runs.
        data_root: the folder of the datasets, if it has moved.
        device: as in `fgmix.train`.
        progress: show a bar.
    """
    if kind not in get_args(Kind):
        raise unknown("kind of soup", str(kind), get_args(Kind))
    out = checked_path("out", out)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UserError(f"Expected a new or an empty folder at {out}. Found something there. Choose another --out.")
    wanted = {"algorithm": algorithm, "test_domains": tuple(test_domains) or None, "trial_seed": trial_seed}
    records = find_runs(runs, **{name: value for name, value in wanted.items() if value is not None})
    chosen = common_weights(records, weights)
    check_alike(records, kind)
    data = _loaded(records[0], dataset, data_root, progress)
    first = open_run(_folder(records[0]), dataset=data, device=device, progress=progress)
    pot = _Pot(first, data, {record.spec.name: record for record in records}, chosen)
    made = {"uniform": _uniform, "greedy": _greedy, "ensemble": _ensemble}[kind](pot, progress)
    model, record = _model(pot, made, kind)
    make_folder(out)
    model.write(out)
    write_card(out, model.info)
    record.write(out / RECORD)
    return load_model(out, device)


@dataclass(frozen=True)
class _Pot:
    """The runs of a soup. Only the first is opened: all have the same data.

    Args:
        first: the first run.
        data: the dataset as it was loaded, not standardised.
        records: of all runs, by name.
        weights: which weights of each run.
    """

    first: OpenedRun
    data: DomainDataset
    records: Mapping[str, RunRecord]
    weights: Weights

    @property
    def metric(self) -> Metric:
        """What all runs are selected by."""
        return self.first.record.spec.metric

    @property
    def methods(self) -> tuple[str, ...]:
        """Labels of the runs' methods, sorted."""
        return tuple(sorted({record.label for record in self.records.values()}))

    def algorithm(self, name: str) -> Algorithm:
        """A run's method with its weights, in evaluation mode."""
        record = self.records[name]
        prepared = replace(self.first.prepared, spec=record.spec)
        run = replace(self.first, record=record, folder=_folder(record), prepared=prepared)
        return run.algorithm(selected_weights(self.weights), self.weights)

    def tensors(self, name: str) -> Tensors:
        """Tensors of a run's network; UserError if the network differs from that of the first run."""
        own, first = self.algorithm(name), self.algorithm(next(iter(self.records)))
        found, expected = predictor_tensors(own), predictor_tensors(first)
        if {key: t.shape for key, t in found.items()} != {key: t.shape for key, t in expected.items()}:
            raise UserError(
                f"Expected runs whose networks have the same tensors. Found others in {name}. Use runs of one method "
                "and one backbone."
            )
        if not self._alike(own.predict, bind_weights(first, found)):
            raise UserError(
                "Expected runs whose networks compute the same with the same weights. Found another network in "
                f"{name}, by a setting such as URM's `activation`. Use runs with the same one."
            )
        return found

    @torch.inference_mode()
    def _alike(self, one: Predict, other: Predict) -> bool:
        """Whether two networks give the same logits for noise."""
        noise = torch.randn(4, *self.first.prepared.dataset.input_shape, generator=torch.Generator().manual_seed(0))
        x = noise.to(self.first.device)
        return torch.allclose(one(x), other(x), rtol=1e-3, atol=1e-4)

    def validation(self, name: str) -> float:
        """Validation accuracy (or other metric of the run) of a run's own weights."""
        record = self.records[name]
        return record.selected(self.weights).validation(record.sources, self.weights)

    def scores(self, predict: Predict, *, unseen: bool = False) -> dict[tuple[str, str], Score]:
        """Scores by domain and part: holdouts of the sources, with `unseen` also both parts of the test domains."""
        run = self.first
        keys = [(name, "holdout") for name in run.sources]
        keys += [(name, part) for name in run.test_domains for part in ("train", "holdout") if unseen]
        dataset, splits = run.prepared.dataset, run.prepared.splits
        parts = [
            Subset(dataset.domains[dataset.index(name)], getattr(splits[name], part), outputs=part == "train")
            for name, part in keys
        ]
        with torch.inference_mode():
            found = score_subsets({"raw": predict}, parts, run.device, len(dataset.classes))["raw"]
        return dict(zip(keys, found, strict=True))


@dataclass(frozen=True)
class _Made:
    """A model of several runs.

    Args:
        networks: the algorithms with its weights: one, or the members of an ensemble.
        predict: function that returns its logits.
        runs: names of the runs used.
    """

    networks: Sequence[Algorithm]
    predict: Predict
    runs: Sequence[str]


def _uniform(pot: _Pot, progress: bool) -> _Made:
    names = list(pot.records)
    with Progress("soup", len(names), show=progress) as bar:
        return _averaged(pot, mean_of(_tick(pot.tensors(name), bar) for name in names), names)


def _greedy(pot: _Pot, progress: bool) -> _Made:
    """Wortsman et al.'s recipe 1."""
    ordered = sorted(pot.records, key=lambda name: -pot.validation(name))
    base = pot.algorithm(ordered[0])
    used: list[str] = []
    mean, best = Mean(predictor_tensors(base)), -1.0
    with Progress("soup", len(ordered), show=progress) as bar:
        for name in ordered:
            candidate = Mean(mean.tensors, mean.count if used else 0)
            candidate.add(pot.tensors(name))
            scores = pot.scores(bind_weights(base, candidate.tensors))
            value = fmean(score.counts.value(pot.metric) for score in scores.values())
            if value >= best:
                used, mean, best = [*used, name], candidate, value
            bar.advance()
    return _averaged(pot, mean.tensors, used)


def _averaged(pot: _Pot, tensors: Tensors, runs: Sequence[str]) -> _Made:
    algorithm = pot.algorithm(runs[0])
    with torch.no_grad():
        for name, tensor in predictor_tensors(algorithm).items():
            tensor.copy_(tensors[name])
    return _Made([algorithm], algorithm.predict, runs)


def _ensemble(pot: _Pot, progress: bool) -> _Made:
    names = list(pot.records)
    with Progress("ensemble", len(names), show=progress) as bar:
        members = []
        for name in names:
            pot.tensors(name)  # raises an error for a different network
            members.append(pot.algorithm(name))
            bar.advance()
    return _Made(members, lambda x: torch.stack([m.predict(x) for m in members]).mean(0), names)


def mean_of(weights: Iterable[Tensors]) -> Tensors:
    """The mean of several networks' tensors; integers, such as counters of batch-norm, are those of the last network.

    >>> mean_of({"w": torch.tensor([value])} for value in (1.0, 2.0, 6.0))
    {'w': tensor([3.])}
    """
    mean: Mean | None = None
    for tensors in weights:
        mean = mean or Mean(tensors)
        mean.add(tensors)
    if mean is None:
        raise bad_value("weights", "those of at least one network", [])
    return mean.tensors


def _tick(tensors: Tensors, bar: Progress) -> Tensors:
    bar.advance()
    return tensors


def _model(pot: _Pot, made: _Made, kind: Kind) -> tuple[Model, RunRecord]:
    """The model with its evaluation, and its record."""
    run, tests = pot.first, pot.first.test_domains
    scores = pot.scores(made.predict, unseen=True)
    composition = Composition(
        kind=kind,
        weights=pot.weights,
        runs=tuple(made.runs),
        left_out=tuple(name for name in pot.records if name not in made.runs),
        validation={name: pot.validation(name) for name in pot.records},
        unseen={name: _whole_accuracy(scores[name, "train"], scores[name, "holdout"]) for name in tests},
        methods=pot.methods,
        metric=pot.metric,
    )
    spec = _in_tables(pot.records[made.runs[0]].spec, composition)
    dataset = pot.data
    info = ModelInfo(
        spec=spec,
        run=spec.name,
        dataset=dataset.name,
        data_fingerprint=dataset.fingerprint,
        kind=dataset.kind,
        input_shape=dataset.input_shape,
        dtype=dtype_of(dataset),
        classes=dataset.classes,
        domains=run.sources,
        min_confidence=(None,) * len(dataset.classes),  # not calibrated without held-out domains
        estimate=None,
        in_domain_accuracy=sum(scores[name, "holdout"].accuracy for name in run.sources) / len(run.sources),
        notes=dataset.notes,
        fgmix_version=fgmix.__version__,
        composition=composition,
        date=date_of(run),
        counts=counts_of(replace(dataset, domains=tuple(d for d in dataset.domains if d.name in run.sources))),
        weights_matched=run.record.weights_matched,
    )
    networks = [_network(run, algorithm) for algorithm in made.networks]
    network = Ensemble(networks) if kind == "ensemble" else networks[0]
    return Model(info, network.eval()), _record(pot, scores, composition)


def _in_tables(spec: ResolvedSpec, composition: Composition) -> ResolvedSpec:
    """A run's spec as the model's: hyper-parameter sample 0 of an arm named after the composition."""
    return replace(spec, arm=composition.title, hparams_seed=0)


def _network(run: OpenedRun, algorithm: Algorithm) -> Network:
    """A network for deployment, not calibrated (T = 1)."""
    spec = run.record.spec
    backbone = frozen_backbone(spec).to(run.device) if spec.frozen else None
    familiar = familiar_to(run, algorithm)
    return Network(algorithm.featurizer, algorithm.classifier, 1.0, familiar, run.prepared.standard, backbone)


def _record(pot: _Pot, scores: Mapping[tuple[str, str], Score], composition: Composition) -> RunRecord:
    """A record for reports: an arm of the runs' method, with one evaluation."""
    run = pot.first
    # Of several methods the first by name: the row should not depend on the validation of a test domain's runs.
    first = min(pot.records.values(), key=lambda record: record.spec.algorithm)
    spec = _in_tables(first.spec, composition)
    accuracy: dict[str, dict[str, float]] = {}
    loss: dict[str, dict[str, float]] = {}
    for (name, part), score in scores.items():
        accuracy.setdefault(name, {})[part] = score.accuracy
        loss.setdefault(name, {})[part] = score.loss
    return RunRecord(
        spec=spec,
        status="done",
        fgmix_version=fgmix.__version__,
        label=printed(pot.methods[0] if len(pot.methods) == 1 else "Several methods", pot.weights),
        domains=run.record.domains,
        classes=run.prepared.dataset.classes,
        notes=(*run.record.notes, *composition.sentences()),
        evaluations=(Evaluation(spec.steps, {"raw": accuracy}, {"raw": loss}, {}),),
    )


def _whole_accuracy(*parts: Score) -> float:
    """Accuracy on several parts of a domain together."""
    samples = [float(score.counts.labelled.sum()) for score in parts]
    return sum(score.accuracy * n for score, n in zip(parts, samples)) / sum(samples)


def _loaded(
    record: RunRecord, dataset: DomainDataset | str | None, data_root: str | None, progress: bool
) -> DomainDataset:
    if isinstance(dataset, DomainDataset):
        return dataset
    spec = record.spec
    place = replace(spec, dataset=dataset or spec.dataset, data_root=data_root or spec.data_root)
    return load_dataset(place, progress=progress)


def _folder(record: RunRecord) -> Path:
    if record.folder is None:
        raise AssertionError("a record that was read from a folder has it")
    return record.folder
