"""What methods and datasets declare, for `fgmix list`, which need not wait for torch.

Our own declarations are literals, so they are read from the source. Those of plug-ins can be anything: with plug-ins,
the registries of `algorithms` and `data` list all.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from fgmix.errors import unknown
from fgmix.records.benchmarks import BENCHMARKS

_SOURCE = Path(__file__).resolve().parent.parent
# Groups of methods, in `fgmix list algorithms --family` and in the docs.
FAMILIES = {
    "baseline": "the mean risk of the source domains, and nothing else",
    "mixup": "mixtures of samples or codes and of their labels",
    "style": "styles of images or feature maps exchanged or removed",
    "augmentation": "images made by a generator",
    "alignment": "code distributions of the domains made equal",
    "adversarial": "training against an adversary, such as one that predicts the domain from the code",
    "penalty": "a penalty on the domains' risks, logits or codes",
    "masking": "masks on the features that the classifier relies on most",
    "robust": "weights or quantiles of the domains' risks",
    "gradient": "the domains' gradients compared, matched or masked",
    "meta-learning": "steps on some domains that must help others",
    "context": "a prediction that depends on the domain",
    "flatness": "minima around which the loss stays low",
    "averaging": "averages of weights",
    "text": "texts that stand for the classes, on backbones with a text tower",
    "test-time": "adaptation to the unlabelled samples of a new domain as it predicts them",
}
_DECLARED = {
    *("label", "year", "paper", "family", "cost", "keeps"),
    *("min_domains", "needs_stages", "head", "needs_norms"),
}


# Of a docstring: Authors, "Title", 2016, https://arxiv.org/abs/1607.01719; between year and link, a place in the paper
_REFERENCE = re.compile(r'"[^"]+",\s+(\d{4}),\s+(?:[^"]{0,40}?,\s+)?(https://\S+?)[.,;)]*(?=\s|$)')


@dataclass(frozen=True)
class Overview:
    """A row of the table of methods; texts are empty if a method does not declare them.

    `cost` is that of a step relative to ERM in floating-point operations, such as "1.3"; `needs` names several domains,
    feature maps, further networks, …
    """

    name: str
    label: str
    year: str
    family: str
    cost: str
    needs: str
    paper: str


def find_reference(docstring: str | None) -> dict[str, Any]:
    """Find the year of a method's paper and its link in the docstring; empty if it has no reference.

    >>> find_reference('Sun and Saenko, "Deep CORAL", 2016, https://arxiv.org/abs/1607.01719. Variant: …')
    {'year': 2016, 'paper': 'https://arxiv.org/abs/1607.01719'}
    """
    found = _REFERENCE.search(docstring or "")
    return {"year": int(found[1]), "paper": found[2]} if found else {}


def describe_method(name: str, declared: Any) -> Overview:
    """Describe a method by what its class declares."""
    needs = [
        f"{declared.min_domains} domains" if declared.min_domains > 1 else "",
        "feature maps" if declared.needs_stages else "",
        "a text tower" if declared.head else "",
        "normalisation layers" if declared.needs_norms else "",
        declared.keeps or "",
    ]
    return Overview(
        name=name,
        label=declared.label,
        year=str(declared.year or ""),
        family=declared.family or "",
        cost="" if declared.cost is None else f"{declared.cost:g}",
        needs=", ".join(filter(None, needs)),
        paper=declared.paper or "",
    )


def filter_family(rows: Iterable[Overview], family: str | None) -> list[Overview]:
    """Return the rows of the methods of one family; all if it is None."""
    if family is not None and family not in FAMILIES:
        raise unknown("family", family, FAMILIES)
    return [row for row in rows if family in (None, row.family)]


def read_overview() -> list[Overview]:
    """Read the rows of our own methods from their source, sorted by name.

    >>> [row.year for row in read_overview() if row.name == "coral"]
    ['2016']
    """
    classes = {node.name: node for node in _parse_room("algorithms") if isinstance(node, ast.ClassDef)}
    rows = [
        describe_method(name, SimpleNamespace(**_read_class(node, classes)))
        for node in classes.values()
        for name, *_ in (*_read_calls(node, "register"), *_read_calls(node, "register_wrapper"))
    ]
    return sorted(rows, key=lambda row: row.name)


def read_summaries() -> dict[str, str]:
    """Read the one-line summaries of our own datasets, sorted by name.

    >>> read_summaries()["PACS"][:23]
    '9,991 images, 7 classes'
    """
    calls = [call for node in _parse_room("data") for call in _read_calls(node, "register_dataset")]
    return dict(sorted([*((name, each.summary) for name, each in BENCHMARKS.items()), *calls]))


def _parse_room(room: str) -> Iterator[ast.stmt]:
    """Yield the statements at the top of the files of a room."""
    for path in sorted((_SOURCE / room).glob("*.py")):
        yield from ast.parse(path.read_bytes()).body


def _read_calls(node: ast.stmt, decorator: str) -> list[tuple[Any, ...]]:
    """Read the positional arguments of a decorator of a function or a class."""
    calls = [each for each in getattr(node, "decorator_list", ()) if isinstance(each, ast.Call)]
    return [tuple(map(ast.literal_eval, call.args)) for call in calls if ast.unparse(call.func) == decorator]


def _read_class(node: ast.ClassDef, classes: Mapping[str, ast.ClassDef]) -> dict[str, Any]:
    """Read what a class and its bases among `classes` declare for the table."""
    declared: dict[str, Any] = {}
    for base in map(ast.unparse, reversed(node.bases)):
        if base in classes:
            declared |= _read_class(classes[base], classes)
    declared |= find_reference(ast.get_docstring(node))
    for each in node.body:
        target = each.targets[0] if isinstance(each, ast.Assign) else getattr(each, "target", None)
        if isinstance(each, ast.Assign | ast.AnnAssign) and isinstance(target, ast.Name) and target.id in _DECLARED:
            declared[target.id] = ast.literal_eval(each.value) if each.value else None
    return declared
