"""Dividing the GPU between programs instead of streams: one parameter for every policy that gives each its part.

The engine shows such a policy each program as one stream (`gpusim.engine.by_program`), so that no policy knows of it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from gpusim.policies.interface import Policy
from gpusim.policies.tools.mixes import one_of
from gpusim.policies.tools.values import PROGRAM, STREAM


@dataclass
class Divides(Policy):
    """A policy that divides the GPU between the streams of a trace, or between its programs."""

    by: str = field(
        default=STREAM,
        kw_only=True,
        metadata={"help": "what has a part of its own: stream; or program, whose streams share its part"},
    )

    def divides_by(self) -> str:
        """Either `STREAM` or `PROGRAM`.

        Raises:
            InputError: the parameter is neither.
        """
        one_of(self.name, "by", self.by, (STREAM, PROGRAM))
        return self.by
