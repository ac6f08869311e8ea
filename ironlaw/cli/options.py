"""Arguments and options that several commands share, each said once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Workload = Annotated[str, typer.Argument(metavar="W", help="file.py:name, model.onnx with --data, or demo:NAME")]
Data = Annotated[Path | None, typer.Option(help="inputs by the graph's names, labels as y (.npz), for model.onnx")]
Json = Annotated[str | None, typer.Option("--json", metavar="FILE", help="write JSON; - for standard output")]
Debug = Annotated[bool, typer.Option("--debug", help="show the traceback of an error")]
Quiet = Annotated[bool, typer.Option("--quiet", help="no progress")]
Fresh = Annotated[bool, typer.Option("--fresh", help="measure anew what is stored")]
Names = Annotated[list[str] | None, typer.Option(help="name of a lever; may be repeated")]
Stored = Annotated[str, typer.Argument(metavar="RUN", help="id, unique prefix, or latest")]
