"""Dividing the GPU between programs instead of streams: one parameter for every policy that gives each its part.

The engine shows such a policy each program as one stream (`gpusim.engine.by_program`), so that no policy knows of it.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpusim.policies.interface import Policy, parameter
from gpusim.policies.tools.values import PROGRAM, STREAM


@dataclass
class Divides(Policy):
    """A policy that divides the GPU between the streams of a trace, or between its programs."""

    by: str = parameter(
        STREAM,
        "what gets a part of the GPU: stream; or program, whose streams share the part",
        one_of=(STREAM, PROGRAM),
        kw_only=True,
    )
