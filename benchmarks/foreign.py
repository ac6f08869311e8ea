"""Peers that live in environments of their own, outside the repository: made once, asked as subprocesses.

A peer is a script under ``peer_scripts/`` that reads a model file and writes another; what it wrote becomes an
artefact through our own builder and is measured like every arm. A peer that cannot be installed or that fails is
a row of the table with the reason, never silence. Environments are in ``$IRONLAW_PEERS``, else in the user's
cache folder; a failed installation is remembered there until its folder is deleted.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.common import ROOT
from ironlaw.records import Form

INSTALL_S, RUN_S = 1800.0, 1200.0
OFFLINE = {
    "OLIVE_DISABLE_TELEMETRY": "1", "HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "DO_NOT_TRACK": "1",
    "PRUNA_TELEMETRY": "0", "CUDA_VISIBLE_DEVICES": "", "PYTHONWARNINGS": "ignore",
}  # fmt: skip
"""No peer talks to a network while it runs, and none looks for a GPU that the others do not use."""


class PeerFailure(Exception):
    """It cannot be installed, or it failed; the message is the reason."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Peer:
    """``takes`` and ``gives`` are forms of a model; ``shares`` lets its environment see our packages (torch)."""

    name: str
    requirements: tuple[str, ...]
    script: str
    arguments: tuple[str, ...]
    takes: str
    gives: str
    shares: bool

    @property
    def target(self) -> str:
        return "onnxruntime" if self.gives == Form.ONNX else "torch"


_OLIVE = ("olive-ai==0.13.0", "requests")
PEERS: Mapping[str, Peer] = {
    "Olive auto-opt": Peer(
        name="olive", requirements=_OLIVE, script="olive_auto.py", arguments=(),
        takes=Form.ONNX, gives=Form.ONNX, shares=True,
    ),
    "Olive auto-opt int8": Peer(
        name="olive", requirements=_OLIVE, script="olive_auto.py", arguments=("--precision", "int8"),
        takes=Form.ONNX, gives=Form.ONNX, shares=True,
    ),
    "pruna": Peer(
        name="pruna", requirements=("pruna==0.3.4", "huggingface_hub<2"), script="pruna_smash.py", arguments=(),
        takes=Form.EAGER, gives=Form.EAGER, shares=False,
    ),
}  # fmt: skip


def folder() -> Path:
    """Where the environments are."""
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(os.environ.get("IRONLAW_PEERS") or Path(cache) / "ironlaw-peers")


def produce(peer: Peer, model: Path, example: Path, out: Path) -> Path:
    """The model that the peer makes of ``model``, under ``out``; kept when it was made before.

    Raises PeerFailure.
    """
    out.mkdir(parents=True, exist_ok=True)
    record = out / "answer.json"
    if not record.exists():
        python = installed(peer)
        command = [str(python), str(ROOT / "benchmarks" / "peer_scripts" / peer.script)]
        command += ["--model", str(model), "--example", str(example), "--out", str(out), *peer.arguments]
        record.write_text(json.dumps(_answer(command, out)))
    answer = json.loads(record.read_text())
    if "error" in answer:
        raise PeerFailure(str(answer["error"]))
    return Path(answer["model"])


def installed(peer: Peer) -> Path:
    """The interpreter of its environment, made when missing. Raises PeerFailure with the last line of pip."""
    home = folder() / peer.name
    python, ready, refused = home / "bin" / "python", home / ".ready", home / ".refused"
    wanted = "\n".join(peer.requirements)
    if ready.exists() and ready.read_text() == wanted:
        return python
    if refused.exists() and refused.read_text().startswith(wanted):
        raise PeerFailure("cannot be installed: " + refused.read_text().removeprefix(wanted).strip())
    home.mkdir(parents=True, exist_ok=True)
    install = [str(python), "-m", "pip", "install", "--quiet", *peer.requirements]
    if peer.shares:
        install += ["--constraint", str(ROOT / "constraints.txt")]
    try:
        subprocess.run([sys.executable, "-m", "venv", str(home)], check=True, capture_output=True, timeout=INSTALL_S)
        if peer.shares:
            version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
            beside = home / "lib" / version / "site-packages" / "shared.pth"
            beside.write_text(sysconfig.get_paths()["purelib"] + "\n")
        subprocess.run(install, check=True, capture_output=True, timeout=INSTALL_S)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired, OSError) as error:
        refused.write_text(f"{wanted}\n{_last_line(error)}")
        raise PeerFailure(f"cannot be installed: {_last_line(error)}") from error
    ready.write_text(wanted)
    return python


def _answer(command: list[str], out: Path) -> dict[str, str]:
    """What the script says in the last line of its output: {"model": path} or {"error": reason}."""
    environment = {**os.environ, **OFFLINE, "PYTHONPATH": str(ROOT)}  # a pickled demo names its own module
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=RUN_S, env=environment, cwd=out, check=False
        )
    except subprocess.TimeoutExpired:
        return {"error": f"not done within {RUN_S:.0f} s"}
    lines = done.stdout.strip().splitlines()
    if done.returncode == 0 and lines:
        answer: dict[str, str] = json.loads(lines[-1])
        return answer
    said = (done.stderr.strip() or done.stdout.strip()).splitlines()
    return {"error": said[-1][:300] if said else f"exit code {done.returncode}"}


def _last_line(error: Exception) -> str:
    said = getattr(error, "stderr", None) or b""
    lines = (said.decode(errors="replace") if isinstance(said, bytes) else said).strip().splitlines()
    errors = [line for line in lines if line.startswith("ERROR")]
    return (errors or lines or [str(error)])[-1][:300]
