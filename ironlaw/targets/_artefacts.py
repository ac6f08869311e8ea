"""What file artefacts of more than one target share: example inputs, names, description, snippet lines.

Kept out of the targets so that none imports another. It refuses to guess: an output that the graph
does not have, or an array of another shape, is an error with both sides named.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ironlaw.forms import batch as batches
from ironlaw.forms import files
from ironlaw.records import Artefact, Candidate, Execution, TensorSpec, UserError

if TYPE_CHECKING:
    import numpy as np


def fixed_onnx(candidate: Candidate, path: Path) -> tuple[str, ...]:
    """Write the candidate's ONNX model to ``path`` with the batch of the execution; the files written.

    Raises ``UserError`` where the graph was made for another batch.
    """
    batch = candidate.execution.batch
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        batches.fix(Path(candidate.model.path), path, candidate.snapshot.inputs, batch)
    except ValueError as error:
        raise UserError(f"batch {batch}", str(error), "Keep the batch of the example.") from error
    beside = path.with_name(f"{path.name}.data")
    return (path.name, beside.name) if beside.exists() else (path.name,)


def graph_names(specs: Sequence[TensorSpec], names: Sequence[str], what: str) -> tuple[str, ...]:
    """The graph's name for each spec, "" for one that the graph dropped because nothing reads it.

    Raises ``UserError`` when the graph has a name that no spec has.
    """
    wanted = [spec.name for spec in specs]
    if not set(names) <= set(wanted):
        raise UserError(
            f"{what}s {', '.join(wanted)}", f"the graph has {', '.join(names)}", f"Name the {what}s as the graph does."
        )
    return tuple(name if name in names else "" for name in wanted)


def conform(arrays: Sequence[np.ndarray], specs: Sequence[TensorSpec]) -> list[np.ndarray]:
    """The arrays contiguous and in the dtypes of the specs; a shape that differs raises ``UserError``."""
    import numpy as np

    out = []
    for array, spec in zip(arrays, specs, strict=True):
        if array.shape != spec.shape:
            raise UserError(
                f"input {spec.name!r} of shape {array.shape}", f"the artefact takes {spec.shape}", "Pad it."
            )
        out.append(np.ascontiguousarray(array, dtype=spec.dtype))
    return out


def save_example(candidate: Candidate, folder: Path, names: Sequence[str]) -> None:
    """``example.npz``: the example inputs that the graph reads, at the execution's batch, by the graph's names."""
    import numpy as np

    arrays = files.example(candidate.snapshot, candidate.execution.batch)
    fed = {name: array for name, array in zip(names, arrays.values(), strict=True) if name}
    np.savez(folder / files.EXAMPLE, **fed)  # type: ignore[arg-type]


def example_arrays(artefact: Artefact) -> list[np.ndarray]:
    """The arrays of ``example.npz`` in the order of ``artefact.inputs``; zeros for inputs that nothing reads."""
    import numpy as np

    with np.load(Path(artefact.folder) / files.EXAMPLE) as stored:
        return [
            stored[spec.name] if spec.name in stored else np.zeros(spec.shape, spec.dtype) for spec in artefact.inputs
        ]


def describe(candidate: Candidate, folder: Path, written: Sequence[str], *, target: str, snippet: str) -> Artefact:
    """The record of an artefact whose files are in ``folder``; ``example`` is relative to it too."""
    snapshot, execution = candidate.snapshot, candidate.execution
    return Artefact(
        kind="file",
        folder=str(folder),
        files=tuple(written),
        target=target,
        execution=execution,
        inputs=files.at_batch(snapshot.inputs, execution.batch),
        outputs=files.at_batch(snapshot.outputs, execution.batch),
        snippet=snippet,
        size_bytes=sum((folder / name).stat().st_size for name in written),
        example=files.EXAMPLE,
    )


def environment_comment(execution: Execution) -> list[str]:
    """A first line for the snippet: variables that must be set before the process starts."""
    if not execution.variables:
        return []
    return ["# start with: " + " ".join(f"{name}={value}" for name, value in execution.variables)]
