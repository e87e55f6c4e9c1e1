"""Channels of plain streams, decision after decision, against the rule written down pair by pair."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from views import kernel as kernel_view
from views import view_of

from gpusim.policies import hardware
from gpusim.policies.hardware import Leftover
from gpusim.policies.registry import policy_from

Queued = tuple[float, int]


class PairByPair:
    """The rule of `Leftover` with every kernel held against every other."""

    def __init__(self, channels: int) -> None:
        self.channels = channels
        self.entered: dict[int, int] = {}
        self.line: list[int] = []

    def behind(self, kernel: Any, stream: int, queued: Queued) -> bool:
        same = stream != kernel.stream_index and stream % self.channels == kernel.stream_index % self.channels
        return not kernel.internal and same and queued < kernel.queued

    def decide(self, kernels: Sequence[Any], unready: Mapping[int, Queued]) -> list[int]:
        ahead = {
            kernel.id: {
                other.id
                for other in kernels
                if other.waiting and not other.internal and self.behind(kernel, other.stream_index, other.queued)
            }
            for kernel in kernels
        }
        reachable = [k for k in kernels if not any(self.behind(k, *head) for head in unready.items())]
        order = {kernel: place for place, kernel in enumerate(k for k in self.line if k in ahead)}
        free = [kernel for kernel in reachable if not ahead[kernel.id]]
        for kernel in sorted(free, key=lambda k: (order.get(k.id, len(order)), -k.priority, k.ready_us, k.id)):
            self.entered.setdefault(kernel.id, len(self.entered))
        entered, places = dict(self.entered), len(self.entered)
        self.line = []
        while free:
            following = min(free, key=lambda k: (-k.priority, entered[k.id]))
            free.remove(following)
            self.line.append(following.id)
            for kernel in reachable:
                if following.id in ahead[kernel.id]:
                    ahead[kernel.id].remove(following.id)
                    if not ahead[kernel.id]:
                        entered[kernel.id] = places
                        places += 1
                        free.append(kernel)
        return self.line


@st.composite
def kernel(draw: st.DrawFn, number: int) -> Any:
    return SimpleNamespace(
        id=number,
        stream="s",
        stream_index=draw(st.integers(0, 8)),
        internal=draw(st.integers(0, 9)) == 0,
        priority=draw(st.integers(0, 1)),
        ready_us=float(draw(st.integers(0, 3))),
        queued=(float(draw(st.integers(0, 1))), draw(st.integers(0, 12))),
        waiting=draw(st.integers(0, 2)),
    )


@given(data=st.data(), channels=st.integers(1, 4))
def test_the_line_of_any_kernels_in_any_channels(data: st.DataObject, channels: int) -> None:
    policy, rule = Leftover(channels=channels), PairByPair(channels)
    policy._share_channels = True
    heads = st.dictionaries(st.integers(0, 8), st.tuples(st.just(0.0), st.integers(0, 12)), max_size=4)
    here: list[Any] = []
    for number in range(data.draw(st.integers(1, 10))):
        here = [known for known in here if data.draw(st.integers(0, 3))]  # the others have ended
        for known in here:
            known.waiting = min(known.waiting, data.draw(st.integers(0, 2)))
        here += [data.draw(kernel(10 * number + i)) for i in range(data.draw(st.integers(0, 3)))]
        unready = data.draw(heads)
        view: Any = SimpleNamespace(kernels=tuple(here), unready=lambda unready=unready: unready)
        assert [grant.kernel for grant in policy.partition(view).grants] == rule.decide(here, unready)


def test_kernels_far_behind_in_their_channel_are_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """800 streams of two kernels on 8 channels: first ones are ready, second ones are what later streams wait for."""
    looked_at: list[int] = []
    behind = hardware._behind
    monkeypatch.setattr(hardware, "_behind", lambda k, firsts: looked_at.append(k.id) or behind(k, firsts))
    kernels = [kernel_view(n, queued=(0.0, 2 * n)) for n in range(800)]
    view = view_of(*kernels)._replace(unready=lambda: {n: (0.0, 2 * n + 1) for n in range(800)})
    policy = policy_from("leftover")
    policy.prepare(view.gpu, view.streams)
    assert {grant.kernel for grant in policy.partition(view).grants} == set(range(8))
    assert len(looked_at) < 100
