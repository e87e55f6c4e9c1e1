"""Which block of each clock's launch ends first, and on which SM: a tournament over the SMs."""

from __future__ import annotations

from array import array

from gpusim.engine.tables import _NEVER, reals


class FirstEnds:
    """A tree over the SMs for each clock: node 1 is its root, node i has the children 2 i and 2 i + 1.

    The SMs are the last half of the nodes.
    """

    def __init__(self, clocks: int, sms: int) -> None:
        self.sms = sms
        self.nodes = 2 * sms
        self.due = reals(clocks * self.nodes, _NEVER)  # in virtual time
        self.sm = array("q", [*range(-sms, sms)]) * clocks

    def note(self, clock: int, sm: int, due: float) -> None:
        """Note when the first block of a clock's launch on an SM ends, and so on which SM the first of all does."""
        root = clock * self.nodes
        node = self.sms + sm
        self.due[root + node] = due
        while node > 1:  # C does it without a branch, which none could predict
            other = self.due[root + (node ^ 1)]
            on_other = self.sm[root + (node ^ 1)]
            sm += ((other < due) | ((other == due) & (on_other < sm))) * (on_other - sm)
            due = other if other < due else due
            node >>= 1
            self.due[root + node] = due
            self.sm[root + node] = sm

    def first(self, clock: int) -> float:
        """When the first block of a clock's launch ends, in virtual time; `NEVER` where no SM holds any."""
        return self.due[clock * self.nodes + 1]

    def first_sm(self, clock: int) -> int:
        """On which SM that is; of equals the first."""
        first: int = self.sm[clock * self.nodes + 1]
        return first
