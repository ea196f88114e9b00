"""`fgmix fit`: from a dataset to a model, with an estimate of its accuracy on an unseen domain.

Without a method, several recipes are tried and the best is chosen (`choose`, `best`). With one:

1. Every domain is held out in turn: a run trains on the others, selects its weights without it, and predicts all of its
   samples. These predictions give the estimate and calibrate the confidence.
2. A run on all domains, with the same settings, gives the model.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from msgspec import structs

from fgmix.algorithms import check_domains
from fgmix.data import DomainDataset, split_dataset
from fgmix.deploy.best import choose_network, make_best, name_request
from fgmix.deploy.build import build_network, describe, summarize_holdout
from fgmix.deploy.candidate import FOLDS, RUNS, Workbench
from fgmix.deploy.card import CARD, CONFUSION, PAGE, RELIABILITY, write_card
from fgmix.deploy.estimate import check_shared_classes, estimate
from fgmix.deploy.heatmaps import FOLDER, add_heat_maps, check_heat_maps
from fgmix.deploy.hold_out import (
    NOISE,
    compute_noise_features,
    hold_out,
    measure_in_domain,
    select_weights,
)
from fgmix.deploy.model import WEIGHTS, Model, load_model
from fgmix.deploy.network import check_alone
from fgmix.deploy.recipes import list_recipes
from fgmix.deploy.steps import advise, announce, note_steps, scale_steps
from fgmix.errors import UserError, bad_value
from fgmix.progress import Progress, parse_duration
from fgmix.records.files import check_path, make_folder, remove_temporaries
from fgmix.records.locks import hold_lock
from fgmix.records.model import INFO, Estimate, Terms, read_info
from fgmix.records.options import options_of
from fgmix.records.schema import ResolvedSpec, RunSpec, to_spec
from fgmix.records.store import RunFolder, describe_older, is_other_code
from fgmix.terminal import print_notes
from fgmix.training.open_run import OpenedRun, train_and_open
from fgmix.training.prepare import (
    PreparedRun,
    describe_code,
    load_dataset,
    locate_activations,
    new_algorithm,
    prepare_data,
)
from fgmix.training.resolve import list_notes, resolve

PROBE = "erm"  # names the method where recipes are to choose it: every kind of data can be prepared for it
# Patterns of the files in a model's folder
OWN = (INFO, CARD, PAGE, CONFUSION, RELIABILITY, RUNS, FOLDS, FOLDER, WEIGHTS, ".lock", ".*.tmp*", "*.onnx", "*.pt2")


def fit(
    data: str | Path | DomainDataset,
    out: str | Path,
    *,
    algorithm: str | None = None,
    budget: str | float = "10min",
    recipes: Sequence[str] | None = None,
    estimated: bool = True,
    terms: Terms | None = None,
    device: str = "auto",
    progress: bool = True,
    accept_code: bool = False,
    **options: Any,
) -> Model:
    """Train a model on all domains, as `fgmix fit` does; if interrupted, the same call resumes.

    Args:
        data: a folder `domain/class/image`, a CSV manifest, an .npz file, a registered name, or a dataset in memory.
        out: the model's folder. It also contains the runs, which may be deleted once the model is complete.
        algorithm: a registered method, which is trained alone; None tries several recipes and chooses one.
        budget: time for the choice on this machine, or seconds.
        recipes: names of the recipes to choose from; None for all that suit the data (`fgmix.deploy.recipes`).
        estimated: hold every domain out once for the estimate; without it, the accuracy on unseen domains is not
            measured and the confidence is not calibrated.
        terms: when to trust the model, and its use for the card; its fields may also be given by name
            (`min_confidence`, `target_accuracy`, `licence`, `intended_use`).
        device: as in `fgmix.train`.
        progress: show progress bars.
        accept_code: use runs of other code of the method, as in `fgmix.train`.
        options: options of a run, such as steps, backbone or settings (`fgmix.RunSpec`), and fields of `terms`.

    Example:
        >>> import tempfile
        >>> import numpy as np
        >>> from fgmix.data import from_arrays
        >>> y, d = np.arange(90) % 3, np.arange(90) // 30
        >>> data = from_arrays(np.random.default_rng(0).normal(size=(90, 4)) + 3 * np.eye(3, 4)[y], y, d)
        >>> with tempfile.TemporaryDirectory() as out:
        ...     model = fit(data, out, algorithm="erm", steps=40, progress=False)
        >>> model.info.classes
        ('0', '1', '2')
    """
    if options.get("test_domains"):
        raise UserError(
            f"`fit` trains on all domains. Found {options['test_domains']} to hold out. Use `fgmix.train` for that."
        )
    if options.get("keep") == "none":
        raise UserError("`fit` reads the weights of its runs. Found `keep` none. Use best or all.")
    out = check_path("out", out)
    if not isinstance(terms, Terms | None):
        raise bad_value("terms", "a Terms or None", terms)
    own = {name: options.pop(name) for name in options_of(Terms) if name in options}
    if own and terms is not None:
        raise UserError(f"Expected `terms`, or its fields by name. Found both ({', '.join(own)}). Drop one.")
    terms = terms or Terms(**own)
    name = data.name if isinstance(data, DomainDataset) else data
    said = to_spec({**options, "dataset": name, "algorithm": algorithm or PROBE}, RunSpec)
    check_alone(said.algorithm)
    dataset = data if isinstance(data, DomainDataset) else load_dataset(said, progress=progress)
    check_heat_maps(terms.heatmaps, dataset)
    if algorithm is None:
        _check_choice(said, estimated)
        bench = Workbench(said, dataset, out, device, progress, accept_code)
        return _fit_best(bench, recipes, budget, terms)
    spec = scale_steps(said, dataset)
    resolved = resolve(spec, dataset)
    _check_data(resolved, dataset, estimated)
    with _claim(out, resolved.name, resolved.data, estimated, terms) as is_done:
        if is_done:
            if not accept_code:
                _note_older(RunFolder(out / RUNS / resolved.name), resolved)
            return _load_again(out, device)
        notes = [*note_steps(said, spec), *list_notes(spec, resolved)]
        held_out = [(name,) for name in dataset.domain_names] if estimated else []
        specs = [resolve(structs.replace(spec, test_domains=names), dataset) for names in held_out]
        how: dict[str, Any] = {"device": device, "accept_code": accept_code}
        model = _train([*specs, resolved], dataset, out / RUNS, terms, notes, progress, how)
        return _complete(model, dataset, out)


def _fit_best(asked: Workbench, names: Sequence[str] | None, budget: str | float, terms: Terms) -> Model:
    """Make the model of the best recipe, within a budget of time; `asked` has the options as they were given."""
    dataset, out = asked.dataset, asked.out
    seconds = parse_duration(budget) if isinstance(budget, str) else budget
    if not seconds > 0:
        raise bad_value("budget", "a positive duration", budget)
    recipes = list_recipes(names)
    spec, notes = choose_network(asked.spec, dataset)
    resolved = resolve(spec, dataset)
    _check_data(resolved, dataset, estimated=True)
    request = name_request(spec, dataset, recipes, seconds)
    with _claim(out, request, resolved.data, True, terms) as is_done:
        if is_done:
            return _load_again(out, asked.device)
        if asked.progress:
            print_notes(*notes, *advise(resolved, dataset, asked.device))
        model = make_best(replace(asked, spec=spec), asked.spec, recipes, seconds, terms, notes)
        return _complete(model, dataset, out)


def _complete(model: Model, dataset: DomainDataset, out: Path) -> Model:
    """Add what its predictions show, and write the model and its card."""
    model = add_heat_maps(model, dataset, out).write(out)
    write_card(out, model.info)
    return model


def _check_choice(spec: RunSpec, estimated: bool) -> None:
    """Raise an error for options that are of one method, or that leave nothing to choose by."""
    if not estimated:
        raise UserError("Recipes are chosen by their estimates. Found --no-estimate. Name the method: --algorithm erm.")
    for name in ("settings", "freeze", "arm"):
        if value := getattr(spec, name):
            raise UserError(f"`{name}` is of one method. Found {value}. Name the method: --algorithm erm.")


@contextmanager
def _claim(out: Path, request: str, data: str, estimated: bool, terms: Terms) -> Iterator[bool]:
    """Lock the folder of a model, new or of the same request; yield whether the model is complete."""
    if not (out / INFO).exists():
        check_own_files(out, OWN)
    with lock_folder(out):
        _check_same(out, request, data, estimated, terms)
        yield (out / INFO).exists()


def _load_again(out: Path, device: str) -> Model:
    """Load a model that was complete before: its runs may be deleted by now."""
    model = load_model(out, device)
    write_card(out, model.info)
    return model


def _train(
    specs: Sequence[ResolvedSpec],
    dataset: DomainDataset,
    folder: Path,
    terms: Terms,
    notes: Sequence[str],
    progress: bool,
    how: Mapping[str, Any],
) -> Model:
    """Make the model from the runs in `folder`, of which the last gives it: finished ones are read, others trained.

    `how` are arguments of `train_and_open`.
    """
    device = how["device"]
    # All are prepared before the first one trains: they share the features of a frozen backbone.
    prepared = [prepare_data(spec, dataset, device=device, progress=progress) for spec in specs]
    if progress:
        announce(specs, dataset, folder, device, notes)
    spec = specs[-1]
    with Progress("fit", len(specs) * spec.steps, "steps", show=progress) as bar:
        *runs, run = [_train_run(each, folder, dataset, bar, how) for each in prepared]
        bar.advance(0, "predicting the domains that were held out" if runs else "measuring what is familiar")
        noise = compute_noise_features(spec, NOISE, run.device) if runs and spec.on_activations else None
        held_out = [hold_out(each, noise) for each in runs]
        unseen = estimate(held_out, metric=spec.metric, terms=terms) if held_out else None
        return _make_model(run, dataset, unseen, terms, [*notes, *_note_improving([*runs, run])])


def _check_data(spec: ResolvedSpec, dataset: DomainDataset, estimated: bool) -> None:
    """Require two classes, and enough samples and domains after holding some out."""
    split_dataset(dataset, spec.holdout_fraction, spec.trial_seed)
    if len(dataset.classes) < 2:
        raise UserError(f"Expected at least two classes to tell apart. Found {len(dataset.classes)}.")
    if spec.on_activations:
        new_algorithm(spec, dataset.classes, dataset.domain_names)  # raises an error for methods that need images
    if estimated:
        hint = "The estimate holds a domain out: choose a method for fewer domains (erm), or pass --no-estimate."
        check_domains(spec.algorithm, len(dataset.domains) - 1, hint)
        check_shared_classes([domain.y for domain in dataset.domains], ", or pass --no-estimate")


@contextmanager
def lock_folder(out: Path) -> Iterator[None]:
    """Create the folder of a model, and lock it for this process."""
    make_folder(out)
    with hold_lock(out / ".lock", UserError(f"Another process is making the model {out}. Wait for it, or stop it.")):
        remove_temporaries(out)
        yield


def check_own_files(out: Path, patterns: Sequence[str]) -> None:
    """Raise an error for a folder with other files than an interrupted command or an export left; it may not exist."""
    if not out.exists():
        return
    make_folder(out)  # raises an error for a file, and for a folder that is read-only
    own = {path for pattern in patterns for path in out.glob(pattern)}
    foreign = sorted(path.name for path in out.iterdir() if path not in own)
    if foreign:
        raise UserError(
            f"Expected a new or an empty folder at {out}. Found {', '.join(foreign[:3])}. Choose another --out."
        )


def _check_same(out: Path, request: str, data: str, estimated: bool, terms: Terms) -> None:
    """Never overwrite another model, which may be in use."""
    if not (out / INFO).exists():
        return
    made = read_info(out)
    same_data = made.data_fingerprint == data
    made_by = made.choice.asked if made.choice else made.run
    if (made_by, made.estimate is not None, made.terms) != (request, estimated, terms):
        raise UserError(
            f"The folder {out} holds a model of other {'settings' if same_data else 'data'}. Choose another --out, or "
            f"delete its {INFO}: its runs are kept."
        )


def _note_older(run: RunFolder, spec: ResolvedSpec) -> None:
    """Print a note on a finished model whose method was edited since; its run may be deleted."""
    if is_other_code(run.read_code(), describe_code(spec)):
        print_notes(describe_older(1, spec.algorithm, run.path))


def _train_run(
    run: PreparedRun, folder: Path, dataset: DomainDataset, bar: Progress, how: Mapping[str, Any]
) -> OpenedRun:
    """Train or read a run; the bar counts its steps in both cases."""
    before = bar.done
    opened = train_and_open(run, folder, dataset, progress=bar, **how)
    bar.skip(before + run.spec.steps - bar.done)
    return opened


def _note_improving(runs: Sequence[OpenedRun]) -> list[str]:
    count = sum(run.record.still_improving for run in runs)
    return [f"Still improving at the last step ({count} of {len(runs)} runs): raise --steps."] if count else []


def _make_model(
    run: OpenedRun, dataset: DomainDataset, estimate: Estimate | None, terms: Terms, notes: Sequence[str]
) -> Model:
    """Make the model of a run on all domains, with its estimate."""
    record, (accuracy, value) = run.record, measure_in_domain(run)
    predictor = run.algorithm(*select_weights(record))
    network = build_network(run.prepared, predictor, estimate)
    info = describe(
        dataset,
        run.files.record,
        features=locate_activations(record.spec, dataset).read() if record.spec.frozen else None,
        spec=record.spec,
        run=run.folder.name,
        min_confidence=estimate.trust.by_class if estimate else (terms.min_confidence,) * len(dataset.classes),
        estimate=estimate,
        in_domain_accuracy=accuracy,
        notes=(*dataset.notes, *notes),
        terms=terms,
        weights_matched=network.backbone.weights_matched if record.spec.frozen else record.weights_matched,
        in_domain_value=value if estimate else None,
        familiar=summarize_holdout(run.prepared, predictor, network),
    )
    return Model(info, network.eval())
