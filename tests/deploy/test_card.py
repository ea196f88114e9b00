"""The card: sensitivity and specificity against scikit-learn, and the page."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
from msgspec import structs
from sklearn.metrics import multilabel_confusion_matrix

from deploy.made import vectors
from deploy.test_estimate import held_out
from fgmix import fit
from fgmix.deploy.card import model_card, render_html
from fgmix.deploy.estimate import estimate
from fgmix.deploy.summary import describe_interval, summarize_model
from fgmix.records.model import Estimate, Overlap


def test_the_card_has_rates_of_every_class_and_is_a_page_too(tmp_path: Path) -> None:
    model = fit(vectors(), tmp_path / "model", algorithm="erm", steps=30, progress=False)
    card = (tmp_path / "model" / "card.md").read_text()
    assert model.info.estimate is not None
    confusion = sum(np.array(metrics.confusion) for metrics in model.info.estimate.metrics.values())
    true, predicted = (np.repeat(index, confusion.ravel()) for index in np.indices(confusion.shape).reshape(2, -1))
    for name, ((tn, fp), (fn, tp)) in zip(model.info.classes, multilabel_confusion_matrix(true, predicted)):
        assert f"| {name} | {100 * tp / (tp + fn):.1f} % | {100 * tn / (tn + fp):.1f} % |" in card
    page = (tmp_path / "model" / "card.html").read_text()
    assert "<blockquote>" in page
    links = re.findall(r'href="#([^"]+)"', page)
    assert links
    assert all(f'<h2 id="{link}">' in page for link in links)
    assert page.count("<table>") == card.count("\n| --- |")
    assert "<img src=x>" not in render_html("# <img src=x>", model.info)


def test_a_classifier_is_not_described_as_a_network(tmp_path: Path) -> None:
    network, classifier = (
        fit(vectors(), tmp_path / name, progress=False, **how) and (tmp_path / name / "card.md").read_text()
        for name, how in (("erm", {"algorithm": "erm", "steps": 30}), ("svm", {"recipes": ["svm"]}))
    )
    for words in ("Initial weights", "30 steps of", "selected by"):
        assert words in network
        assert words.replace("30", "300") not in classifier
    assert "kernel, C = 3, trained on all samples" in classifier


def test_two_domains_that_are_alike_have_samples_enough(tmp_path: Path) -> None:
    info = fit(vectors(2), tmp_path / "model", algorithm="erm", steps=30, progress=False).info
    assert info.estimate is not None
    assert info.estimate.interval is None
    estimate = structs.replace(info.estimate, floor=1.0)
    assert "so few" not in model_card(structs.replace(info, estimate=estimate))


def test_too_few_samples_are_told_from_domains_that_differ() -> None:
    def describe(correct: list[int], n: int) -> Estimate:
        return estimate([held_out(str(number), c, n) for number, c in enumerate(correct)])

    few, far, near = describe([8, 9, 8], 12), describe([60, 120, 30], 120), describe([100, 108, 94], 120)
    assert [each.has_few_samples for each in (few, far, near)] == [True, False, False]
    assert "too few samples" in describe_interval(few)
    assert "differ" in describe_interval(far)
    assert near.is_informative


def test_a_rule_that_held_out_domains_could_not_test_is_not_called_none(tmp_path: Path) -> None:
    model = fit(vectors(), tmp_path / "model", algorithm="erm", steps=30, progress=False)
    info = model.info
    assert info.estimate is not None
    untested = [structs.replace(each, trusted=0.0, trusted_accuracy=None) for each in info.estimate.domains]
    estimate = structs.replace(info.estimate, domains=tuple(untested))
    assert "could not test" in summarize_model(structs.replace(info, estimate=estimate))[-1]
    wrong = [structs.replace(each, trusted=0.5, trusted_accuracy=0.6) for each in info.estimate.domains]
    failed = structs.replace(info, estimate=structs.replace(info.estimate, domains=tuple(wrong)))
    assert "check all" in summarize_model(failed)[-1]
    *_, line = summarize_model(structs.replace(info, overlap=Overlap(None, 6)))  # the estimate is not for new objects
    assert "6 images" in line
    never = structs.replace(info, estimate=estimate, min_confidence=(None,) * len(info.classes))
    assert summarize_model(never)[-1].startswith("Trusted: no prediction")


def test_domains_with_the_same_result_are_not_named_as_a_range(tmp_path: Path) -> None:
    info = fit(vectors(), tmp_path / "model", algorithm="erm", steps=30, progress=False).info
    assert info.estimate is not None
    domains = info.estimate.domains
    same = tuple(structs.replace(each, metrics=domains[0].metrics) for each in domains)
    seen = summarize_model(structs.replace(info, estimate=structs.replace(info.estimate, domains=same)))[1]
    assert f"{100 * domains[0].metrics.accuracy:.1f} %" in seen
    assert not any(each.domain in seen for each in domains)
