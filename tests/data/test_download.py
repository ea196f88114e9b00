"""`download`: every benchmark from a tiny archive of its published layout, over a real server or from a file."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from cli.test_cli import call
from data.http_site import Site, serving
from data.pictures import make_folder
from fgmix.data import LoadOptions, fetch, load, sources
from fgmix.data import download as module
from fgmix.data.download import Download, download
from fgmix.data.fetch import BadArchive
from fgmix.data.sources import SOURCES, RemoteFile, find_domains
from fgmix.errors import UserError
from fgmix.records.benchmarks import BENCHMARKS, Benchmark
from fgmix.records.locks import hold_lock

PACS, TERRA, DOMAIN_NET = (BENCHMARKS[name] for name in ("PACS", "TerraIncognita", "DomainNet"))


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(fetch, "ATTEMPTS", 2)
    monkeypatch.setattr(fetch, "WAIT", 0)
    with serving(Site()) as site:
        yield site


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "data"


def get(name: str, root: Path, **options: object) -> Download:
    return download(name, root, progress=False, **options)  # type: ignore[arg-type]


def packed(folder: Path, archive: Path) -> Path:
    """`folder` with its own name, as the archive's suffix says."""
    form = "zip" if archive.suffix == ".zip" else "gztar"
    base = str(archive).removesuffix(".zip").removesuffix(".tar.gz")
    return Path(shutil.make_archive(base, form, folder.parent, folder.name))


def layout(benchmark: Benchmark) -> dict[str, dict[str, list[str]]]:
    classes = (benchmark.classes or ("aircraft_carrier", "zigzag"))[:2]
    return {domain: {label: ["1.png", "2.png"] for label in classes} for domain in benchmark.domains}


def published(name: str, tmp_path: Path) -> Path:
    """PACS, VLCS or OfficeHome as it is published: one archive, with a folder of its own name around the domains."""
    wrapper = {"PACS": "kfold", "VLCS": "VLCS", "OfficeHome": "OfficeHomeDataset_10072016"}[name]
    folder = make_folder(tmp_path / "made" / wrapper, layout(BENCHMARKS[name]))
    (folder / "ImageInfo.csv").write_text("not an image")
    return packed(folder, tmp_path / SOURCES[name].files[0].name)


def tree(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def expected_tree(benchmark: Benchmark) -> list[str]:
    return sorted(f"{d}/{c}/{file}" for d, classes in layout(benchmark).items() for c in classes for file in classes[c])


@pytest.mark.parametrize("name", ["PACS", "VLCS", "OfficeHome"])
def test_one_archive_becomes_the_folder_that_load_finds(
    tmp_path: Path, root: Path, site: Site, image_cache: Path, name: str
) -> None:
    benchmark = BENCHMARKS[name]
    archive = published(name, tmp_path)
    site.files[f"/{archive.name}"] = archive.read_bytes()
    site.cuts = [100]
    done = get(name, root, urls=[f"{site.url}/{archive.name}"])
    assert done.is_new
    assert done.folder == root / benchmark.folder
    assert done.counts == dict.fromkeys(benchmark.domains, 4)
    assert [path.name for path in root.iterdir()] == [benchmark.folder]
    assert tree(done.folder) == expected_tree(benchmark)
    first = benchmark.domains[0]
    assert (
        f"Domain {first!r} of {name}: expected {benchmark.editions['official'][first]} images, found 4." in done.notes
    )
    assert site.asked_ranges() == [None, "bytes=100-"]
    dataset = load(name, LoadOptions(root=root, image_size=8, progress=False))
    assert [len(domain) for domain in dataset.domains] == [4] * len(benchmark.domains)
    assert image_cache.is_dir()


def camera_traps(tmp_path: Path) -> tuple[Path, Path]:
    """Images in one folder, and two COCO files; places are numbers in one and texts in the other, as in the wild."""
    images = tmp_path / "made" / "eccv_18_all_images_sm"
    images.mkdir(parents=True)
    for name in ("a", "b", "c", "d", "e", "f"):
        (images / f"{name}.jpg").write_bytes(name.encode())
    categories = [{"id": 1, "name": "bird"}, {"id": 6, "name": "cat"}, {"id": 97, "name": "car"}]
    notes = tmp_path / "made" / "eccv_18_annotation_files"
    notes.mkdir()

    def table(rows: list[tuple[str, object, list[int]]]) -> str:
        pictures = [{"id": name, "file_name": f"{name}.jpg", "location": place} for name, place, _ in rows]
        labels = [{"image_id": name, "category_id": label} for name, _, all_ in rows for label in all_]
        return json.dumps({"categories": categories, "images": pictures, "annotations": labels})

    rows = [("a", 38, [1]), ("b", 46, [1, 6]), ("c", 100, [6, 6]), ("d", 43, [97])]  # a car is none of the ten classes
    (notes / "train_annotations.json").write_text(table([*rows, ("gone", 38, [1])]))
    (notes / "cis_val_annotations.json").write_text(
        table([("e", "43", [6]), ("f", "7", [1])])
    )  # place 7 is none of the four
    return packed(images, tmp_path / "images.tar.gz"), packed(notes, tmp_path / "notes.tar.gz")


TERRA_TREE = [
    "location_100/cat/c.jpg",
    "location_38/bird/a.jpg",
    "location_43/cat/e.jpg",
    "location_46/bird/b.jpg",
    "location_46/cat/b.jpg",
]


def test_camera_traps_are_sorted_by_place_and_animal(tmp_path: Path, root: Path) -> None:
    done = get("TerraIncognita", root, archives=camera_traps(tmp_path))
    assert tree(root / "terra_incognita") == TERRA_TREE
    assert (done.folder / "location_46" / "cat" / "b.jpg").read_bytes() == b"b"
    assert any("DomainBed's paper" in note for note in done.notes)
    again = packed(done.folder, tmp_path / "mine.zip")  # the finished folder, given as an archive
    get("TerraIncognita", tmp_path / "other", archives=[again])
    assert tree(tmp_path / "other" / "terra_incognita") == TERRA_TREE


def test_camera_traps_without_annotations_say_what_is_missing(tmp_path: Path, root: Path) -> None:
    with pytest.raises(UserError, match=r"eccv_18_annotations\.tar\.gz"):
        get("TerraIncognita", root, archives=camera_traps(tmp_path)[:1])


@pytest.mark.parametrize(
    "content",
    [
        "{",
        "[]",
        "{}",
        '{"categories": 1}',
        '{"categories": [], "images": [{"id": 1}], "annotations": []}',
        "[" * 100_000,
    ],
)
def test_annotations_of_another_form_are_reported(tmp_path: Path, root: Path, content: str) -> None:
    (tmp_path / "mine.json").write_text(content)
    with pytest.raises(UserError, match=r"mine\.json"):
        get("TerraIncognita", root, archives=[camera_traps(tmp_path)[0], tmp_path / "mine.json"])


def test_annotations_cannot_name_files_outside(tmp_path: Path, root: Path) -> None:
    (tmp_path / "secret.jpg").write_bytes(b"secret")
    picture = {"id": 1, "file_name": "../../../../secret.jpg", "location": 38}
    table = {"categories": [{"id": 1, "name": "bird"}], "images": [picture]}
    (tmp_path / "t.json").write_text(json.dumps({**table, "annotations": [{"image_id": 1, "category_id": 1}]}))
    get("TerraIncognita", root, archives=[*camera_traps(tmp_path), tmp_path / "t.json"])
    assert tree(root / "terra_incognita") == TERRA_TREE
    assert (tmp_path / "secret.jpg").read_bytes() == b"secret"


def domain_net(tmp_path: Path) -> list[Path]:
    """An archive per domain; clipart also has its two lists, which leave out one image."""
    folder = make_folder(tmp_path / "made", layout(DOMAIN_NET))
    zips = [packed(folder / domain, tmp_path / f"{domain}.zip") for domain in DOMAIN_NET.domains]
    train, test = tmp_path / "clipart_train.txt", tmp_path / "clipart_test.txt"
    train.write_text("clipart/aircraft_carrier/1.png 0\nclipart/zigzag/1.png 344\n")
    test.write_text("clipart/zigzag/2.png 344\n../../secret 0\n")
    return [*zips, train, test]


def test_the_lists_of_domain_net_say_which_images_stay(tmp_path: Path, root: Path, site: Site) -> None:
    files = domain_net(tmp_path)
    site.files = {f"/{path.name}": path.read_bytes() for path in files}
    done = get("DomainNet", root, urls=[f"{site.url}/{path.name}" for path in files])
    assert tree(done.folder) == [path for path in expected_tree(DOMAIN_NET) if path != "clipart/aircraft_carrier/2.png"]
    assert done.counts == {domain: 3 if domain == "clipart" else 4 for domain in DOMAIN_NET.domains}


def test_a_folder_address_stands_for_the_usual_files(
    tmp_path: Path, root: Path, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = domain_net(tmp_path)
    digests = [hashlib.sha256(path.read_bytes()).hexdigest() for path in files]
    parts = tuple(RemoteFile(path.name, "http://unused.invalid", 1, digest) for path, digest in zip(files, digests))
    source = sources.Source(parts, 1, sources.arrange_domain_net)
    monkeypatch.setitem(SOURCES, "DomainNet", source)
    site.files = {f"/mirror/{path.name}": path.read_bytes() for path in files}
    site.files["/mirror/real.zip"] = site.files["/mirror/sketch.zip"]
    with pytest.raises(BadArchive, match=r"Expected SHA-256 .*real\.zip"):  # the usual digests hold for a mirror too
        get("DomainNet", root, urls=[f"{site.url}/mirror/"])
    site.files["/mirror/real.zip"] = (tmp_path / "real.zip").read_bytes()
    get("DomainNet", root, urls=[f"{site.url}/mirror/"])
    assert len(tree(root / "domain_net")) == 23
    fetched = [path for path, _ in site.requests]
    assert sorted(set(fetched)) == sorted(site.files)
    assert [path for path in set(fetched) if fetched.count(path) > 1] == ["/mirror/real.zip"]


def test_published_sources_are_consistent() -> None:
    assert SOURCES.keys() == {name for name, benchmark in BENCHMARKS.items() if not benchmark.home}
    for source in SOURCES.values():
        names = [part.name for part in source.files]
        assert len(set(names)) == len(names)
        assert all(part.url.startswith(("http://", "https://")) for part in source.files)
        assert all(part.sha256 for part in source.files if part.url.startswith("http://"))  # anyone could change those
        assert sum(part.bytes or 0 for part in source.files) < source.max_gb * 10**9
    assert {part.name for part in SOURCES["DomainNet"].files if part.name.endswith(".zip")} == {
        f"{domain}.zip" for domain in DOMAIN_NET.domains
    }


def test_a_benchmark_that_is_there_is_left_alone(tmp_path: Path, root: Path, site: Site) -> None:
    archive = published("PACS", tmp_path)
    get("PACS", root, archives=[archive])
    (root / "PACS" / "mine.txt").write_text("mine")
    for again in (root, root / "PACS"):
        done = get("PACS", again, urls=[site.url + "/PACS.zip"])
        assert not done.is_new
        assert done.folder == root / "PACS"
        assert "was already at" in done.lines()[0]
    assert site.requests == []
    assert (root / "PACS" / "mine.txt").read_text() == "mine"
    assert [path.name for path in root.iterdir()] == ["PACS"]


@pytest.mark.parametrize("taken", ["a file", "a folder"])
def test_what_is_in_the_way_is_never_overwritten(tmp_path: Path, root: Path, taken: str) -> None:
    archive = published("PACS", tmp_path)
    mine = root / "PACS" if taken == "a file" else root / "PACS" / "photo" / "mine.jpg"
    mine.parent.mkdir(parents=True)
    mine.write_text("mine")
    with pytest.raises(UserError, match="Move it away"):
        get("PACS", root, archives=[archive])
    assert mine.read_text() == "mine"
    assert [path.name for path in root.iterdir()] == ["PACS"]


def test_an_empty_folder_is_not_in_the_way(tmp_path: Path, root: Path) -> None:
    (root / "PACS").mkdir(parents=True)
    assert get("PACS", root, archives=[published("PACS", tmp_path)]).is_new


@pytest.mark.parametrize("moment", ["unpack", "rename"])
def test_killed_it_starts_again_without_fetching(
    tmp_path: Path, root: Path, site: Site, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """An interruption that leaves everything as a kill would: half an unpacked folder, or a whole one not yet moved."""
    site.files["/PACS.zip"] = published("PACS", tmp_path).read_bytes()

    def killed(_: Path, folder: Path, *__: object, **___: object) -> int:
        if moment == "unpack":
            (folder / "kfold" / "photo" / "dog").mkdir(parents=True)
            (folder / "kfold" / "photo" / "dog" / "half.png").write_bytes(b"half")
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(module, "unpack", killed) if moment == "unpack" else patch.setattr(os, "rename", killed)
        with pytest.raises(KeyboardInterrupt):
            get("PACS", root, urls=[site.url + "/PACS.zip"])
    assert not (root / "PACS").exists()
    get("PACS", root, urls=[site.url + "/PACS.zip"])
    assert tree(root / "PACS") == expected_tree(PACS)
    assert [path.name for path in root.iterdir()] == ["PACS"]
    assert len(site.requests) == 1


def test_another_address_never_takes_over_what_the_first_one_left(tmp_path: Path, root: Path, site: Site) -> None:
    data = published("PACS", tmp_path).read_bytes()
    site.files = {"/old/PACS.zip": b"x" * len(data), "/new/PACS.zip": data}
    site.cuts = [50, 0]
    with pytest.raises(UserError, match="kept"):
        get("PACS", root, urls=[site.url + "/old/PACS.zip"])
    get("PACS", root, urls=[site.url + "/new/PACS.zip"])
    assert tree(root / "PACS") == expected_tree(PACS)


def test_a_wrong_digest_deletes_what_was_fetched_and_the_next_start_recovers(
    tmp_path: Path, root: Path, site: Site
) -> None:
    data = published("PACS", tmp_path).read_bytes()
    right = hashlib.sha256(data).hexdigest().upper()
    site.files["/PACS.zip"] = data[:-1] + b"?"
    for _ in range(2):
        with pytest.raises(BadArchive, match=r"Expected SHA-256 .* It is deleted"):
            get("PACS", root, urls=[site.url + "/PACS.zip"], sha256=[right])
    assert not (root / "PACS").exists()
    site.files["/PACS.zip"] = data
    assert get("PACS", root, urls=[site.url + "/PACS.zip"], sha256=[right]).is_new


def test_a_broken_archive_deletes_what_was_fetched_but_never_the_users_file(
    tmp_path: Path, root: Path, site: Site
) -> None:
    data = published("PACS", tmp_path).read_bytes()
    site.files["/PACS.zip"] = data[:300]
    with pytest.raises(BadArchive, match=r"whole zip.*It is deleted"):
        get("PACS", root, urls=[site.url + "/PACS.zip"])
    mine = tmp_path / "mine.zip"
    mine.write_bytes(data[:300])
    with pytest.raises(BadArchive, match=r"whole zip.*\)\.$"):
        get("PACS", root, archives=[mine])
    with pytest.raises(BadArchive, match=r"Expected SHA-256 .*Found [0-9a-f]{64}\.$"):
        get("PACS", root, archives=[mine], sha256=["0" * 64])
    assert mine.read_bytes() == data[:300]
    site.files["/PACS.zip"] = data
    assert get("PACS", root, urls=[site.url + "/PACS.zip"]).is_new


def test_a_hostile_archive_leaves_nothing_behind(tmp_path: Path, root: Path) -> None:
    with tarfile.open(tmp_path / "PACS.tar", "w") as archive:
        archive.addfile(tarfile.TarInfo("../../../evil"))
    with pytest.raises(BadArchive, match="evil"):
        get("PACS", root, archives=[tmp_path / "PACS.tar"])
    assert not list(tmp_path.rglob("evil"))
    assert not (root / "PACS").exists()
    assert tree(root) == [".PACS.download/lock"]


def test_the_bound_holds_for_all_archives_together(tmp_path: Path, root: Path) -> None:
    """Two archives of 60 kB each against 100 kB."""
    archives = []
    for name in ("1", "2"):
        (tmp_path / name).write_bytes(bytes(60_000))
        archives.append(packed(tmp_path / name, tmp_path / f"{name}.zip"))
    with pytest.raises(UserError, match="--max-gb"):
        get("PACS", root, archives=archives, max_gb=1e-4)
    with pytest.raises(UserError, match="Expected folders art_painting"):
        get("PACS", root, archives=archives, max_gb=2e-4)


def test_an_archive_of_something_else_is_reported(tmp_path: Path, root: Path) -> None:
    other = packed(make_folder(tmp_path / "made" / "sets", {"photo": {"dog": ["1.png"]}}), tmp_path / "other.zip")
    with pytest.raises(UserError, match="Found no art_painting, cartoon, sketch"):
        get("PACS", root, archives=[other])
    assert tree(root) == [".PACS.download/lock"]


def test_a_domain_that_comes_twice_is_reported(tmp_path: Path) -> None:
    for archive in ("0", "1"):
        (tmp_path / archive / "photo").mkdir(parents=True)
    with pytest.raises(UserError, match="Expected one folder 'photo'"):
        find_domains(tmp_path, ["photo"])


def test_a_class_named_like_a_domain_is_not_taken_for_one(tmp_path: Path) -> None:
    (tmp_path / "0" / "real" / "sketch").mkdir(parents=True)
    (tmp_path / "1" / "sketch" / "dog").mkdir(parents=True)
    (tmp_path / "2" / "wrapper" / "photo").mkdir(parents=True)  # as deep as the class is
    assert find_domains(tmp_path, ["photo", "real", "sketch"]) == {
        "photo": tmp_path / "2" / "wrapper" / "photo",
        "real": tmp_path / "0" / "real",
        "sketch": tmp_path / "1" / "sketch",
    }


def test_room_for_everything_is_asked_for_before_the_first_request(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=30 * 10**9))
    monkeypatch.setattr(module, "fetch", lambda *_, **__: pytest.fail("it fetched"))
    with pytest.raises(UserError, match=r"Expected 36\.\d GB of free disk"):  # twice DomainNet's 18.4 GB
        get("DomainNet", root)


def test_two_processes_do_not_share_a_download(tmp_path: Path, root: Path) -> None:
    work = root / ".PACS.download"
    work.mkdir(parents=True)
    with hold_lock(work / "lock", UserError("unused")), pytest.raises(UserError, match="Expected no other process"):
        get("PACS", root, archives=[published("PACS", tmp_path)])


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("PAC", {}, "Did you mean 'PACS'"),
        ("PACS", {"max_gb": 0}, "`max_gb` should be"),
        ("PACS", {"max_gb": float("nan")}, "`max_gb` should be"),
        ("PACS", {"sha256": ["abc"]}, "`sha256` should be 64 hexadecimal digits"),
        ("PACS", {"sha256": ["0" * 64] * 2}, "once for each of the 1 files. Found 2"),
        ("TerraIncognita", {"sha256": ["0" * 64]}, "once for each of the 2 files. Found 1"),
        ("PACS", {"urls": ["http://x/"], "archives": [Path("x")]}, "Found both"),
        ("PACS", {"archives": [Path("/nowhere/PACS.zip")]}, "Found nothing there"),
        ("PACS", {"archives": [Path("/")]}, "Found a folder"),
    ],
)
def test_mistakes_are_reported_before_anything_is_made(
    root: Path, name: str, options: dict[str, object], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        get(name, root, **options)
    assert not root.exists()


def test_the_command(
    tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    archive = published("PACS", tmp_path)
    monkeypatch.delenv("FGMIX_DATA", raising=False)
    assert call(monkeypatch, "data", "download", "PACS", "--archive", str(archive)) == 2
    assert "FGMIX_DATA" in capsys.readouterr().err
    monkeypatch.setenv("FGMIX_DATA", str(root))
    assert call(monkeypatch, "data", "download", "PACS", "--archive", str(archive), "--quiet") == 0
    printed = capsys.readouterr()
    first, *notes, last = printed.out.splitlines()
    images = "16 images (art_painting 4, cartoon 4, photo 4, sketch 4)"
    assert first == f"PACS is at {root / 'PACS'}: {images}."
    assert "Domain 'sketch' of PACS: expected 3929 images, found 4." in notes
    assert last == f"Check that every image can be decoded: fgmix data check {root / 'PACS'}"
    assert printed.err == ""


def test_the_command_tells_a_missing_network_in_one_line(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("time.sleep", lambda _: None)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    url = "http://127.0.0.1:1/PACS.zip"  # a port that nothing listens on
    assert call(monkeypatch, "data", "download", "PACS", "--data-root", str(root), "--url", url) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"fgmix: Expected an answer from {url}. Found none (")


def test_a_real_tar_of_real_pacs_pictures(shared_data: Path, tmp_path: Path, root: Path) -> None:
    """Two pictures of every class of the real PACS, packed with the folder name that is published."""
    real = shared_data / "PACS"
    if not real.is_dir():
        pytest.skip("no PACS")
    with tarfile.open(tmp_path / "PACS.tar.gz", "w:gz") as archive:
        for folder in sorted(real.glob("*/*")):
            for picture in sorted(folder.iterdir())[:2]:
                archive.add(picture, f"kfold/{picture.relative_to(real)}")
    done = get("PACS", root, archives=[tmp_path / "PACS.tar.gz"])
    assert done.counts == dict.fromkeys(PACS.domains, 14)
    assert not any("classes" in note for note in done.notes)
    copied = next((done.folder / "sketch" / "dog").iterdir())
    assert copied.read_bytes() == (real / "sketch" / "dog" / copied.name).read_bytes()
