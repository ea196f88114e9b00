"""`fgmix soup`: combine several finished runs into one model, by the mean of their weights or of their logits.

    uniform     θ̄ = mean of all θ_i
    greedy      runs in the order of their validation accuracy (or other metric); each is added if that of the mean does
                not fall
    ensemble    o(x) = mean of h_i(g_i(x))
    interpolation    θ = (1 − α) θ_0 + α θ_1, from the initial weights of a run to its own, or from a run to another

Ramé et al., "Diverse Weight Averaging for Out-of-Distribution Generalization" (DiWA), 2022,
https://arxiv.org/abs/2205.09739; Wortsman et al., "Model Soups", 2022, https://arxiv.org/abs/2203.05482; Arpit et al.,
"Ensemble of Averages" (EoA), 2022, https://arxiv.org/abs/2110.10832, whose members are averaged models; Wortsman et
al., "Robust Fine-Tuning of Zero-Shot Models" (WiSE-FT), 2022, https://arxiv.org/abs/2109.01903, an interpolation.

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
from fgmix.algorithms import Algorithm, Predict
from fgmix.data import DomainDataset
from fgmix.deploy.build import build_network, describe
from fgmix.deploy.card import CARD, PAGE, write_card
from fgmix.deploy.fit import check_own_files, lock_folder
from fgmix.deploy.model import WEIGHTS, Model, load_model
from fgmix.deploy.network import Ensemble, check_alone
from fgmix.errors import UserError, bad_value, unknown
from fgmix.networks.lora import merge_adapters
from fgmix.networks.text import TextHead
from fgmix.progress import track
from fgmix.records import evaluations
from fgmix.records.files import check_path
from fgmix.records.model import INFO, Combination, Composition, read_info
from fgmix.records.rows import label_model
from fgmix.records.schema import RunRecord, selected_weights
from fgmix.records.store import RECORD, read_record, write_record
from fgmix.training.averaging import Mean, get_predictor_tensors
from fgmix.training.evaluate import DomainScores, Subset, bind_weights, score_subsets
from fgmix.training.open_run import OpenedRun, open_run

OWN = (INFO, CARD, PAGE, RECORD, WEIGHTS, ".lock", ".*.tmp*")  # patterns of the files in a soup's folder

# What to do if runs differ in these fields of their specs. Only averages of weights need the same start.
_SPLIT = "Use runs on the same data and split: samples that one is trained on must not judge another"
_NETWORK = "Use runs with one backbone and head"
_METRIC = "Use runs that are selected by one metric"
_START = "Train them from the same initial weights (one --seed), or use --how ensemble"
_EQUAL = {
    **dict.fromkeys(("test_domains", "trial_seed", "holdout_fraction", "data", "standardize", "tail"), _SPLIT),
    **dict.fromkeys(("mean", "std", "interpolation", "views"), _SPLIT),
    **dict.fromkeys(("backbone", "backbone_digest", "head", "input_shape", "frozen"), _NETWORK),
    "metric": _METRIC,
    **dict.fromkeys(("pretrained", "weights_digest", "seed", "warmup_head", "freeze"), _START),
}


def soup(
    runs: Sequence[str | Path],
    out: str | Path,
    *,
    kind: Combination = "uniform",
    alpha: float | None = None,
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
        kind: "uniform" or "greedy", which average weights, "ensemble", or "interpolation".
        alpha: share α of the second end of an interpolation, between 0 and 1; implies this kind.
        weights: "raw", "swa" or "swad"; None for the average if all runs have one, else raw.
        algorithm: only runs of this method; None for all.
        test_domains: only runs that hold out exactly these domains; all runs if empty.
        trial_seed: only runs of this trial; None for all.
        dataset: the dataset or its path; None for the path in the runs.
        data_root: the folder of the datasets, if it has moved.
        device: as in `fgmix.train`.
        progress: show a bar.
    """
    kind = _check_kind(kind, alpha)
    out = check_path("out", out)
    _check_out(out)
    wanted = {"algorithm": algorithm, "test_domains": tuple(test_domains) or None, "trial_seed": trial_seed}
    least, most = (1, 2) if kind == "interpolation" else (2, None)
    given = {name: value for name, value in wanted.items() if value is not None}
    records = find_runs(runs, least, most, **given)
    chosen = _choose_weights(records, weights)
    _check_alike(records, kind)
    first = open_run(_folder_of(records[0]), dataset=dataset, data_root=data_root, device=device, progress=progress)
    combined = _Runs(first, {record.spec.name: record for record in records}, chosen)
    with lock_folder(out):
        _check_out(out)
        if kind == "ensemble":
            used = list(combined.records)
            networks = [combined.build(name) for name in track(used, "ensemble", show=progress)]
        elif alpha is not None:
            used, networks = list(combined.records), [_interpolate(combined, alpha)]
        else:
            used, network = _average(combined, kind, progress)
            networks = [network]
        model, record = _describe(combined, kind, used, networks, alpha)
        model.write(out)
        write_card(out, model.info)
        write_record(record, out / RECORD)  # last: its presence means complete
    return load_model(out, device)


def find_runs(
    places: Sequence[str | Path], least: int = 2, most: int | None = None, **wanted: object
) -> list[RunRecord]:
    """Find the finished runs in these folders or directly below them, without diverged runs and models.

    Two copies of a run count once. `wanted` are required values of fields of their specs; `least` and `most` bound the
    number of runs.
    """
    by_name: dict[str, RunRecord] = {}
    for place in [check_path("runs", place) for place in places]:
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
    if len(records) < least or (most and len(records) > most):
        of = "".join(f" with {name} {value}" for name, value in wanted.items())
        number, hint = ("one or two", "fewer") if most else ("at least two", "more")
        raise UserError(
            f"Expected {number} finished runs{of} that did not diverge. Found {len(records)}. Name {hint} runs."
        )
    return records


class _Runs:
    """The runs of a soup, by name, and which weights of each. Only the first is opened: all have the same data."""

    def __init__(self, first: OpenedRun, records: Mapping[str, RunRecord], weights: evaluations.Model) -> None:
        self.first, self.records, self.weights = first, records, weights
        self.metric = first.record.spec.metric  # what all runs are selected by
        self.validation = {
            name: record.selected(weights).validation(record.sources, weights) for name, record in records.items()
        }
        self._network = self._load(next(iter(records)))

    def build(self, name: str) -> Algorithm:
        """Build a run's method with its weights; UserError if its network differs from that of the first run."""
        own = self._load(name)
        tensors, expected = get_predictor_tensors(own), get_predictor_tensors(self._network)
        same = {key: t.shape for key, t in tensors.items()} == {key: t.shape for key, t in expected.items()}
        if same:
            shape = self.first.prepared.dataset.input_shape
            noise = torch.randn(4, *shape, generator=torch.Generator().manual_seed(0)).to(self.first.device)
            with torch.inference_mode():
                logits, theirs = own.predict(noise), bind_weights(self._network, tensors)(noise)
            same = torch.allclose(logits, theirs, rtol=1e-3, atol=1e-4)
        if not same:
            raise UserError(
                "Expected runs whose networks compute the same with the same weights. Found another network in "
                f"{name}: another method, or a setting such as URM's `activation`. Use runs with the same one."
            )
        return own

    def _load(self, name: str) -> Algorithm:
        record = self.records[name]
        prepared = replace(self.first.prepared, spec=record.spec)
        run = replace(self.first, record=record, folder=_folder_of(record), prepared=prepared)
        return _merge(run.algorithm(selected_weights(self.weights), self.weights))

    def score(self, predict: Predict, *, unseen: bool = False) -> DomainScores:
        """Score by domain and part: holdouts of the sources, with `unseen` also both parts of the test domains."""
        run = self.first
        keys = [(name, "holdout") for name in run.sources]
        keys += [(name, part) for name in run.test_domains for part in ("train", "holdout") if unseen]
        dataset, splits = run.prepared.dataset, run.prepared.splits
        parts = [Subset(dataset.domains[dataset.index(name)], getattr(splits[name], part)) for name, part in keys]
        with torch.inference_mode():
            scores = score_subsets({"raw": lambda: predict}, parts, run.device, len(dataset.classes))["raw"]
        by_domain: DomainScores = {name: {} for name, _ in keys}
        for (name, part), score in zip(keys, scores, strict=True):
            by_domain[name][part] = score
        return by_domain


def _average(runs: _Runs, kind: Combination, progress: bool) -> tuple[list[str], Algorithm]:
    """Average the weights of all runs, or of those that the greedy soup of Wortsman et al. adds.

    Returns the names of the runs used, and the network.
    """
    greedy = kind == "greedy"
    names = sorted(runs.records, key=lambda name: -runs.validation[name]) if greedy else list(runs.records)
    base = runs.build(names[0])
    used: list[str] = []
    mean, best = Mean(get_predictor_tensors(base)), -1.0
    for name in track(names, "soup", show=progress):
        candidate = Mean(mean.tensors, mean.count if used else 0)
        candidate.add(get_predictor_tensors(runs.build(name)))
        scores = runs.score(bind_weights(base, candidate.tensors)) if greedy else {}
        value = fmean(parts["holdout"].rates.value(runs.metric) for parts in scores.values()) if greedy else best
        if value >= best:
            used, mean, best = [*used, name], candidate, value
    with torch.no_grad():
        for key, tensor in get_predictor_tensors(base).items():
            tensor.copy_(mean.tensors[key])
    return used, base


def _check_kind(kind: Combination, alpha: float | None) -> Combination:
    """Return the kind of a soup, which α implies."""
    if kind not in get_args(Combination):
        raise unknown("kind of soup", str(kind), get_args(Combination))
    if alpha is None and kind != "interpolation":
        return kind
    if alpha is None or not 0 <= alpha <= 1:
        raise bad_value("alpha", "a number from 0 to 1 for an interpolation", alpha)
    if kind not in ("uniform", "interpolation"):
        raise bad_value("alpha", f"left out for --how {kind}", alpha)
    return "interpolation"


def _merge(algorithm: Algorithm) -> Algorithm:
    """Merge the adapters of a network: a mean of factors A and B would not be the factors of a mean."""
    algorithm.featurizer = merge_adapters(algorithm.featurizer)
    return algorithm


@torch.no_grad()
def _interpolate(runs: _Runs, alpha: float) -> Algorithm:
    """Interpolate from the first run to the second, or from the initial weights of a single run to its own."""
    names = list(runs.records)
    alone = len(names) == 1
    network = runs.build(names[-1])
    if alone and not isinstance(network.classifier, TextHead):
        raise UserError(
            "Expected a run with --head text or text-frozen, whose initial weights classify. Found a classifier that "
            "starts from random weights. Name two runs to interpolate between."
        )
    start = _merge(runs.first.initial()) if alone else runs.build(names[0])
    begins = get_predictor_tensors(start)
    for key, tensor in get_predictor_tensors(network).items():
        if tensor.is_floating_point():
            tensor.copy_(torch.lerp(begins[key], tensor, alpha))
    return network


def _describe(
    runs: _Runs, kind: Combination, used: Sequence[str], networks: Sequence[Algorithm], alpha: float | None = None
) -> tuple[Model, RunRecord]:
    """Evaluate the model; return it, and its record for reports: an arm of the runs' method, with one evaluation."""
    run = runs.first
    scores = runs.score(lambda x: torch.stack([network.predict(x) for network in networks]).mean(0), unseen=True)
    methods = tuple(sorted({record.label for record in runs.records.values()}))
    composition = Composition(
        kind=kind,
        weights=runs.weights,
        runs=tuple(used),
        left_out=tuple(name for name in runs.records if name not in used),
        validation=runs.validation,
        unseen={name: _pool_accuracy(list(scores[name].values())) for name in run.test_domains},
        methods=methods,
        metric=runs.metric,
        alpha=alpha,
    )
    arm = {"arm": composition.title, "hparams_seed": 0}
    spec = structs.replace(runs.records[used[0]].spec, **arm)
    sources = tuple(domain for domain in run.dataset.domains if domain.name in run.sources)
    info = describe(
        replace(run.dataset, domains=sources),
        run.files.record,
        spec=spec,
        run=spec.name,
        min_confidence=(None,) * len(run.dataset.classes),  # not calibrated without held-out domains
        estimate=None,
        in_domain_accuracy=sum(scores[name]["holdout"].accuracy for name in run.sources) / len(run.sources),
        notes=run.dataset.notes,
        composition=composition,
        weights_matched=run.record.weights_matched,
    )
    members = [build_network(run.prepared, network) for network in networks]
    model = Model(info, (Ensemble(members) if kind == "ensemble" else members[0]).eval())
    # Of several methods the first by name: the row should not depend on the validation of a test domain's runs.
    first = min(runs.records.values(), key=lambda record: record.spec.algorithm).spec
    record = RunRecord(
        spec=structs.replace(first, **arm),
        status="done",
        fgmix_version=fgmix.__version__,
        label=label_model(methods[0] if len(methods) == 1 else "Several methods", runs.weights),
        domains=run.record.domains,
        classes=run.dataset.classes,
        notes=(*run.record.notes, *composition.describe()),
        evaluations=evaluations.Evaluations(
            [evaluations.make_evaluation({"raw": scores}, first.steps, {}, "accuracy")]
        ),
    )
    return model, record


def _pool_accuracy(parts: Sequence[evaluations.Score]) -> float:
    """Compute the accuracy on several parts of a domain together."""
    samples = [float(score.rates.samples) for score in parts]
    return sum(score.accuracy * n for score, n in zip(parts, samples)) / sum(samples)


def _check_out(out: Path) -> None:
    """Allow a new or an empty folder, and what an interrupted soup left; raise an error for any other."""
    check_own_files(out, OWN)
    if (out / RECORD).exists() or ((out / INFO).exists() and read_info(out).composition is None):
        raise UserError(f"Expected a new or an empty folder at {out}. Found a model. Choose another --out.")


def _choose_weights(records: Sequence[RunRecord], weights: evaluations.Model | None) -> evaluations.Model:
    """Return the given weights; for None, the average that all runs have, or else the raw weights."""
    common = [model for model in get_args(evaluations.Model) if all(model in record.models for record in records)]
    chosen: evaluations.Model = weights or common[-1]
    for record in records:
        record.require(chosen)
    return chosen


def _check_alike(records: Sequence[RunRecord], kind: Combination) -> None:
    """Raise an error for runs that cannot be combined, or whose combination could not be evaluated fairly."""
    for record in records:
        check_alone(record.spec.algorithm)
    first = records[0].spec
    for field, advice in _EQUAL.items():
        if kind == "ensemble" and advice == _START:
            continue
        for other in (record.spec for record in records[1:]):
            if (value := getattr(first, field)) != (another := getattr(other, field)):
                ours, theirs = (", ".join(v) if isinstance(v, tuple) else v for v in (value, another))
                raise UserError(
                    f"These runs cannot be combined: {field} is {ours} in {first.name} and {theirs} in {other.name}. "
                    f"{advice}."
                )
    for record in records[1:]:
        if record.classes != records[0].classes:
            raise UserError(
                f"These runs cannot be combined: {first.name} and {record.spec.name} have different classes. "
                "Use runs on one dataset."
            )


def _folder_of(record: RunRecord) -> Path:
    if record.folder is None:
        raise AssertionError("a record that was read from a folder has it")
    return record.folder
