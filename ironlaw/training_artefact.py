"""What ships of a tuned training job: settings, the code that applies them, and a page that shows how.

The job itself stays in the store: it is the user's own code, and a pickle. ``recipe.py`` is the very file by which the
job was run here; ``run.py`` applies the settings to a toy job, so that a package can be checked in a fresh process.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
from pathlib import Path
from typing import Any

from ironlaw.records import Artefact, Candidate, Execution
from ironlaw.workloads.configure import DECODED, loader_settings
from ironlaw.workloads.parcel import FILE

KIND = "training"
RECIPE, SETTINGS = "recipe.py", "settings.json"
_SNIPPET = '''"""In your training script, started with settings["variables"] in its environment:

    torch.set_num_threads(settings["threads"])
    loader = recipe.tuned_loader(loader, **settings["loader"])
    if settings["checkpointing"]:
        recipe.checkpointed(model)
    with recipe.autocast(device, settings["precision"]):
        loss = criterion(model(x), y)
{decode}
Below, the same on a toy job.
"""

import json

import recipe
import torch

settings = json.load(open("settings.json"))
torch.set_num_threads(settings["threads"])
model = torch.nn.Sequential(*(torch.nn.Linear(8, 8) for _ in range(8)))
data = torch.utils.data.TensorDataset(torch.randn(64, 8), torch.randn(64, 8))
loader = torch.utils.data.DataLoader(data, batch_size=16, shuffle=True)
loader = recipe.tuned_loader(loader, **{{**settings["loader"], "workers": 0, "persistent": False, "decoded": None}})
if settings["checkpointing"]:
    recipe.checkpointed(model)
losses = []
for x, y in loader:
    with recipe.autocast("cpu", settings["precision"]):
        loss = torch.nn.functional.mse_loss(model(x).float(), y)
    loss.backward()
    losses.append(loss)
outputs = [torch.stack(losses)]'''
_DECODE = """
Once, before the first run: recipe.decode(dataset, "decoded"); then settings["loader"]["decoded"] = "decoded".
"""


def settings_of(execution: Execution) -> dict[str, Any]:
    """The settings as data, as ``recipe.py`` takes them."""
    return {
        "threads": execution.threads,
        "variables": dict(execution.variables),
        "precision": execution.precision,
        "checkpointing": bool(execution.option("checkpointing", False)),
        "loader": loader_settings(execution),
    }


def write(candidate: Candidate, folder: Path, *, weights_bytes: int) -> Artefact:
    """Write the artefact of a training candidate into ``folder`` (replaced)."""
    beside = Path(f"{folder}.part")
    shutil.rmtree(beside, ignore_errors=True)
    beside.mkdir(parents=True)
    found = importlib.util.find_spec("ironlaw.workloads.recipe")
    assert found is not None
    assert found.origin is not None
    shutil.copyfile(found.origin, beside / RECIPE)
    settings = settings_of(candidate.execution)
    (beside / SETTINGS).write_text(json.dumps(settings, indent=2) + "\n")
    shutil.rmtree(folder, ignore_errors=True)
    beside.rename(folder)
    return Artefact(
        kind=KIND,
        folder=str(folder),
        files=(RECIPE, SETTINGS),
        target=candidate.execution.target,
        execution=candidate.execution,
        inputs=(),
        outputs=(),
        snippet=_SNIPPET.format(decode=_DECODE if settings["loader"].get(DECODED) else ""),
        size_bytes=weights_bytes,
        example=str(Path(candidate.snapshot.folder) / FILE),
    )
