"""Start orders: the order in which the streams of a plan begin, if the program does not control it.

The branches of an inception module wait for the layer before it. The GPU releases such streams in an order that depends
on the hardware queue of each stream ([V] experiments/hardware_check). A plan is therefore judged by the mean over
orders, unless the host launches in its own order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Literal

from gpusim.choose.plan import Plan

Order = Literal["any", "host"]
ORDERS: tuple[Order, ...] = ("any", "host")
MOST_ORDERS = 4  # start orders that a plan is replayed in: beyond four streams evenly spaced rotations


def has_start_orders(plan: Plan, order: Order) -> bool:
    """Whether a plan runs in several start orders: streams with SMs of their own do not compete for the first SMs."""
    return order == "any" and len(plan.lanes) > 1 and not plan.sms


def unordered(plan: Plan) -> Plan:
    """The plan with its streams sorted: one plan for all orders of the same streams."""
    return replace(plan, lanes=tuple(sorted(plan.lanes)))


def started(plan: Plan, order: Order) -> Iterator[Plan]:
    """Yield the plan once for each start order, its streams in that order.

    Rotations, so that each stream is first once and last once; of more than `MOST_ORDERS` streams some of them.
    """
    if not has_start_orders(plan, order):
        yield plan
        return
    lanes = unordered(plan).lanes
    count = min(len(lanes), MOST_ORDERS)
    for n in range(count):
        shift = n * len(lanes) // count
        yield replace(plan, lanes=lanes[shift:] + lanes[:shift])
