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

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import get_args

import torch
from msgspec import structs

import fgmix
from fgmix.algorithms import Algorithm
from fgmix.data import DomainDataset
from fgmix.deploy.card import CARD, write_card
from fgmix.deploy.fit import build_network, check_own_files, describe
from fgmix.deploy.model import WEIGHTS, Model, load_model
from fgmix.deploy.network import Ensemble
from fgmix.errors import UserError, unknown
from fgmix.progress import Progress
from fgmix.records import evaluations
from fgmix.records.evaluations import Evaluation
from fgmix.records.files import checked_path, make_folder, remove_temporaries
from fgmix.records.locks import hold_lock
from fgmix.records.model import INFO, Combination, Composition, read_info
from fgmix.records.rows import label_model
from fgmix.records.schema import RunRecord, selected_weights
from fgmix.records.store import RECORD, read_record, write_record
from fgmix.training.averaging import Mean, get_predictor_tensors
from fgmix.training.evaluate import Predict, Score, Subset, bind_weights, score_subsets
from fgmix.training.open_run import OpenedRun, open_run

OWN = (INFO, CARD, RECORD, WEIGHTS, ".lock", ".*.tmp*")  # patterns of the files in a soup's folder

# What to do if runs differ in these fields of their specs. Only averages of weights need the same start.
_SPLIT = "Use runs on the same data and split: samples that one is trained on must not judge another"
_NETWORK = "Use runs with one backbone and head"
_METRIC = "Use runs that are selected by one metric"
_START = "Train them from the same initial weights (one --seed), or use --how ensemble"
_EQUAL = {
    **dict.fromkeys(("test_domains", "trial_seed", "holdout_fraction", "data", "standardize", "tail"), _SPLIT),
    **dict.fromkeys(("mean", "std", "interpolation", "views"), _SPLIT),
    **dict.fromkeys(("backbone", "head", "input_shape", "frozen"), _NETWORK),
    "metric": _METRIC,
    **dict.fromkeys(("pretrained", "weights_digest", "seed", "warmup_head", "freeze"), _START),
}


def soup(
    runs: Sequence[str | Path],
    out: str | Path,
    *,
    kind: Combination = "uniform",
    weights: evaluations.Model | None = None,
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
    if kind not in get_args(Combination):
        raise unknown("kind of soup", str(kind), get_args(Combination))
    out = checked_path("out", out)
    _check_out(out)
    wanted = {"algorithm": algorithm, "test_domains": tuple(test_domains) or None, "trial_seed": trial_seed}
    records = find_runs(runs, **{name: value for name, value in wanted.items() if value is not None})
    chosen = _choose_weights(records, weights)
    _check_alike(records, kind)
    first = open_run(_folder_of(records[0]), dataset=dataset, data_root=data_root, device=device, progress=progress)
    combined = _Runs(first, {record.spec.name: record for record in records}, chosen)
    make_folder(out)
    with hold_lock(out / ".lock", UserError(f"Another process is making the model {out}. Wait for it, or stop it.")):
        _check_out(out)
        remove_temporaries(out)
        model, record = _make_ensemble(combined, progress) if kind == "ensemble" else _average(combined, kind, progress)
        model.write(out)
        write_card(out, model.info)
        write_record(record, out / RECORD)  # last: its presence means complete
    return load_model(out, device)


def find_runs(places: Sequence[str | Path], **wanted: object) -> list[RunRecord]:
    """Find the finished runs in these folders or directly below them, without diverged runs and models.

    Two copies of a run count once.

    Args:
        places: folders of runs, or folders that contain them.
        wanted: required values of fields of their specs.
    """
    by_name: dict[str, RunRecord] = {}
    for place in [checked_path("runs", place) for place in places]:
        folders = [place] if (place / RECORD).is_file() else sorted(file.parent for file in place.glob(f"*/{RECORD}"))
        if not folders:
            raise UserError(
                f"Expected finished runs at {place}. Found none. Name run folders, or the folder of a sweep."
            )
        for folder in folders:
            if not (folder / INFO).exists():  # a folder with a model is a soup, not a run
                record = read_record(folder)
                by_name.setdefault(record.spec.name, record)
    done = [record for record in by_name.values() if record.status == "done"]
    records = [r for r in done if all(getattr(r.spec, name) == value for name, value in wanted.items())]
    if len(records) < 2:
        of = "".join(f" with {name} {value}" for name, value in wanted.items())
        raise UserError(
            f"Expected at least two finished runs{of} that did not diverge. Found {len(records)}. Name more runs."
        )
    return records


class _Runs:
    """The runs of a soup. Only the first is opened: all have the same data.

    Args:
        first: the first run.
        records: of all runs, by name.
        weights: which weights of each run.
    """

    def __init__(self, first: OpenedRun, records: Mapping[str, RunRecord], weights: evaluations.Model) -> None:
        self.first, self.records, self.weights = first, records, weights
        self.metric = first.record.spec.metric  # what all runs are selected by
        self.methods = tuple(sorted({record.label for record in records.values()}))
        self.validation = {
            name: record.selected(weights).validation(record.sources, weights) for name, record in records.items()
        }
        self._network = self._build(next(iter(records)))

    def build(self, name: str) -> Algorithm:
        """Build a run's method with its weights; UserError if its network differs from that of the first run."""
        own = self._build(name)
        tensors, expected = get_predictor_tensors(own), get_predictor_tensors(self._network)
        if {key: t.shape for key, t in tensors.items()} != {key: t.shape for key, t in expected.items()}:
            raise UserError(
                f"Expected runs whose networks have the same tensors. Found others in {name}. Use runs of one method "
                "and one backbone."
            )
        if not self._agree(own.predict, bind_weights(self._network, tensors)):
            raise UserError(
                "Expected runs whose networks compute the same with the same weights. Found another network in "
                f"{name}, by a setting such as URM's `activation`. Use runs with the same one."
            )
        return own

    def _build(self, name: str) -> Algorithm:
        record = self.records[name]
        prepared = replace(self.first.prepared, spec=record.spec)
        run = replace(self.first, record=record, folder=_folder_of(record), prepared=prepared)
        return run.algorithm(selected_weights(self.weights), self.weights)

    @torch.inference_mode()
    def _agree(self, one: Predict, other: Predict) -> bool:
        """Tell whether two networks give the same logits for noise."""
        noise = torch.randn(4, *self.first.prepared.dataset.input_shape, generator=torch.Generator().manual_seed(0))
        x = noise.to(self.first.device)
        return torch.allclose(one(x), other(x), rtol=1e-3, atol=1e-4)

    def score(self, predict: Predict, *, unseen: bool = False) -> dict[tuple[str, str], Score]:
        """Score by domain and part: holdouts of the sources, with `unseen` also both parts of the test domains."""
        run = self.first
        keys = [(name, "holdout") for name in run.sources]
        keys += [(name, part) for name in run.test_domains for part in ("train", "holdout") if unseen]
        dataset, splits = run.prepared.dataset, run.prepared.splits
        parts = [
            Subset(dataset.domains[dataset.index(name)], getattr(splits[name], part), outputs=part == "train")
            for name, part in keys
        ]
        with torch.inference_mode():
            scores = score_subsets({"raw": predict}, parts, run.device, len(dataset.classes))["raw"]
        return dict(zip(keys, scores, strict=True))


def _average(runs: _Runs, kind: Combination, progress: bool) -> tuple[Model, RunRecord]:
    """Average the weights of all runs, or of those that Wortsman et al.'s recipe 1, the greedy one, adds."""
    greedy = kind == "greedy"
    names = sorted(runs.records, key=lambda name: -runs.validation[name]) if greedy else list(runs.records)
    base = runs.build(names[0])
    used: list[str] = []
    mean, best = Mean(get_predictor_tensors(base)), -1.0
    with Progress("soup", len(names), show=progress) as bar:
        for name in names:
            candidate = Mean(mean.tensors, mean.count if used else 0)
            candidate.add(get_predictor_tensors(runs.build(name)))
            scores = runs.score(bind_weights(base, candidate.tensors)) if greedy else {}
            value = fmean(score.counts.value(runs.metric) for score in scores.values()) if greedy else best
            if value >= best:
                used, mean, best = [*used, name], candidate, value
            bar.advance()
    with torch.no_grad():
        for key, tensor in get_predictor_tensors(base).items():
            tensor.copy_(mean.tensors[key])
    return _describe(runs, kind, used, [base], base.predict)


def _make_ensemble(runs: _Runs, progress: bool) -> tuple[Model, RunRecord]:
    members = []
    with Progress("ensemble", len(runs.records), show=progress) as bar:
        for name in runs.records:
            members.append(runs.build(name))
            bar.advance()
    predict: Predict = lambda x: torch.stack([member.predict(x) for member in members]).mean(0)  # noqa: E731
    return _describe(runs, "ensemble", list(runs.records), members, predict)


def _describe(
    runs: _Runs, kind: Combination, used: Sequence[str], networks: Sequence[Algorithm], predict: Predict
) -> tuple[Model, RunRecord]:
    """Evaluate the model; return it, and its record for reports: an arm of the runs' method, with one evaluation."""
    run, scores = runs.first, runs.score(predict, unseen=True)
    composition = Composition(
        kind=kind,
        weights=runs.weights,
        runs=tuple(used),
        left_out=tuple(name for name in runs.records if name not in used),
        validation=runs.validation,
        unseen={name: _pool_accuracy(scores[name, "train"], scores[name, "holdout"]) for name in run.test_domains},
        methods=runs.methods,
        metric=runs.metric,
    )
    # Hyper-parameter sample 0 of an arm named after the composition.
    spec = structs.replace(runs.records[used[0]].spec, arm=composition.title, hparams_seed=0)
    sources = tuple(domain for domain in run.dataset.domains if domain.name in run.sources)
    info = describe(
        run,
        replace(run.dataset, domains=sources),
        spec=spec,
        run=spec.name,
        min_confidence=(None,) * len(run.dataset.classes),  # not calibrated without held-out domains
        estimate=None,
        in_domain_accuracy=sum(scores[name, "holdout"].accuracy for name in run.sources) / len(run.sources),
        notes=run.dataset.notes,
        composition=composition,
        weights_matched=run.record.weights_matched,
    )
    members = [build_network(run, network) for network in networks]
    model = Model(info, (Ensemble(members) if kind == "ensemble" else members[0]).eval())
    # Of several methods the first by name: the row should not depend on the validation of a test domain's runs.
    first = min(runs.records.values(), key=lambda record: record.spec.algorithm)
    accuracy: dict[str, dict[str, float]] = {name: {} for name, _ in scores}
    loss: dict[str, dict[str, float]] = {name: {} for name, _ in scores}
    for (name, part), score in scores.items():
        accuracy[name][part], loss[name][part] = score.accuracy, score.loss
    record = RunRecord(
        spec=structs.replace(first.spec, arm=composition.title, hparams_seed=0),
        status="done",
        fgmix_version=fgmix.__version__,
        label=label_model(runs.methods[0] if len(runs.methods) == 1 else "Several methods", runs.weights),
        domains=run.record.domains,
        classes=run.dataset.classes,
        notes=(*run.record.notes, *composition.describe()),
        evaluations=(Evaluation(step=first.spec.steps, accuracy={"raw": accuracy}, loss={"raw": loss}, metrics={}),),
    )
    return model, record


def _pool_accuracy(*parts: Score) -> float:
    """Compute the accuracy on several parts of a domain together."""
    samples = [float(score.counts.labelled.sum()) for score in parts]
    return sum(score.accuracy * n for score, n in zip(parts, samples)) / sum(samples)


def _check_out(out: Path) -> None:
    """Allow a new or an empty folder, and what an interrupted soup left; raise an error for any other."""
    if out.exists() and not out.is_dir():
        raise UserError(f"Expected a new or an empty folder at {out}. Found a file. Choose another --out.")
    check_own_files(out, OWN)
    if (out / RECORD).exists() or ((out / INFO).exists() and read_info(out).composition is None):
        raise UserError(f"Expected a new or an empty folder at {out}. Found a model. Choose another --out.")


def _choose_weights(records: Sequence[RunRecord], weights: evaluations.Model | None) -> evaluations.Model:
    """Return the given weights; for None, the average that all runs have, or else the raw weights."""
    if weights is not None:
        for record in records:
            record.candidates(weights)  # raises an error if the run lacks them
        return weights
    common: list[evaluations.Model] = [m for m in get_args(evaluations.Model) if all(m in r.models for r in records)]
    return common[-1]


def _check_alike(records: Sequence[RunRecord], kind: Combination) -> None:
    """Raise an error for runs that cannot be combined, or whose combination could not be evaluated fairly."""
    first = records[0].spec
    for field, advice in _EQUAL.items():
        if kind == "ensemble" and advice == _START:
            continue
        for other in (record.spec for record in records[1:]):
            if (value := getattr(first, field)) != (another := getattr(other, field)):
                raise UserError(
                    f"Expected runs with the same {field}. Found {value} in {first.name} and {another} in "
                    f"{other.name}. {advice}."
                )
    if len({record.classes for record in records}) > 1:
        raise UserError("Expected runs with the same classes. Found different ones. Use runs on one dataset.")


def _folder_of(record: RunRecord) -> Path:
    if record.folder is None:
        raise AssertionError("a record that was read from a folder has it")
    return record.folder
