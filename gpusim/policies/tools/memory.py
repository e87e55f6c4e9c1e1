"""Sharing the memory pipeline between kernels that run on the same SMs: balanced issue and in-flight limits.

Dai, Lin, Li, Zhao, Wang, Zheng, Zhou, "Accelerate GPU concurrent kernel execution by mitigating memory pipeline
stalls", HPCA'18. The schemes are recalled [M]; what they come to where no single request is simulated is ours [D]:

* QBMI gives each kernel a quota of memory instructions inversely proportional to the requests that one makes, so
  that the kernels send equally many requests: each gets a max-min fair share of its SM's L1 and shared-memory path.
* DMIL lowers a kernel's cap on memory instructions in flight as long as requests fail for want of room: outstanding
  requests over latency is bandwidth, so kernels that together demand more DRAM bandwidth than there is are held
  at their max-min fair share of it, and nobody queues for long.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from gpusim.policies.interface import Grant, View, parameter
from gpusim.policies.tools.notes import Uncounted

MITIGATIONS = ("none", "qbmi", "dmil")
NO_LIMIT = "the mitigation held these to no limit"
ENOUGH = 1.0 - 1e-9  # a demand that the fair share covers to rounding needs no limit


def mitigation() -> Any:
    """The parameter of a policy that says which of them it applies."""
    how = "none, or qbmi or dmil: balanced memory issue or in-flight limits (Dai et al., HPCA'18)"
    return parameter("none", how, one_of=MITIGATIONS)


def fair_shares(demands: Sequence[float]) -> list[float]:
    """Return max-min fair shares of a supply of 1: none exceeds its demand, and what it leaves goes to the others."""
    shares = [0.0] * len(demands)
    left = 1.0
    order = sorted(range(len(demands)), key=lambda i: (demands[i], i))
    for served, i in enumerate(order):
        shares[i] = min(demands[i], left / (len(order) - served))
        left -= shares[i]
    return shares


def mitigated(view: View, grants: Sequence[Grant], how: str, uncounted: Uncounted) -> list[Grant]:
    """Grants for kernels that share every SM, their memory traffic limited by one of `MITIGATIONS`."""
    if how != "none":
        uncounted.ask(view.kernels)
    if how == "none" or len(grants) < 2:
        return list(grants)
    kernels = {kernel.id: kernel for kernel in view.kernels}
    mine = [kernels[grant.kernel] for grant in grants]
    mix = [(grant.kernel, grant.blocks_per_sm or 1) for grant in grants]
    if how == "qbmi":  # shares of an SM's L1 and shared-memory data path that each would take without the others
        rates: Sequence[float] = [view.solo_rate(kernel, blocks, 1) for kernel, blocks in mix]
        demands = [rate * kernel.memory_us for rate, kernel in zip(rates, mine, strict=True)]
    else:  # shares of the DRAM bandwidth if nothing queued there: what one SM demands, times all
        rates = view.mix_rates(mix, 1)
        demands = [rate * kernel.dram_us * view.gpu.sm_count for rate, kernel in zip(rates, mine, strict=True)]
    shares = (
        share if share < ENOUGH * demand else None for share, demand in zip(fair_shares(demands), demands, strict=True)
    )
    if how == "qbmi":
        return [replace(grant, l1_share=share) for grant, share in zip(grants, shares, strict=True)]
    return [replace(grant, dram_share=share) for grant, share in zip(grants, shares, strict=True)]
