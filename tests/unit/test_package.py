"""A packaged folder is read back only when it is whole, stays within itself, and runs no code by being loaded."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from ironlaw.deploy.package import is_package, read_package
from ironlaw.records import Execution, TensorSpec, UserError, to_data

SPEC = TensorSpec(name="x", shape=(1, 8), dtype="float32")


def packaged(folder: Path, **other: Any) -> Path:
    folder.mkdir()
    (folder / "model.onnx").write_bytes(b"graph")
    (folder / "example.npz").write_bytes(b"arrays")
    (folder / "run.py").write_text("print()\n")
    manifest = {
        "kind": "file",
        "target": "onnxruntime",
        "files": ["model.onnx"],
        "example": "example.npz",
        "sha256": {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()},
        "inputs": to_data((SPEC,)),
        "outputs": to_data((SPEC,)),
        "how_to_load": ["import onnxruntime"],
        "execution": to_data(Execution(target="onnxruntime", threads=1, variables=(("OMP_NUM_THREADS", "1"),))),
        **other,
    }
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder


def test_a_whole_package_is_an_artefact_again(tmp_path: Path) -> None:
    folder = packaged(tmp_path / "p")
    assert is_package(folder)
    assert not is_package(tmp_path)
    found = read_package(folder)
    assert (found.target, found.files, found.size_bytes, found.inputs) == ("onnxruntime", ("model.onnx",), 5, (SPEC,))
    assert found.execution.threads == 1
    assert dict(found.execution.variables) == {"OMP_NUM_THREADS": "1"}


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({"kind": "recipe"}, "holds code that runs when it is loaded (recipe)"),
        ({"kind": "compiled"}, "holds code that runs when it is loaded (compiled)"),
        ({"kind": "training"}, "Name the run"),
        ({"example": "../secret.npz"}, "names files outside of it: ../secret.npz"),
        ({"execution": None}, "is not a whole package"),
        ({"files": ["gone.onnx"]}, "is not a whole package"),
        ({"inputs": [{"name": "x"}]}, "is not a whole package"),
    ],
)
def test_what_is_not_whole_or_would_run_code_is_refused(tmp_path: Path, other: dict[str, Any], words: str) -> None:
    (tmp_path / "secret.npz").write_bytes(b"x")
    with pytest.raises(UserError) as error:
        read_package(packaged(tmp_path / "p", **other))
    assert words in str(error.value)


def test_a_file_that_was_changed_or_removed_is_named(tmp_path: Path) -> None:
    folder = packaged(tmp_path / "p")
    (folder / "model.onnx").write_bytes(b"other")
    (folder / "run.py").unlink()
    with pytest.raises(UserError, match=r"run\.py is missing") as error:
        read_package(folder)
    assert "model.onnx was changed" in str(error.value)


def test_a_manifest_that_is_no_json_is_one_clear_error(tmp_path: Path) -> None:
    folder = packaged(tmp_path / "p")
    (folder / "manifest.json").write_text("{")
    with pytest.raises(UserError, match="is not a whole package"):
        read_package(folder)
