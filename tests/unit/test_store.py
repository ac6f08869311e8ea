"""The store: facts survive, two writers share it, and what a disk refuses is one clear error."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from ironlaw.records import UserError
from ironlaw.store import MIGRATIONS, Store, write_atomically


def test_facts_accumulate_and_survive(tmp_path: Path) -> None:
    with Store(tmp_path / "s") as store:
        store.keep("k", "launch", {"n": 1})
        store.keep("k", "launch", {"n": 2})
        store.keep("other", "launch", {"n": 3})
    with Store(tmp_path / "s") as store:
        assert [f["n"] for f in store.facts("k", "launch")] == [1, 2]
        assert store.fact("k", "launch") == {"n": 2}
        assert store.fact("k", "build") is None
        store.forget("k")
        assert store.facts("k", "launch") == []
        assert store.fact("other", "launch") == {"n": 3}


def test_two_processes_write_at_once(tmp_path: Path) -> None:
    """No fact is lost when two runs share a store."""
    code = (
        "import sys; from pathlib import Path; from ironlaw.store import Store\n"
        "with Store(Path(sys.argv[1])) as s:\n"
        "    for i in range(150): s.keep('k', sys.argv[2], {'i': i})\n"
    )
    running = [subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "s"), name]) for name in "abcd"]
    assert [process.wait(60) for process in running] == [0] * 4
    with Store(tmp_path / "s") as store:
        assert [f["i"] for f in store.facts("k", "a")] == list(range(150))
        assert [f["i"] for f in store.facts("k", "b")] == list(range(150))


def test_killed_writer_leaves_a_whole_store(tmp_path: Path) -> None:
    """kill -9 in the middle of writing: what was kept is there, the store opens."""
    code = (
        "import os, sys; from pathlib import Path; from ironlaw.store import Store\n"
        "s = Store(Path(sys.argv[1]))\n"
        "for i in range(20): s.keep('k', 'f', {'i': i})\n"
        "s._db.execute('BEGIN'); s._db.execute(\"INSERT INTO facts (key, what, json) VALUES ('k','f','{}')\")\n"
        "os.kill(os.getpid(), 9)\n"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "s")], timeout=60)
    with Store(tmp_path / "s") as store:
        assert [f["i"] for f in store.facts("k", "f")] == list(range(20))


def test_damaged_store_is_named(tmp_path: Path) -> None:
    (tmp_path / "store.db").write_bytes(b"this is not a database, but long enough to be read as a header" * 20)
    with pytest.raises(UserError, match="damaged") as caught:
        Store(tmp_path)
    assert caught.value.exit_code == 2


def test_newer_store_is_refused(tmp_path: Path) -> None:
    Store(tmp_path).close()
    with sqlite3.connect(tmp_path / "store.db") as db:
        db.execute(f"PRAGMA user_version = {len(MIGRATIONS) + 1}")
    with pytest.raises(UserError, match="newer ironlaw"):
        Store(tmp_path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes anywhere: needs a user without that right")
def test_read_only_folder(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(UserError, match="cannot be written"):
        Store(tmp_path / "s")


def test_a_file_where_the_store_should_be(tmp_path: Path) -> None:
    (tmp_path / "s").write_text("in the way")
    with pytest.raises(UserError, match="cannot be written"):
        Store(tmp_path / "s")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="/dev/full is missing (Linux)")
def test_full_disk_is_one_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(UserError, match="Free some space"):
        write_atomically(tmp_path / "f.txt", "text")
    assert not (tmp_path / "f.txt").exists()


def test_write_atomically_replaces(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "f.txt"
    write_atomically(path, "one")
    write_atomically(path, "two")
    assert path.read_text() == "two"
    assert [p.name for p in path.parent.iterdir()] == ["f.txt"]
