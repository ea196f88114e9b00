"""The contract of an algorithm, one property per function, which raises an error if the property does not hold.

The docstring states the property and is part of the error message; the rest says what was found and where to look.
"""

from __future__ import annotations

import dataclasses
import io
import pickle
import subprocess
import sys
import warnings
from collections.abc import Callable, Hashable, Iterable, Mapping
from functools import cache, lru_cache, partial
from itertools import pairwise
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot
from torch.optim import AdamW, Optimizer

from fgmix.algorithms import Algorithm, Batches, get
from fgmix.errors import UserError
from fgmix.records.declarations import FAMILIES
from fgmix.records.options import options_of
from fgmix.records.protocols import DEFAULTS
from fgmix.testing.toys import CLASSES, run_steps, toy_algorithm, toy_batches

Settings = Mapping[str, Any]  # always with `steps`, the length of the run
B = 4  # samples of each domain, one of each class
OPTIMIZER = {"optimizer": "adamw", "schedule": "cosine", "lr_warmup": 2, "clip_norm": 0.1, "decay_on": "matrices"}
FEW = 2  # steps where the length does not matter: with `at_work` every part acts in the first


# Checks of declarations


def declarations(name: str, _: Settings) -> None:
    """The class declares what tables, docs and timing need to know of it."""
    algorithm = get(name)
    doc = (algorithm.__doc__ or "").strip()
    _require(
        doc.split("\n")[0].endswith("."), "Its docstring should start with one sentence, which `fgmix list` shows."
    )
    _require(bool(algorithm.label), "`label` should be the name that tables print.")
    _require(
        algorithm.family is None or algorithm.family in FAMILIES,
        f"`family` should be one of {', '.join(FAMILIES)}. Found {algorithm.family!r}.",
    )
    _require(
        algorithm.min_domains >= 1, f"`min_domains` should be a positive integer. Found {algorithm.min_domains!r}."
    )
    if algorithm.paper is not None:
        _require(
            algorithm.paper.startswith("https://"), f"`paper` should be a link, https://…. Found {algorithm.paper!r}."
        )
    for settings in (algorithm.at_work, *algorithm.forms.values()):
        algorithm.Config.of(**settings)


def declared_settings(name: str, _: Settings) -> None:
    """Every setting has one line of help, and its default is valid."""
    algorithm, config = get(name), get(name).Config
    declared = options_of(config)
    # Of the method, or of the one it wraps, whose settings keep their names.
    domainbed_names = [getattr(cls, "domainbed_name", None) for cls in algorithm.__mro__]
    for field in dataclasses.fields(config):  # type: ignore[arg-type]  # a dataclass by its __init_subclass__
        _require(field.name in declared, f"Declare `{field.name}` by `setting(…)` or `search(…)`.")
        text = declared[field.name].help
        _require(bool(text) and "\n" not in text, f"`{field.name}` should have one line of help. Found {text!r}.")
        _require(
            any(domainbed_names) or declared[field.name].extra.get("domainbed") is None,
            f"`{field.name}` has a name of DomainBed's: declare `domainbed_name`, that of the method, too.",
        )
    _require(config.of(**config().as_dict()) == config(), "Its defaults do not make an equal Config again.")


def search_space(name: str, _: Settings) -> None:
    """Whatever its search space draws is a valid setting of a plain type."""
    algorithm, config = get(name), get(name).Config
    spaces = [config.spaces(space) for space in ("domainbed", "paper")]
    for kind in DEFAULTS:
        searched = algorithm.domainbed_space("PACS", kind)
        spaces.append({field: each.distribution for field, each in searched.items() if each.distribution is not None})
        config.of(**{field: each.default for field, each in searched.items() if field in config.names()})
    for space in spaces:
        for field, distribution in space.items():
            for seed in range(20):
                value = distribution.draw(np.random.RandomState(seed))
                _require(
                    type(value) in (int, float, bool, str, type(None)),
                    f"`{field}` should be drawn as a plain Python value. Found {value!r} of {type(value).__name__}.",
                )
                if field in config.names():  # not the run's batch size or dropout
                    config.of(**{field: value})


def number_of_batches(name: str, _: Settings) -> None:
    """A step with too few batches is refused by a UserError."""
    _require_refusal(lambda: toy_algorithm(name).step(toy_batches(2)), "Override `update` or `objective`, not `step`.")


# Checks of training, with the default settings, with `at_work` and with each of `forms`


def training(name: str, settings: Settings) -> None:
    """Steps give finite, detached scalars, "loss" among them, and move the model, or nothing if it does not train."""
    run = _train(name, settings)
    metrics, before, after = run.metrics, run.before, run.after
    _require("loss" in metrics, f'`objective` or `update` should return "loss". Found {sorted(metrics)}.')
    for key, value in metrics.items():
        _require(value.ndim == 0 and not value.requires_grad, f"Metric {key!r} should be a detached scalar.")
    _require_finite(metrics)
    model = [key for key in before if key.startswith(("featurizer.", "classifier."))]
    moved = [key for key in model if not torch.equal(before[key], after[key])]
    found = f"Found {moved[0]} moved." if moved else "No weight of the model has moved."
    _require(bool(moved) == get(name).trains, f"`trains` is {get(name).trains}. {found}")
    _require(all(value.isfinite().all() for value in after.values()), "A weight or buffer is not finite.")


def state(name: str, settings: Settings) -> None:
    """What changes in training is in `state_dict()`: parameters, buffers, optimisers and `updates`."""
    changed = _train(name, settings).changed
    _require(
        not changed,
        f"A checkpoint would lose {', '.join(f'`{key}`' for key in changed)}. "
        "Use `register_buffer`, or derive it from `self.updates`.",
    )


def resume(name: str, settings: Settings) -> None:
    """Training from a saved state ends with the same bits as training without interruption."""
    batches, steps = toy_batches(b=B), settings["steps"]
    algorithm = toy_algorithm(name, **settings)
    for start, stop in pairwise((0, 1, steps - 3, steps)):
        run_steps(algorithm, batches, start, stop)
        resumed = toy_algorithm(name, **settings)
        resumed.load_state_dict(copy_through_file(algorithm.state_dict()))
        _require(resumed.updates == stop, f"`updates` should be {stop} after as many steps. Found {resumed.updates}.")
        algorithm = resumed
    require_same_tensors(_train(name, settings).after, get_tensors(algorithm))


def prediction(name: str, settings: Settings) -> None:
    """`predict` gives one logit per class, without randomness, and is `classifier(featurizer(x))`."""
    algorithm = toy_algorithm(name, **settings)
    run_steps(algorithm, toy_batches(b=B), 0, 1)
    algorithm.eval()
    x = toy_batches(b=B)[0][0]
    with torch.no_grad():
        logits = algorithm.predict(x)
        _require(logits.shape == (len(x), CLASSES), f"Expected shape {(len(x), CLASSES)}. Found {tuple(logits.shape)}.")
        _require(torch.equal(logits, algorithm.predict(x)), "Two calls in evaluation mode differ.")
        composed = algorithm.classifier(algorithm.featurizer(x))
    _require(torch.equal(logits, composed), "Averaging and export keep g and h alone: put what is missing into them.")


def test_time(name: str, settings: Settings) -> None:
    """`start_test` gives one finite logit per class, the same each time, and leaves the algorithm as it is."""
    algorithm = toy_algorithm(name, **settings)
    if not algorithm.adapts_at_test:
        _require(type(algorithm).start_test is Algorithm.start_test, "Declare `adapts_at_test = True`.")
        return
    _require("test_batch_size" in algorithm.Config.names(), "Declare the setting `test_batch_size`.")
    run_steps(algorithm, toy_batches(b=B), 0, 1)
    algorithm.eval()
    before, attributes = get_tensors(algorithm), _get_plain_attributes(algorithm)
    with torch.inference_mode():
        first, again = ([predict(x) for x, _ in toy_batches(b=B)] for predict in (algorithm.start_test() for _ in "12"))
    for logits, same in zip(first, again):
        _require(logits.shape == (B, CLASSES), f"Expected shape {(B, CLASSES)}. Found {tuple(logits.shape)}.")
        _require(bool(logits.isfinite().all()), "A logit is not finite.")
        _require(torch.equal(logits, same), "A second test differs: keep what adapts in the function that is returned.")
    require_same_tensors(before, get_tensors(algorithm))
    _require(attributes == _get_plain_attributes(algorithm), "An attribute has changed: adapt a copy.")


def order_of_domains(name: str, settings: Settings) -> None:
    """Domains in reverse order give metrics of the same names, finite."""
    straight = run_steps(toy_algorithm(name, **settings), toy_batches(b=B), 0, 2)
    turned = run_steps(toy_algorithm(name, **settings), toy_batches(b=B)[::-1], 0, 2)
    _require(straight.keys() == turned.keys(), f"Found {sorted(straight)} and {sorted(turned)}.")
    _require_finite(turned)


def missing_class(name: str, settings: Settings) -> None:
    """A domain may lack a class."""
    batches = toy_batches(b=B)
    x, y = batches[0]
    batches[0] = (x, torch.where(y == CLASSES - 1, 0, y))
    _require_finite(run_steps(toy_algorithm(name, **settings), batches, 0, FEW))


def number_of_domains(name: str, settings: Settings) -> None:
    """One, two and four source domains train, or are refused where `min_domains` says so."""
    for k in (1, 2, 4):
        if k < get(name).min_domains:
            _require_refusal(partial(toy_algorithm, name, n_domains=k, **settings), f"There are {k} domains.")
        else:
            _require_finite(run_steps(toy_algorithm(name, n_domains=k, **settings), toy_batches(k, b=2), 0, FEW))


def arrays(name: str, settings: Settings) -> None:
    """Features and signals train, or are refused where `needs_stages` or `needs_norms` says so."""
    for shape in ((6,), (2, 32)):
        if get(name).needs_stages or (get(name).needs_norms and shape == (6,)):  # a network without such layers
            hint = "Call `networks.stages.stages(featurizer)` in `__init__`, or leave `needs_stages` out."
            _require_refusal(partial(toy_algorithm, name, shape=shape, **settings), hint)
        else:
            _require_finite(run_steps(toy_algorithm(name, shape=shape, **settings), toy_batches(shape=shape), 0, FEW))


def bfloat16(name: str, settings: Settings) -> None:
    """Steps under bfloat16 autocast give finite metrics."""
    if not _computes_bfloat16():
        warnings.warn(
            "bfloat16 is not checked: this machine dies of it. Check the method on another one.", stacklevel=2
        )
        return
    with torch.autocast("cpu", torch.bfloat16):
        _require_finite(run_steps(toy_algorithm(name, **settings), toy_batches(b=2), 0, FEW))


def optimizer_settings(name: str, settings: Settings) -> None:
    """AdamW, a warm-up, a cosine schedule and clipping train g and h, and resuming ends with the same bits."""
    settings = {**settings, **OPTIMIZER, "steps": 4}
    whole, resumed = toy_algorithm(name, **settings), toy_algorithm(name, **settings)
    optimizer = whole.optimizer
    _require(isinstance(optimizer, AdamW), f"Use `build_model_optimizer`. Found a {type(optimizer).__name__}.")
    _require_finite(run_steps(whole, toy_batches(b=B), 0, 4))
    for step in range(4):
        run_steps(resumed, toy_batches(b=B), step, step + 1)
        state, resumed = copy_through_file(resumed.state_dict()), toy_algorithm(name, **settings)
        resumed.load_state_dict(state)
    require_same_tensors(get_tensors(whole), get_tensors(resumed))


def micro_batches(name: str, settings: Settings) -> None:
    """Micro-batches give the weights of the whole batch where `per_sample` is True, and are refused elsewhere."""
    settings = {**settings, "optimizer": "sgd", "steps": FEW}
    if not get(name).per_sample:
        _require_refusal(partial(toy_algorithm, name, accumulate=2, **settings), "Look for `per_sample`.")
        return
    batches = [(x.double(), y) for x, y in toy_batches(b=B)]
    whole, parts = (toy_algorithm(name, accumulate=n, **settings).double() for n in (1, 3))
    for algorithm in (whole, parts):
        run_steps(algorithm, batches, 0, FEW)
    for key, value in get_tensors(whole).items():
        same = torch.allclose(value, get_tensors(parts)[key], rtol=1e-9, atol=1e-12)
        _require(same, f"`{key}` depends on the size of the batch: its loss is not a mean over single samples.")


def targets(name: str, settings: Settings) -> None:
    """Soft labels and weights of samples train as `targets` declares: as classes, and as repeated samples."""
    settings = {**settings, "optimizer": "sgd", "steps": FEW}  # the first steps of Adam hardly depend on the loss
    hard = [(x.double(), y) for x, y in toy_batches(b=B)]
    soft = [(x, one_hot(y, CLASSES).double()) for x, y in hard]
    if get(name).targets == "classes":
        _require_refusal(lambda: run_steps(toy_algorithm(name, **settings), soft, 0, 1), "Declare its `targets`.")
        return
    _require_same_training(name, settings, hard, soft, "`targets` should be classes: y has other uses.")
    if get(name).targets == "weighted":
        copies = [torch.tensor([2, 1, 1, 0]).roll(e) for e in range(len(hard))]
        repeated = [(x.repeat_interleave(n, 0), y.repeat_interleave(n)) for n, (x, y) in zip(copies, hard)]
        weighted = [(x, n[:, None] * y) for n, (x, y) in zip(copies, soft)]
        hint = "`targets` should be soft: the loss depends on more than means of cross-entropies."
        _require_same_training(name, settings, repeated, weighted, hint)


def _require_same_training(name: str, settings: Settings, left: Batches, right: Batches, hint: str) -> None:
    one, other = (toy_algorithm(name, **settings).double() for _ in "12")
    for algorithm, batches in ((one, left), (other, right)):
        run_steps(algorithm, batches, 0, FEW)
    trained = get_tensors(other)
    for key, value in get_tensors(one).items():
        _require(torch.allclose(value, trained[key], rtol=1e-6, atol=1e-8), f"`{key}` differs. {hint}")


def recomputation(name: str, settings: Settings) -> None:
    """Activations that are computed again in the backward pass give the same weights, bit for bit."""
    if not get(name).recomputable:
        return
    settings = {**settings, "steps": FEW}
    stored, repeated = (toy_algorithm(name, recompute=recompute, **settings) for recompute in (False, True))
    for algorithm in (stored, repeated):
        run_steps(algorithm, toy_batches(b=B), 0, FEW)
    same = all(map(torch.equal, get_tensors(stored).values(), get_tensors(repeated).values()))
    _require(same, "Declare `recomputable = False` if weights or hooks change between forward and backward pass.")


OF_DECLARATIONS = (declarations, declared_settings, search_space, number_of_batches)
OF_TRAINING = (
    training,
    state,
    resume,
    prediction,
    test_time,
    order_of_domains,
    missing_class,
    number_of_domains,
    arrays,
    bfloat16,
    optimizer_settings,
    micro_batches,
    targets,
    recomputation,
)


# Run the checks


@dataclasses.dataclass(frozen=True)
class Check:
    """One property of one algorithm; call it to check it.

    `holds` is a function above that raises an error if the property does not hold, and `case` the
    name of the settings, empty for the defaults.
    """

    algorithm: str
    holds: Callable[[str, Settings], None]
    settings: Settings
    case: str = ""

    def __call__(self) -> None:
        try:
            with torch.random.fork_rng(devices=[]):  # the caller's random state is restored
                self.holds(self.algorithm, self.settings)
        except Exception as error:
            reason = str(error) if isinstance(error, AssertionError) else f"{type(error).__name__}: {error}"
            raise AssertionError(f"{self} fails. {(self.holds.__doc__ or '').strip()} {reason}") from error

    def __str__(self) -> str:
        return f"{self.algorithm}-{self.holds.__name__}" + (f"-{self.case}" if self.case else "")


def checks(name: str) -> list[Check]:
    """List the checks of one method; with pytest, each is a test: `parametrize("check", checks("mine"), ids=str)`.

    >>> [str(check) for check in checks("irm")][-2:]
    ['irm-recomputation', 'irm-recomputation-at_work']
    """
    algorithm = get(name)
    # Methods with a warm-up get enough steps to complete it; with `at_work` there is none.
    cases: dict[str, Settings] = {"": {"steps": 10 if algorithm.at_work else 5}}
    if algorithm.at_work:
        cases["at_work"] = {"steps": 5, **algorithm.at_work}
    cases.update({form: {"steps": 5, **algorithm.at_work, **settings} for form, settings in algorithm.forms.items()})
    of_declarations = [Check(name, holds, cases[""]) for holds in OF_DECLARATIONS]
    of_training = [Check(name, holds, cases[case], case) for holds in OF_TRAINING for case in cases]
    return of_declarations + of_training


def check_algorithm(name: str, *, verbose: bool = False) -> list[str]:
    """Run all checks on a registered method, plug-ins included, with toy networks; takes some seconds.

    Return the names of the checks. An AssertionError says which check fails and where to look. An unknown name, or a
    plug-in that cannot be imported, is a UserError.

    >>> check_algorithm("erm")[:3]
    ['erm-declarations', 'erm-declared_settings', 'erm-search_space']
    """
    passed = []
    for check in checks(name):
        check()
        passed.append(str(check))
        if verbose:
            print(f"{check}: passed")
    return passed


# Helpers


@dataclasses.dataclass(frozen=True)
class _Run:
    """Training of a toy without interruption: tensors before and after it, last metrics, changed plain attributes."""

    before: dict[str, Tensor]
    after: dict[str, Tensor]
    metrics: dict[str, Tensor]
    changed: list[str]


def _train(name: str, settings: Settings) -> _Run:
    """Train a toy; several checks look at the same run."""
    return _train_once(cast("Hashable", get(name)), name, **settings)  # mypy takes no class for hashable


@lru_cache(maxsize=4)
def _train_once(_: Hashable, name: str, **settings: Any) -> _Run:
    """Train a toy; the class is the first argument because a name can be registered anew."""
    algorithm = toy_algorithm(name, **settings)
    before, attributes = get_tensors(algorithm), _get_plain_attributes(algorithm)
    metrics = run_steps(algorithm, toy_batches(b=B), 0, settings["steps"])
    changed = sorted(key for key, v in _get_plain_attributes(algorithm).items() if v != attributes.get(key))
    return _Run(before, get_tensors(algorithm), metrics, changed)


def require_same_tensors(left: Mapping[str, Tensor], right: Mapping[str, Tensor]) -> None:
    """Require that the tensors of two states are bit-identical."""
    _require(left.keys() == right.keys(), f"Only one of two states has {sorted(left.keys() ^ right.keys())}.")
    different = [key for key in left if not torch.equal(left[key], right[key])]
    _require(
        not different,
        f"Different: {', '.join(different)}. Look for state outside `state_dict()`, and for random numbers from other "
        "generators than torch's global one.",
    )


def copy_through_file(state: dict[str, Any]) -> dict[str, Any]:
    """Save and load a state as in a checkpoint: only tensors and plain values are allowed."""
    buffer = io.BytesIO()
    torch.save(state, buffer)
    buffer.seek(0)
    loaded: dict[str, Any] = torch.load(buffer, weights_only=True)
    return loaded


def get_tensors(algorithm: Algorithm) -> dict[str, Tensor]:
    """Copy the tensors of the state."""
    return {key: value.clone() for key, value in algorithm.state_dict().items() if isinstance(value, Tensor)}


def _require(holds: bool | Tensor, sentence: str) -> None:
    if not holds:
        raise AssertionError(sentence)


def _require_finite(metrics: Mapping[str, Tensor]) -> None:
    broken = {key: value.item() for key, value in metrics.items() if not value.isfinite()}
    _require(not broken, f"Metrics should be finite. Found {broken}.")


@cache
def _computes_bfloat16() -> bool:
    """Try bfloat16 in a process of its own: where it is broken, an illegal instruction ends the process."""
    code = (
        "import torch; from torch import nn; net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Flatten(), nn.Linear(288, 4))\n"
        "with torch.autocast('cpu', torch.bfloat16): net(torch.rand(4, 3, 8, 8)).sum().backward()"
    )
    return subprocess.run([sys.executable, "-c", code], capture_output=True).returncode >= 0  # negative: a signal


def _require_refusal(call: Callable[[], object], hint: str) -> None:
    try:
        call()
    except UserError:
        return
    raise AssertionError(f"Expected a UserError. Found none. {hint}")


def _get_plain_attributes(algorithm: Algorithm) -> dict[str, object]:
    """Take fingerprints of all attributes of all modules that are not in `state_dict()`."""
    internal = vars(nn.Module()).keys()
    attributes: Iterable[tuple[str, object]] = (
        (f"{path}.{key}" if path else key, value)
        for path, module in algorithm.named_modules()
        for key, value in vars(module).items()
        if key not in internal and not isinstance(value, Optimizer) and (path, key) != ("", "updates")
    )
    return {key: _fingerprint(value) for key, value in attributes}


def _fingerprint(value: object) -> object:
    """Return what is equal if `value` has not changed: its pickle, or its id if it cannot be pickled."""
    try:
        return pickle.dumps(value)
    except Exception:  # lambdas, locks, classes defined in a function
        return id(value)
