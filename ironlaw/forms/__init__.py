"""From one form of a model to another, each step written once.

    files       digests, example arrays at a batch, folders written beside and renamed
    eager       a pickled ``nn.Module``: loading and saving
    exported    eager -> exported (``torch.export``)
    onnx        exported -> ONNX (``torch.onnx.export``)
    openvino    ONNX -> OpenVINO IR
    clean       folds and drops what inference does not need from an exported program
    batch       fixes the batch of an ONNX model

Why a list of steps: a target says which forms it takes, a lever which it consumes and produces, and
the way from here to there is the shortest path over :data:`STEPS`; a new form is one more file and one
more line. A conversion is a function of its source, so its result is kept under
``snapshot.folder/forms/<form>-<source digest>`` and shared by all trials and runs.
It refuses to guess: a step that fails raises :class:`ConversionError` with its name and cause.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from ironlaw.forms import files
from ironlaw.records import Candidate, Form, ModelFile, Snapshot


class ConversionError(Exception):
    """A step could not be taken. ``step`` is *from -> to*, ``cause`` the last line of what was raised."""

    def __init__(self, step: str, cause: str) -> None:
        super().__init__(f"{step}: {cause}")
        self.step, self.cause = step, cause


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """One conversion: ``module.convert(source, snapshot, folder)`` writes ``folder/entry``."""

    source: str
    produces: str
    module: str
    entry: str

    @property
    def name(self) -> str:
        return f"{self.source} -> {self.produces}"

    def take(self, source: Path, snapshot: Snapshot, folder: Path) -> str:
        """Write the new form into ``folder``; the digest of what was written."""
        digest: str = import_module(self.module).convert(source, snapshot, folder)
        return digest


STEPS: tuple[Step, ...] = (
    Step(source=Form.EAGER, produces=Form.EXPORTED, module="ironlaw.forms.exported", entry="model.pt2"),
    Step(source=Form.EXPORTED, produces=Form.ONNX, module="ironlaw.forms.onnx", entry="model.onnx"),
    Step(source=Form.ONNX, produces=Form.OPENVINO, module="ironlaw.forms.openvino", entry="model.xml"),
)


def route(source: str, form: str, steps: Sequence[Step] = STEPS) -> tuple[Step, ...] | None:
    """The shortest way from one form to another; empty when they are the same, None when there is none."""
    ways: dict[str, tuple[Step, ...]] = {source: ()}
    frontier = [source]
    while frontier and form not in ways:
        here = frontier.pop(0)
        for step in steps:
            if step.source == here and step.produces not in ways:
                ways[step.produces] = (*ways[here], step)
                frontier.append(step.produces)
    return ways.get(form)


def nearest(source: str, forms: Iterable[str]) -> str | None:
    """Of ``forms``, the one with the fewest steps from ``source`` (the first of equals); None when none is reached."""
    ways = {form: way for form in forms if (way := route(source, form)) is not None}
    return min(ways, key=lambda form: len(ways[form]), default=None)


def convert(candidate: Candidate, form: str) -> Candidate:
    """The candidate with its model in ``form``; conversions done before are reused.

    Raises:
        ConversionError: there is no way there, or a step failed.
    """
    way = route(candidate.model.form, form)
    if way is None:
        raise ConversionError(f"{candidate.model.form} -> {form}", "there is no conversion between these forms")
    model = candidate.model
    for step in way:
        model = _step(step, model, candidate.snapshot)
    return dataclasses.replace(candidate, model=model)


def _step(step: Step, model: ModelFile, snapshot: Snapshot) -> ModelFile:
    folder = Path(snapshot.folder) / "forms" / f"{step.produces}-{model.digest[:16]}"
    if not (folder / files.DIGEST).exists():
        with files.publishing(folder) as beside:
            try:
                digest = step.take(Path(model.path), snapshot, beside)
            except Exception as error:
                raise ConversionError(step.name, last_line(error)) from error
            (beside / files.DIGEST).write_text(digest)
    return ModelFile(
        form=step.produces, path=str(folder / step.entry), digest=(folder / files.DIGEST).read_text().strip()
    )


def last_line(error: BaseException) -> str:
    """What the deepest cause of an error says, as the last line of its traceback would."""
    while error.__cause__ is not None:
        error = error.__cause__
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
