"""Runs in pruna's environment: smashes a pickled module with its dynamic int8 quantiser, which needs no GPU.

Pruna's other way on a CPU, ``torch_compile``, lives only in its process and is what the arm ``torch.compile`` is.
"""

from __future__ import annotations

import argparse
import json
import pickle
from pathlib import Path


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--example", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    import cloudpickle
    import torch
    from pruna import SmashConfig, smash  # type: ignore[import-not-found]  # in its own environment only

    with given.model.open("rb") as stream:
        model = pickle.load(stream)  # our own store wrote it
    config = SmashConfig(device="cpu")
    config.add("torch_dynamic")
    smashed = smash(model=model, smash_config=config)
    module = getattr(smashed, "model", smashed)
    if not isinstance(module, torch.nn.Module):
        print(json.dumps({"error": f"smash gave a {type(module).__name__}, not a module"}))
        return
    path = given.out / "model.pkl"
    with path.open("wb") as stream:
        cloudpickle.dump(module, stream)
    print(json.dumps({"model": str(path)}))


if __name__ == "__main__":
    main()
