"""Datasets from arrays and .npz files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from fgmix.data import from_arrays, load
from fgmix.data.standardisation import fit_standardisation
from fgmix.errors import UserError

X = np.arange(24, dtype=np.float64).reshape(8, 3)
Y = np.array(["b", "a"] * 4)
D = np.array([1, 1, 1, 1, 0, 0, 0, 0])


def test_names_and_numbers() -> None:
    data = from_arrays(X, Y, D)
    assert data.classes == ("a", "b")
    assert data.domain_names == ("0", "1")
    assert data.domains[0].y.tolist() == [1, 0, 1, 0]
    assert torch.equal(data.domains[1].inputs.clean(np.array([0, 2])), torch.tensor(X[[0, 2]]).float())
    assert (data.kind, data.input_shape) == ("features", (3,))


def test_integer_labels_take_the_names_given() -> None:
    data = from_arrays(X, np.arange(8) % 2, D, classes=["cat", "dog", "cow"], domains=["ct", "mr"])
    assert data.classes == ("cat", "dog", "cow")
    assert data.domain_names == ("ct", "mr")


def test_uint8_images_are_scaled() -> None:
    images = np.full((4, 3, 2, 2), 255, dtype=np.uint8)
    data = from_arrays(images, [0, 1, 0, 1], [0, 0, 1, 1])
    assert data.kind == "small_images"
    assert torch.equal(data.domains[0].inputs.clean(np.array([0])), torch.ones(1, 3, 2, 2))


def test_double_precision_is_kept_only_where_single_precision_loses_the_spread() -> None:
    constant = np.concatenate([X + 0.1, np.full((8, 1), 0.1), np.arange(8)[:, None] % 2 * 1e30], axis=1)
    for x in (X, constant, X.astype(np.float32) + np.float32(1e9), X.astype(np.int64)):
        data = from_arrays(x, Y, D)
        assert data.domains[0].inputs.x.dtype == np.float32
        assert data.fingerprint == from_arrays(x.astype(np.float32), Y, D).fingerprint
    for x in (X + 1.6e9, X.astype(np.int64) + 1_600_000_000):
        assert from_arrays(x, Y, D).domains[1].inputs.x.tolist() == (X[:4] + 1.6e9).tolist()


@pytest.mark.parametrize("dtype", [np.int16, np.int64, np.uint32])
def test_images_of_unknown_scale_are_refused(dtype: type) -> None:
    with pytest.raises(UserError, match="11000"):
        from_arrays(np.full((4, 3, 2, 2), 11000, dtype), [0, 1, 0, 1], [0, 0, 1, 1])
    assert from_arrays(np.ones((4, 3, 2, 2), dtype), [0, 1, 0, 1], [0, 0, 1, 1]).notes == ()


@pytest.mark.parametrize("missing", [None, np.nan, "None", "NaN", "<NA>", "NaT", " nan "])
def test_a_missing_label_is_no_class(missing: object) -> None:
    with pytest.raises(UserError, match="row 2"):
        from_arrays(X, np.array(["a", "b", missing, *"abaab"], dtype=object), D)


def test_arrays_of_other_lengths_are_refused(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "a.npz", X=np.zeros((1000, 10)), y=Y, domain=D)
    with pytest.raises(UserError, match="1000,"):
        load(str(tmp_path / "a.npz"))


def test_the_fingerprint_sees_every_number() -> None:
    base = from_arrays(X, Y, D).fingerprint
    assert base == from_arrays(X.copy(), Y.copy(), D.copy()).fingerprint
    changed = X.copy()
    changed[7, 2] += 1
    assert len({base, from_arrays(changed, Y, D).fingerprint, from_arrays(X, Y[::-1], D).fingerprint}) == 3


def test_signals_have_channels_and_time() -> None:
    data = from_arrays(np.zeros((8, 2, 50), np.int16), Y, D)
    assert (data.kind, data.input_shape, data.notes) == ("signals", (2, 50), ())
    (note,) = from_arrays(np.zeros((8, 28, 28), np.uint8), Y, D).notes
    assert "28 channels" in note, "grey images without the axis of channels"


def test_a_channel_that_single_precision_would_lose_stays_double() -> None:
    x = np.random.default_rng(0).normal(size=(8, 2, 5)) + 1.6e9
    data = from_arrays(x, Y, D)
    standard = fit_standardisation((domain, np.arange(4)) for domain in data.domains)
    expected = (x - x.mean((0, 2), keepdims=True)) / x.std((0, 2), keepdims=True)
    np.testing.assert_allclose(standard(x), expected, atol=1e-4)


@pytest.mark.parametrize(
    ("x", "y", "domain", "sentence"),
    [
        (X[:, 0], Y, D, r"signals \(n, channels, time\)"),
        (X, Y[:5], D, r"y \(5,\)"),
        (X[:0], Y[:0], D[:0], r"\(0, 3\)"),
        (np.where(X == 5, np.nan, X), Y, D, "row 1"),
        (X.astype(str), Y, D, "Expected real numbers in x"),
        (X.astype(complex), Y, D, "Expected real numbers in x"),
        (X.astype(float) * 1e300, Y, D, "row 0"),
        (X, np.where(Y == "a", "a\udcff", Y), D, "valid UTF-8"),
        (X, np.ones((8, 2)), D, r"sum to 1 in the rows of y \(several labels"),
        (X, Y[:, None], D, r"Found y \(8, 1\)"),
        (X, np.linspace(0, 1, 8), D, r"no regression.*Found 0\.14285.* in row 1 \(6 such rows\)"),
    ],
)
def test_mistakes_in_arrays(x: np.ndarray, y: np.ndarray, domain: np.ndarray, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        from_arrays(x, y, domain)


def test_labels_beyond_the_names_are_refused() -> None:
    with pytest.raises(UserError, match=r"within 0…1.*Found 0…2"):
        from_arrays(X, np.arange(8) % 3, D, classes=["a", "b"])
    with pytest.raises(UserError, match="Class names should differ"):
        from_arrays(X, np.arange(8) % 2, D, classes=["a", "a"])


def test_npz_round_trip(tmp_path: Path) -> None:
    np.savez(tmp_path / "scans.npz", X=X, y=np.arange(8) % 2, domain=D, domains=["ct", "mr"], classes=["no", "yes"])
    data = load(str(tmp_path / "scans.npz"))
    assert (data.name, data.domain_names, data.classes) == ("scans", ("ct", "mr"), ("no", "yes"))


def test_npz_has_groups_and_weights(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", X=X, y=Y, domain=D, group=list("aabbccdd"), sample_weight=np.arange(8))
    data = load(str(tmp_path / "a.npz"))
    assert [d.groups.tolist() for d in data.domains] == [[2, 2, 3, 3], [0, 0, 1, 1]]
    assert [d.weights.tolist() for d in data.domains] == [[4, 5, 6, 7], [0, 1, 2, 3]]
    assert not data.notes


def test_fingerprints_stay_what_they_were() -> None:
    """Runs are named after them: another fingerprint for the same arrays would be another run."""
    x = np.arange(16.0).reshape(8, 2) / 7
    assert from_arrays(x, list("abababab"), D).fingerprint == "570bc189bb740bfb5857631be22caf13"
    pixels = (10 * x).astype(np.uint8)
    named = from_arrays(pixels, np.arange(8) % 3, D, domains=["p", "q"])
    assert named.fingerprint == "6e9d2a537ba03550116854de5d24c7c7"


def test_texts_in_other_types_are_texts() -> None:
    expected = from_arrays(X, Y, D)
    for y in (Y.astype(object), Y.astype("S"), list(Y)):
        assert from_arrays(X, y, D).fingerprint == expected.fingerprint
    numbers = np.arange(8) % 2
    named = from_arrays(X, numbers, D, classes=["a", "b"])
    for y in (numbers.astype(float), numbers.astype(object), numbers.astype(np.uint8)):
        assert from_arrays(X, y, D, classes=["a", "b"]).fingerprint == named.fingerprint


def test_what_is_not_used_is_noted(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", X=X, y=Y, domain=D, domains=["p", "q", "r"], Sizes=Y, ids=D)
    assert load(str(tmp_path / "a.npz")).notes == (
        "Domains without a sample are left out: r.",
        "Arrays that are not used: Sizes, ids.",
    )


@pytest.mark.shared
def test_pacs_features(shared_data: Path) -> None:
    data = load(str(shared_data / "pacs_resnet50_features.npz"))
    assert data.domain_names == ("art_painting", "cartoon", "photo", "sketch")
    assert [len(domain) for domain in data.domains] == [2048, 2344, 1670, 3929]
    assert data.input_shape == (2048,)


def test_unknown_names_and_paths() -> None:
    with pytest.raises(UserError, match="Did you mean 'digits'"):
        load("digit")
    with pytest.raises(UserError, match="Found nothing there"):
        load("./no/such/folder")
