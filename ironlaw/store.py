"""Runs and trials in SQLite, resumable by construction.

What was found out about a candidate is a *fact* under the candidate's key (its build, each launch, its
scores, its certificate), written the moment it is known. A run asks for facts before it works for them, so
killing it at any instant loses at most the fact in the making, and the same command goes on from there.
Write-ahead logging and a busy time-out let two runs share one store. Large files live beside the database.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import json
import os
import secrets
import shutil
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from ironlaw.records import Forecast, Run, UserError, from_json, to_data, to_json

BUSY_TIMEOUT_S = 60.0
_FORECAST = tuple(field.name for field in dataclasses.fields(Forecast))
MIGRATIONS: list[Callable[[sqlite3.Connection], None]] = []


def migration(step: Callable[[sqlite3.Connection], None]) -> Callable[[sqlite3.Connection], None]:
    """Register the next step of the schema; ``user_version`` counts the steps that were taken."""
    MIGRATIONS.append(step)
    return step


@migration
def _first(db: sqlite3.Connection) -> None:
    db.execute(
        "CREATE TABLE facts (id INTEGER PRIMARY KEY, key TEXT NOT NULL, what TEXT NOT NULL, made REAL, json TEXT)"
    )
    db.execute("CREATE INDEX facts_key ON facts (key, what)")
    db.execute("CREATE TABLE runs (id TEXT PRIMARY KEY, made REAL, name TEXT, finished INTEGER, json TEXT)")
    db.execute(
        "CREATE TABLE predictions (key TEXT, lever TEXT, kind TEXT, target TEXT, made REAL, low REAL, value REAL,"
        " high REAL, measured REAL, PRIMARY KEY (key, lever))"
    )


@migration
def _second(db: sqlite3.Connection) -> None:
    """Forecasts know their lever's version and, as a word that says nothing, their workload; some come from others."""
    db.execute("ALTER TABLE predictions ADD COLUMN version INTEGER NOT NULL DEFAULT 0")
    db.execute("ALTER TABLE predictions ADD COLUMN widened REAL NOT NULL DEFAULT 1")
    db.execute("ALTER TABLE predictions ADD COLUMN workload TEXT NOT NULL DEFAULT ''")
    db.execute("ALTER TABLE predictions ADD COLUMN origin TEXT NOT NULL DEFAULT ''")


@contextlib.contextmanager
def clear_errors(place: Path) -> Iterator[None]:
    """Turn what a disk or a database can refuse into one clear error that says what to do."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        words = str(error)
        if "malformed" in words or "not a database" in words:
            raise UserError(str(place), f"the store is damaged ({words})", "Move it away; runs start anew.") from error
        if "full" in words or "disk I/O" in words:
            raise UserError(str(place), f"cannot be written ({words})", _FULL) from error
        if "locked" in words:
            raise UserError(str(place), "is locked by another process", "Wait for it, or stop it.") from error
        if "readonly" in words or "unable to open" in words:
            raise UserError(str(place), f"cannot be written ({words})", _READ_ONLY) from error
        raise
    except OSError as error:
        remedy = disk_remedy(error)
        if remedy is None:
            raise
        raise UserError(str(place), f"cannot be written ({error.strerror})", remedy) from error


_FULL = "Free some space or set IRONLAW_HOME to a folder on another disk; what was finished is kept."
_READ_ONLY = "Make it writable or set IRONLAW_HOME to a folder that is."


def disk_remedy(error: OSError) -> str | None:
    """What to do about a disk that is full or not writable; None for other errors."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return _FULL
    unusable = (errno.EROFS, errno.EACCES, errno.EPERM, errno.EEXIST, errno.ENOTDIR)
    return _READ_ONLY if error.errno in unusable else None


class Store:
    """The store in ``home`` (created when missing). Close it, or use it as a context manager."""

    def __init__(self, home: Path) -> None:
        self.home = home
        with clear_errors(home):
            home.mkdir(parents=True, exist_ok=True)
            ignore = home / ".gitignore"
            if not ignore.exists():
                ignore.write_text("*\n")
            self._db = sqlite3.connect(home / "store.db", timeout=BUSY_TIMEOUT_S, isolation_level=None)
            self._log_ahead()
            self._db.execute("PRAGMA synchronous=NORMAL")
            self._migrate()

    def _log_ahead(self) -> None:
        """Switch to write-ahead logging; SQLite's own time-out does not cover this switch, so it is tried again."""
        deadline = time.monotonic() + BUSY_TIMEOUT_S
        while True:
            try:
                self._db.execute("PRAGMA journal_mode=WAL")
                return
            except sqlite3.OperationalError as error:
                if "locked" not in str(error) or time.monotonic() > deadline:
                    raise
                time.sleep(0.02)

    def _migrate(self) -> None:
        self._db.execute("BEGIN IMMEDIATE")
        (version,) = self._db.execute("PRAGMA user_version").fetchone()
        if version > len(MIGRATIONS):
            self._db.execute("ROLLBACK")
            raise UserError(
                str(self.home),
                f"was written by a newer ironlaw (schema {version})",
                "Upgrade ironlaw, or use another store.",
            )
        for step in MIGRATIONS[version:]:
            step(self._db)
        self._db.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")
        self._db.execute("COMMIT")

    def close(self) -> None:
        self._db.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def folder(self, *parts: str) -> Path:
        """A folder of this store, made when missing."""
        path = self.home.joinpath(*parts)
        with clear_errors(self.home):
            path.mkdir(parents=True, exist_ok=True)
        return path

    # ------------------------------------------------------------ facts

    def facts(self, key: str, what: str) -> list[Any]:
        """Every fact of that sort about ``key``, the oldest first."""
        with clear_errors(self.home):
            rows = self._db.execute("SELECT json FROM facts WHERE key = ? AND what = ? ORDER BY id", (key, what))
            return [json.loads(text) for (text,) in rows]

    def fact(self, key: str, what: str) -> Any | None:
        """The newest fact of that sort, or None."""
        found = self.facts(key, what)
        return found[-1] if found else None

    def keep(self, key: str, what: str, value: Any) -> None:
        """Remember a fact: a record or plain data."""
        with clear_errors(self.home):
            self._db.execute(
                "INSERT INTO facts (key, what, made, json) VALUES (?, ?, ?, ?)",
                (key, what, time.time(), json.dumps(to_data(value), allow_nan=False)),
            )

    def forget(self, key: str) -> None:
        with clear_errors(self.home):
            self._db.execute("DELETE FROM facts WHERE key = ?", (key,))

    # ------------------------------------------------------------ runs

    def save_run(self, run: Run, *, finished: bool) -> None:
        with clear_errors(self.home):
            self._db.execute(
                "INSERT OR REPLACE INTO runs (id, made, name, finished, json) VALUES (?, ?, ?, ?, ?)",
                (run.id, time.time(), run.name, finished, to_json(run)),
            )

    def run(self, run_id: str) -> Run:
        """The run of that id or unique prefix, or the newest for ``latest``."""
        query, value = "SELECT id, json FROM runs WHERE id LIKE ? || '%' ORDER BY made DESC", run_id
        if run_id == "latest":
            query, value = "SELECT id, json FROM runs WHERE id <> ? ORDER BY made DESC LIMIT 1", ""
        with clear_errors(self.home):
            rows = self._db.execute(query, (value,)).fetchall()
        if not rows:
            raise UserError(f"run {run_id!r}", f"is not in {self.home}", "`ironlaw runs` lists what is there.")
        if len(rows) > 1 and rows[0][0] != run_id:
            raise UserError(f"run {run_id!r}", f"is ambiguous: {', '.join(r[0] for r in rows)}", "Give more of its id.")
        return from_json(Run, rows[0][1])

    def runs(self) -> list[tuple[str, float, str, bool]]:
        """(id, time, name, finished) of every run, the newest first."""
        with clear_errors(self.home):
            rows = self._db.execute("SELECT id, made, name, finished FROM runs ORDER BY made DESC").fetchall()
        return [(i, m, n, bool(f)) for i, m, n, f in rows]

    def prune(self, keep: int) -> list[str]:
        """Delete all but the newest ``keep`` runs, and the artefacts that no kept run names."""
        ids = [row[0] for row in self.runs()]
        kept, gone = ids[:keep], ids[keep:]
        named = set()
        for run_id in kept:
            run = self.run(run_id)
            named |= {Path(t.artefact.folder).name for t in (run.baseline, *run.trials) if t.artefact}
        with clear_errors(self.home):
            for run_id in gone:
                self._db.execute("DELETE FROM runs WHERE id = ?", (run_id,))
                shutil.rmtree(self.home / "runs" / run_id, ignore_errors=True)
            for path in self.folder("artefacts").iterdir():
                if path.name not in named:
                    shutil.rmtree(path, ignore_errors=True)
                    self.forget(path.name)
            if not kept:
                shutil.rmtree(self.home / "work", ignore_errors=True)
        return gone

    # ------------------------------------------------------------ predictions

    def keep_forecast(self, key: str, forecast: Forecast) -> None:
        """Remember a prediction about ``key`` and what came of it."""
        with clear_errors(self.home):
            self._insert_forecast(key, forecast, origin="")

    def replace_forecasts(self, origin: str, forecasts: Iterable[Forecast]) -> None:
        """Those of another store instead of those that it gave before; all of them or none."""
        with clear_errors(self.home):
            self._db.execute("BEGIN IMMEDIATE")
            try:
                self._db.execute("DELETE FROM predictions WHERE origin = ?", (origin,))
                for number, forecast in enumerate(forecasts):
                    self._insert_forecast(f"{origin}-{number}", forecast, origin=origin)
            except BaseException:
                self._db.execute("ROLLBACK")
                raise
            self._db.execute("COMMIT")

    def _insert_forecast(self, key: str, forecast: Forecast, *, origin: str) -> None:
        names = [*_FORECAST, "key", "made", "origin"]
        values = [*(getattr(forecast, name) for name in _FORECAST), key, time.time(), origin]
        marks = ", ".join("?" * len(names))
        self._db.execute(f"INSERT OR REPLACE INTO predictions ({', '.join(names)}) VALUES ({marks})", values)  # noqa: S608

    def pseudonym(self) -> str:
        """A random word that stands for this store where it must not be named."""
        if self.fact("store", "pseudonym") is None:
            self.keep("store", "pseudonym", secrets.token_hex(16))
        return str(self.facts("store", "pseudonym")[0])

    def forecasts(self, *, imported: bool = False) -> list[Forecast]:
        """Every prediction with its outcome, the oldest first; with those that were imported on request."""
        query = f"SELECT {', '.join(_FORECAST)} FROM predictions WHERE origin = '' OR ? ORDER BY made, key"  # noqa: S608
        with clear_errors(self.home):
            rows = self._db.execute(query, (imported,)).fetchall()
        return [Forecast(**dict(zip(_FORECAST, row, strict=True))) for row in rows]


def home_folder() -> Path:
    """``$IRONLAW_HOME``, else ``.ironlaw`` here."""
    return Path(os.environ.get("IRONLAW_HOME") or ".ironlaw").absolute()


def write_atomically(path: Path, text: str) -> None:
    """Write beside, fsync, rename: a reader sees the old file or the new one, never half of one."""
    with clear_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        with open(beside, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
