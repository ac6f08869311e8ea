"""float16 arithmetic on the torch targets: more precision than bf16, far less range (overflow at 65,504).

Most CPUs convert it to fp32 and back: 0.1 GFLOP/s against 38 were seen. The refusal says what was measured.
"""

from __future__ import annotations

from typing import ClassVar

from ironlaw.levers._half import Half


class Fp16(Half):
    """Runs convolutions and products in float16."""

    name: ClassVar[str] = "fp16"
    cites: ClassVar[str] = "Micikevicius et al. 2018, Mixed precision training, ICLR (arXiv:1710.03740)"
