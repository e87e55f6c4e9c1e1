"""Dividing the GPU between programs instead of streams: one parameter for every policy that gives each its part.

The engine shows such a policy each program as one stream (`gpusim.engine.by_program`), so that no policy knows of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gpusim.policies.interface import Policy, parameter
from gpusim.policies.tools.values import PROGRAM, STREAM


def divided_by(default: str | None) -> Any:
    """The parameter `Divides.by`; its default is None where parts belong to processes, of which each program is one."""
    what = "what gets a part of the GPU: stream; or program, whose streams share the part"
    otherwise = "; default: program in a trace of several programs, else stream" if default is None else ""
    return parameter(default, what + otherwise, one_of=(STREAM, PROGRAM), kw_only=True)


@dataclass
class Divides(Policy):
    """A policy that divides the GPU between the streams of a trace, or between its programs."""

    by: str | None = divided_by(STREAM)

    def by_program(self, programs: int) -> bool:
        """Whether the programs get the parts in a trace of so many of them."""
        return self.by == PROGRAM or (self.by is None and programs > 1)
