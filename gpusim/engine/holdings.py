"""Contents of each SM over time, by launch. They are taken while the launches still have their slots."""

from __future__ import annotations

from collections.abc import Mapping

from gpusim.engine.core import SMArray
from gpusim.engine.mixes import Mix
from gpusim.results.runs import Contents


class Holdings:
    """Take the records of the SMs, which from now on note what they hold whenever that changes."""

    def __init__(self, sms: SMArray, count: int) -> None:
        self._sms = sms
        self._held: list[list[tuple[float, Mix]]] = [[] for _ in range(count)]  # mixes of launch ids
        sms.note_residents()

    def take(self, launch_in: Mapping[int, int]) -> None:
        """Take what was noted while slots belonged to these launches, given by id; of an instant its end."""
        for at, sm, mix in self._sms.take_noted():
            held = self._held[sm]
            if held and held[-1][0] == at:
                held.pop()
            held.append((at, tuple((launch_in[slot], blocks) for slot, blocks in mix)))

    def held(self, run_of: Mapping[int, int]) -> tuple[Contents, ...]:
        """Residents of each SM over time, of the launches that have a row; ``run_of`` maps a launch's id to its row."""
        return tuple(
            tuple((at, tuple((run_of[id], blocks) for id, blocks in mix if id in run_of)) for at, mix in held)
            for held in self._held
        )
