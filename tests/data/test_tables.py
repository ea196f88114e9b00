"""Tables of features: kinds of columns, missing values, and an encoding that is learned in training only."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fgmix.data import load
from fgmix.data.standardisation import fit_standardisation
from fgmix.data.tables import encode_table, is_table, load_table
from fgmix.errors import UserError
from fgmix.records.columns import Column

ROWS = """label,domain,age,sex,ward:category,chol,patient:ignore
ill,a,60,m,1,200,p1
well,a,40,f,2,,p2
ill,b,50,m,1,?,p3
well,b,30,x,3,100,p4
"""


@pytest.fixture
def table(tmp_path: Path) -> Path:
    (tmp_path / "t.csv").write_text(ROWS)
    return tmp_path / "t.csv"


def test_columns_are_detected_or_declared(table: Path) -> None:
    data = load(str(table))
    assert data.columns == (
        Column("age", "number"),
        Column("sex", "category", ("f", "m", "x")),
        Column("ward", "category", ("1", "2", "3")),
        Column("chol", "number", marks_missing=True),
    )
    assert data.classes == ("ill", "well")
    assert data.domain_names == ("a", "b")
    expected = [[60, 0, 1, 0, 1, 0, 0, 200, 0], [40, 1, 0, 0, 0, 1, 0, np.nan, 1]]
    np.testing.assert_array_equal(data.domains[0].inputs.x, expected)  # type: ignore[attr-defined]


def test_parquet_equals_csv(table: Path, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    from pyarrow import csv, parquet

    parquet.write_table(csv.read_csv(table), tmp_path / "t.parquet")
    assert load(str(tmp_path / "t.parquet")).fingerprint == load(str(table)).fingerprint


def test_what_is_learned_is_of_the_training_domains(table: Path) -> None:
    a, b = load(str(table)).domains
    standard = fit_standardisation([(a, np.arange(2))], tail=0)
    x = b.inputs.x  # type: ignore[attr-defined]
    z = standard(x)
    assert np.isfinite(z).all()
    assert z[0, 7] == 0  # missing: the mean of domain a
    assert (z[:, [3, 6]] == 0).all()  # category x and ward 3 occur in b only
    np.testing.assert_allclose(z[:, 0], (x[:, 0] - 50) / 10)
    other = fit_standardisation([(a, np.arange(2)), (b, np.arange(0))], tail=0)
    np.testing.assert_array_equal(other.mean, standard.mean)


def test_new_tables_are_encoded_by_known_columns(table: Path, tmp_path: Path) -> None:
    columns = load(str(table)).columns
    new = tmp_path / "new.csv"
    new.write_text("chol,sex,ward,age,more\n,unknown,2,70,1\n")
    np.testing.assert_array_equal(encode_table(new, columns), [[70, 0, 0, 0, 0, 1, 0, np.nan, 1]])
    new.write_text("chol,sex,ward\n1,m,2\n")
    with pytest.raises(UserError, match="age"):
        encode_table(new, columns)
    new.write_text("chol,sex,ward,age\n1,m,2,old\n")
    with pytest.raises(UserError, match="age"):
        encode_table(new, columns)


def test_manifests_are_no_tables(tmp_path: Path) -> None:
    (tmp_path / "m.csv").write_text("path,label,domain\nx.png,a,b\n")
    assert not is_table(tmp_path / "m.csv")
    (tmp_path / "t.csv").write_text("label,site,age\na,b,1\n")
    assert is_table(tmp_path / "t.csv")
    with pytest.raises(UserError, match="no domain among 'label', 'site', 'age'"):
        load(str(tmp_path / "t.csv"))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("label,domain,age\n", "none"),
        ("label,domain\na,b\n", "columns of features"),
        ("label,domain,age\na,b\n", "line 2"),
        ("label,domain,age\n,b,3\n", "label"),
        ("label,domain,age:number\na,b,old\n", "age"),
        ("label,domain,age\na,b,inf\n", "infinity"),
        ("label,domain,age,age:number\na,b,1,1\n", "age"),
        ("label,domain,id:category\n" + "".join(f"a,b,n{i}\n" for i in range(201)), "id:ignore"),
        ("label,domain,patient\n" + "".join(f"a,b,n{i % 30}\n" for i in range(120)), "rename it 'group'"),
        ("label,domain,Group,x\na,b,p1,3\n", "group"),
    ],
)
def test_bad_tables_are_refused(text: str, found: str, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(UserError, match=found):
        load(str(tmp_path / "t.csv"))


def test_tables_are_joined_without_ignored_columns(tmp_path: Path) -> None:
    for name, text in (
        ("one", "label,domain,x,id:ignore\n0,a,1,p\n1,a,2,q\n"),
        ("two", "label,domain,x\n0,b,3\n1,b,4\n"),
    ):
        (tmp_path / f"{name}.csv").write_text(text)
    joined = load_table(tmp_path / "one.csv", tmp_path / "two.csv")
    assert (joined.domain_names, joined.input_shape) == (("a", "b"), (1,))


def test_columns_that_may_identify_rows_are_noted(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(
        "label,domain,id,x\n" + "".join(f"{i % 2},{i % 3},{i},{i % 5}\n" for i in range(60))
    )
    (note,) = load(str(tmp_path / "t.csv")).notes
    assert "'id'" in note


@pytest.mark.parametrize(("label", "found"), [("0.5", "0.5 in row 2"), ("7", None)])
def test_targets_of_a_regression_are_refused(label: str, found: str | None, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(f"label,domain,age\n1,a,60\n{label},a,40\n1,b,50\n{label},b,30\n")
    if found:
        with pytest.raises(UserError, match=found):
            load(str(tmp_path / "t.csv"))
    else:
        assert load(str(tmp_path / "t.csv")).classes == ("1", "7")
