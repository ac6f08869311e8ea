"""bfloat16 arithmetic on the torch targets: the range of fp32 with 8 bits of precision, no scaling needed.

It refuses CPUs without bf16 dot products, by the measured ceiling and not by the flag.
"""

from __future__ import annotations

from typing import ClassVar

from ironlaw.levers._half import Half


class Bf16(Half):
    """Runs convolutions and products in bfloat16."""

    name: ClassVar[str] = "bf16"
    cites: ClassVar[str] = "Kalamkar et al. 2019, A study of BFLOAT16 for deep learning training, arXiv:1905.12322"
