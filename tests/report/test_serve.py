"""Following a sweep: counts, a page that grows, and who may ask."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fgmix.errors import UserError
from fgmix.records.digests import seal_json
from fgmix.records.files import write_json
from fgmix.records.schema import RunRecord, to_plain
from fgmix.records.status import read_status
from fgmix.records.store import RunFolder
from fgmix.report.serve import Followed, make_server
from fgmix.results import read as reading
from report import folders
from report.seen import Seen


@contextmanager
def served(folder: Path) -> Iterator[int]:
    """The port at which a folder is served."""
    with make_server(Followed(folder), 0) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


def get(port: int, path: str = "/", host: str | None = None) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("GET", path, headers={"Host": host or f"127.0.0.1:{port}"})
    answer = connection.getresponse()
    found = answer.status, answer.read().decode()
    connection.close()
    return found


def test_the_page_grows_with_the_sweep(tmp_path: Path) -> None:
    found = folders.records()
    folder = folders.write(tmp_path / "runs", [], waiting=2)
    with served(folder) as port:
        assert "No run has finished yet." in get(port)[1]
        folders.write(folder, found[:1])
        counts = json.loads(get(port, "/status.json")[1])
        assert counts["counts"] == {"done": 1, "diverged": 0, "running": 0, "failed": 0, "waiting": 2}
        assert counts["left"] == 2
        code, page = get(port)
    assert code == 200
    assert f'<body data-live data-version="{counts["version"]}">' in page
    assert "connect-src 'self'" in (Seen(page).attributes["content"] or "")
    assert ">50.0</a>" in page


def test_a_finished_run_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    followed = Followed(folders.write(tmp_path / "runs", folders.records(1)))
    first = followed.page()
    read = reading.read_record
    paths: list[Path] = []

    def noted(path: Path) -> RunRecord:
        paths.append(path)
        return read(path)

    monkeypatch.setattr(reading, "read_record", noted)
    assert followed.page() == first
    assert paths == []
    folders.finish(tmp_path / "runs" / "new", folders.records(2)[-1])
    assert followed.page() != first
    assert [path.parent.name for path in paths] == ["new"]


@pytest.mark.parametrize(("path", "host", "code"), [("/", "evil.example", 403), ("/../etc/passwd", None, 404)])
def test_other_names_and_other_paths_get_nothing(path: str, host: str | None, code: int, tmp_path: Path) -> None:
    with served(folders.write(tmp_path / "runs", folders.records())) as port:
        assert get(port, path, host)[0] == code


def test_a_record_that_cannot_be_read_is_said_not_hidden(tmp_path: Path) -> None:
    folder = folders.write(tmp_path / "runs", folders.records()[:2])
    with served(folder) as port:
        (folder / "run1" / "record.json").write_bytes(seal_json({"schema": 99, "status": "done"}))
        code, text = get(port)
    assert code == 200
    assert "Skipped a record." in Seen(text).text
    assert "of schema 2" in Seen(text).text


def test_a_port_that_is_taken(tmp_path: Path) -> None:
    folder = folders.write(tmp_path / "runs", [], waiting=1)
    with served(folder) as port, pytest.raises(UserError, match=f"Cannot listen on port {port}"):
        make_server(Followed(folder), port)


def test_a_single_run_is_followed_while_it_is_trained(tmp_path: Path) -> None:
    """As `fgmix train` leaves it after an evaluation: a spec and a line of metrics, no plan and no record."""
    record = folders.records()[0]
    run = RunFolder(tmp_path / "runs" / "one")
    run.path.mkdir(parents=True)
    write_json(run.spec, {"fgmix": "0", "spec": to_plain(record.spec)})
    for folder in (run.path, run.path.parent):
        assert read_status(folder).states == {"one": "waiting"}
    followed = Followed(run.path, title="My run")
    before = followed.status()
    assert "No run has finished yet." in followed.page()
    run.append(record.evaluations[0])
    assert followed.status()["version"] != before["version"]  # the page is reloaded
    page = followed.page()
    assert "<h1>My run</h1>" in page
    assert "erm, test domain a: step 20 of 20" in Seen(page).text
    with run.metrics.open("ab") as file:
        file.write(b'{"half a line')  # while the next evaluation is written
    assert "No run has finished yet." in followed.page()


def test_a_folder_without_a_sweep_says_so(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="Found no plan and no run"):
        Followed(tmp_path).status()
