"""Mirrors on the hub: images in DomainBed's order, or a refusal that names the difference."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from data.hub_stand_in import Hub, serving
from data.pictures import picture
from fgmix.data import sources as hub
from fgmix.data.download import download
from fgmix.data.folders import scan_folder
from fgmix.data.sources import MirrorImage, arrange_mirror, fetch_mirror, order_digest
from fgmix.errors import MachineError, UserError
from fgmix.records.benchmarks import BENCHMARKS

PACS, OFFICE = BENCHMARKS["PACS"], BENCHMARKS["OfficeHome"]
GB = 10**9


def image(seed: int) -> bytes:
    file = io.BytesIO()
    picture(seed).save(file, "JPEG")
    return file.getvalue()


def pacs_rows() -> list[MirrorImage]:
    """Three images of each class of PACS, in the order of their names."""
    places = [(domain, label) for domain in PACS.domains for label in PACS.classes or ()]
    return [
        MirrorImage(*place, f"pic_{i:03d}.jpg", image(3 * number + i))
        for number, place in enumerate(places)
        for i in range(3)
    ]


@pytest.fixture
def mirror(monkeypatch: pytest.MonkeyPatch) -> list[MirrorImage]:
    """Rows that stand for a parquet file, and the digests of the original that they are: a test changes the rows."""
    rows = pacs_rows()
    orders = {}
    for place in {(row.domain, row.label) for row in rows}:
        digests = [sha256(row.content).digest() for row in rows if (row.domain, row.label) == place]
        orders[place] = order_digest(digests), order_digest(sorted(digests))
    monkeypatch.setattr(hub, "_known_orders", lambda: {"PACS": orders})

    def read_rows(_: Path, *, contents: bool = True) -> Iterator[MirrorImage]:
        return (row if contents else MirrorImage(row.domain, row.label, row.name, b"") for row in rows)

    monkeypatch.setattr(hub, "read_rows", read_rows)
    return rows


def without_names(rows: Sequence[MirrorImage]) -> list[MirrorImage]:
    return [MirrorImage(row.domain, row.label, "", row.content) for row in rows]


def arranged(folder: Path, benchmark: Any = PACS, most: int = GB) -> str:
    return arrange_mirror(benchmark, [Path("0.parquet")], folder, most)


def contents(folder: Path) -> list[bytes]:
    """Of the files of a folder, in the order that splits follow."""
    return [(folder / file.path).read_bytes() for file in scan_folder(folder).files]


def test_files_have_their_names_whatever_the_order_of_rows(mirror: list[MirrorImage], tmp_path: Path) -> None:
    original = [row.content for row in mirror]
    mirror.reverse()
    assert "are those of the original" in arranged(tmp_path)
    assert (tmp_path / "photo" / "dog" / "pic_002.jpg").exists()
    assert contents(tmp_path) == original


def test_without_names_the_order_of_rows_counts(mirror: list[MirrorImage], tmp_path: Path) -> None:
    original = [row.content for row in mirror]
    mirror[:] = without_names(mirror)
    arranged(tmp_path / "same")
    assert contents(tmp_path / "same") == original
    mirror[0], mirror[1] = mirror[1], mirror[0]
    with pytest.raises(UserError, match=r"the same files in another order in art_painting/dog: splits"):
        arranged(tmp_path / "swapped")


def test_other_files_are_refused(mirror: list[MirrorImage], tmp_path: Path) -> None:
    mirror[-1] = MirrorImage("sketch", "person", "pic_002.jpg", image(999))
    with pytest.raises(UserError, match=r"Found other files in sketch/person: splits"):
        arranged(tmp_path)


def test_a_benchmark_whose_order_is_not_known_needs_names(mirror: list[MirrorImage], tmp_path: Path) -> None:
    mirror[:] = [MirrorImage(domain, "Bed", f"{i}.jpg", image(i)) for i, domain in enumerate(("Art", "Real_World"))]
    assert "could not be verified" in arranged(tmp_path / "named", OFFICE)
    assert (tmp_path / "named" / "Real World" / "Bed" / "1.jpg").exists()
    mirror[:] = without_names(mirror)
    with pytest.raises(UserError, match="OfficeHome"):
        arranged(tmp_path / "nameless", OFFICE)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (MirrorImage("mars", "dog", "1.jpg", b""), "Found 'mars'"),
        (MirrorImage("photo", "../dog", "1.jpg", b""), "Do not trust it"),
        (MirrorImage("photo", "dog", ".bashrc", b""), "Do not trust it"),
    ],
)
def test_names_of_a_mirror_are_not_trusted(
    mirror: list[MirrorImage], tmp_path: Path, row: MirrorImage, message: str
) -> None:
    mirror[0] = row
    with pytest.raises(UserError, match=message):
        arranged(tmp_path)


def test_the_bound_holds(mirror: list[MirrorImage], tmp_path: Path) -> None:
    with pytest.raises(UserError, match="Raise --max-gb"):
        arranged(tmp_path, most=sum(len(row.content) for row in mirror) - 1)


def test_files_are_fetched_from_the_hub_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {
        "README.md": b"#",
        "data/train-00000-of-00002.parquet": b"one",
        "data/train-00001-of-00002.parquet": b"two",
    }
    with serving(Hub("flwrlabs/pacs", files)) as site:
        monkeypatch.setenv("HF_ENDPOINT", site.url)
        for _ in range(2):
            found = fetch_mirror("flwrlabs/pacs", tmp_path)
        assert [path.read_bytes() for path in found] == [b"one", b"two"]
        assert site.downloads == sorted(name for name in files if name.endswith(".parquet"))
        with pytest.raises(MachineError, match="Check the network"):
            fetch_mirror("somebody/else", tmp_path)


def test_a_mirror_becomes_the_benchmark(
    mirror: list[MirrorImage], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From a parquet file on the hub to the folder that `load` finds."""
    arrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    rows, classes = list(mirror), list(PACS.classes or ())
    monkeypatch.undo()  # of `mirror`: the real reader
    table = arrow.table(
        {
            "image": [{"bytes": row.content, "path": f"somewhere/{row.name}"} for row in rows],
            "domain": [row.domain for row in rows],
            "label": [classes.index(row.label) for row in rows],
        }
    ).replace_schema_metadata({"huggingface": json.dumps({"info": {"features": {"label": {"names": classes}}}})})
    file = io.BytesIO()
    parquet.write_table(table, file)
    monkeypatch.setattr(hub, "_known_orders", dict)
    with serving(Hub("flwrlabs/pacs", {"data/train.parquet": file.getvalue()})) as site:
        monkeypatch.setenv("HF_ENDPOINT", site.url)
        done = download("PACS", tmp_path, from_hub=True, progress=False)
    assert done.folder == tmp_path / "PACS"
    assert contents(done.folder) == [row.content for row in rows]
    assert "could not be verified" in done.notes[-1]
    assert not (tmp_path / ".PACS.download").exists()


def test_the_real_order_of_pacs_is_known(shared_data: Path) -> None:
    """One class of each domain, from the original."""
    known = hub._known_orders()["PACS"]
    assert len(known) == len(PACS.domains) * PACS.n_classes
    for domain in PACS.domains:
        files = sorted((shared_data / "PACS" / domain / "guitar").iterdir())
        assert order_digest(sha256(file.read_bytes()).digest() for file in files) == known[domain, "guitar"][0]


def test_what_has_no_mirror_or_no_reader_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="VLCS"):
        download("VLCS", tmp_path, from_hub=True)
    monkeypatch.setattr("fgmix.errors.find_spec", lambda _: None)
    with pytest.raises(UserError, match=r"pip install 'fgmix\[hub\]'"):
        download("PACS", tmp_path, from_hub=True)
    with pytest.raises(UserError, match="Drop one of them"):
        download("PACS", tmp_path, from_hub=True, urls=["https://example.org/PACS.zip"])
