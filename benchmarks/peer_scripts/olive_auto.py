"""Runs in Olive's environment: ``olive auto-opt`` on an ONNX model for the CPU, everything else its own default."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--example", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--precision")
    given = parser.parse_args()
    command = [str(Path(sys.executable).with_name("olive")), "auto-opt", "--model_name_or_path", str(given.model)]
    command += ["--device", "cpu", "--provider", "CPUExecutionProvider", "--output_path", str(given.out / "olive")]
    command += ["--disable_telemetry"]
    if given.precision:
        command += ["--precision", given.precision]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=given.out)
    found = sorted((given.out / "olive").rglob("*.onnx"))
    if done.returncode or not found:
        said = [line for line in (done.stderr + done.stdout).splitlines() if line.strip()]
        print(json.dumps({"error": "olive auto-opt: " + (said[-1].strip()[:250] if said else "wrote no model")}))
        return
    print(json.dumps({"model": str(found[0])}))


if __name__ == "__main__":
    main()
