"""`fetch` against a real server: whole, broken, changed, refused."""

from __future__ import annotations

import shutil
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from data.http_site import Site, serving
from fgmix.data import fetch as module
from fgmix.data.fetch import fetch
from fgmix.data.files import require_space
from fgmix.errors import UserError

CONTENT = np.random.default_rng(0).bytes(5000)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ATTEMPTS", 3)
    monkeypatch.setattr(module, "WAIT", 0)


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with serving(Site({"/a.zip": CONTENT})) as site:
        yield site


def get(site: Site, folder: Path, path: str = "/a.zip", *, most: int = 10_000) -> bytes:
    target = fetch(site.url + path, folder / "a.zip", most=most, progress=False)
    assert [path.name for path in folder.iterdir()] == ["a.zip"]  # no part is left
    return target.read_bytes()


def get_once(site: Site, folder: Path) -> bytes:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "ATTEMPTS", 1)
        return get(site, folder)


def test_a_file_comes_in_one_request_and_is_not_fetched_twice(site: Site, tmp_path: Path) -> None:
    assert get(site, tmp_path) == CONTENT
    assert get(site, tmp_path) == CONTENT
    assert site.requests == [("/a.zip", None)]


def test_a_broken_connection_resumes_where_it_stopped(site: Site, tmp_path: Path) -> None:
    site.cuts = [1000, 500]
    assert get(site, tmp_path) == CONTENT
    assert site.asked_ranges() == [None, "bytes=1000-", "bytes=1500-"]


def test_another_start_resumes_where_the_last_one_stopped(site: Site, tmp_path: Path) -> None:
    site.cuts = [1000]
    with pytest.raises(UserError, match=r"0\.0 MB are kept"):
        get_once(site, tmp_path)
    assert (tmp_path / "a.zip.part").read_bytes() == CONTENT[:1000]
    assert not (tmp_path / "a.zip").exists()
    assert get(site, tmp_path) == CONTENT
    assert site.asked_ranges() == [None, "bytes=1000-"]


def test_a_server_without_ranges_is_read_from_the_start(site: Site, tmp_path: Path) -> None:
    site.ranges = False
    site.cuts = [1000]
    assert get(site, tmp_path) == CONTENT
    assert site.asked_ranges() == [None, "bytes=1000-"]


def test_a_server_that_always_breaks_at_the_same_point_is_given_up(site: Site, tmp_path: Path) -> None:
    site.ranges = False
    site.cuts = [1000] * 100
    with pytest.raises(UserError, match="closed early"):
        get(site, tmp_path)
    assert len(site.requests) == module.ATTEMPTS  # the first brings 1000 bytes, two more bring none beyond them


@pytest.mark.parametrize("size", [5000, 7000])
def test_a_part_that_misses_nothing_is_dropped(site: Site, tmp_path: Path, size: int) -> None:
    (tmp_path / "a.zip.part").write_bytes(b"x" * size)
    assert get(site, tmp_path) == CONTENT
    assert site.asked_ranges() == [f"bytes={size}-", None]


def test_without_a_length_the_end_of_the_connection_is_the_end(site: Site, tmp_path: Path) -> None:
    site.tell_length = False
    assert get(site, tmp_path) == CONTENT


def test_a_busy_server_is_asked_again_with_growing_waits(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []
    monkeypatch.setattr(time, "sleep", waits.append)
    site.errors = [503, 429, 500]
    monkeypatch.setattr(module, "ATTEMPTS", 4)
    monkeypatch.setattr(module, "WAIT", 1.5)
    assert get(site, tmp_path) == CONTENT
    assert waits == [1.5, 3.0, 6.0]


@pytest.mark.parametrize("status", [401, 403, 404, 410])
def test_a_refusal_is_final(site: Site, tmp_path: Path, status: int) -> None:
    site.errors = [status]
    with pytest.raises(UserError, match=rf"answers {status} .*--url.*--archive"):
        get(site, tmp_path)
    assert len(site.requests) == 1


def test_no_network_is_one_sentence(tmp_path: Path) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # bound, but nobody listens
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/a.zip"
        with pytest.raises(UserError, match=r"Found none \(.*refused.*Check the network.*--archive"):
            fetch(url, tmp_path / "a.zip", most=1, progress=False)


@pytest.mark.parametrize("url", ["file:///etc/hostname", "ftp://127.0.0.1/a.zip", "/data/a.zip", "data:,x"])
def test_other_schemes_are_refused(tmp_path: Path, url: str) -> None:
    with pytest.raises(UserError, match=r"http://.*--archive"):
        fetch(url, tmp_path / "a.zip", most=10_000, progress=False)
    assert not (tmp_path / "a.zip").exists()


def test_a_web_page_is_reported_by_its_title(site: Site, tmp_path: Path) -> None:
    site.files["/a.zip"] = "<html><head><title>Quota\n exceeded</title></head><body>Too many users.</body></html>"
    with pytest.raises(UserError, match=r"Found a web page titled 'Quota exceeded'\. Give another address"):
        get(site, tmp_path)
    assert len(site.requests) == 1


@pytest.mark.parametrize("tell_length", [True, False])
def test_a_file_beyond_the_bound_is_refused(site: Site, tmp_path: Path, tell_length: bool) -> None:
    site.tell_length = tell_length
    with pytest.raises(UserError, match=r"--max-gb"):
        get(site, tmp_path, most=4999)
    part = tmp_path / "a.zip.part"
    assert part.exists() != tell_length  # announced, nothing of it is read
    assert not part.exists() or part.stat().st_size <= 4999


def test_a_full_disk_is_reported_before_the_first_byte(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=9_999))  # file and content need 10,000
    with pytest.raises(UserError, match="free disk"):
        get(site, tmp_path)
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=10_000))
    assert get(site, tmp_path) == CONTENT


def test_require_space_asks_the_disk(tmp_path: Path) -> None:
    require_space(tmp_path, 1, "nothing")
    with pytest.raises(UserError, match="for the moon"):
        require_space(tmp_path, 10**21, "the moon")


def test_progress_counts_megabytes(site: Site, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    site.files["/a.zip"] = bytes(2_500_000)
    fetch(site.url + "/a.zip", tmp_path / "a.zip", most=10**7, progress=True)
    assert "download a.zip: 3/3 MB in" in capsys.readouterr().err
