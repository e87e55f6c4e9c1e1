"""The verdict: a sentence on the fastest policy, its lead against the model error, and where time is saved.

Where requests arrive over time, it names the policies of the lowest latencies instead.

Two makespans are a tie where they differ by less than the model's errors of both, added as independent errors. Where
the error of one policy is not known, that of the other must do, and the verdict says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import hypot

from gpusim.common.tables import grouped, number
from gpusim.results.comparison import ALONE, Comparison, Entry
from gpusim.results.metrics import BASELINE, TARGET_PERCENTILE, latency_percentiles_us
from gpusim.trace.independent import shares_nothing

SAME = 5e-4  # relative: makespans whose difference is printed as +0.0 % are a tie whatever the error
LEAST_SHARE = 0.02  # of the largest part of a gain, below which a part is not named
PARTS_IN_WORDS = {  # of `gpusim.results.gains.PARTS`
    "gaps": "launch gaps",
    "tails": "tails",
    "waiting": "blocks kept waiting",
    "sharing": "SM sharing",
    "rate": "kernel rates",
}
NAMES = {"leftover": "plain streams (leftover)"}  # of policies, at the start of a sentence


def tied(one: Entry, other: Entry) -> bool:
    """Whether the makespans of two policies differ by less than the model's errors."""
    mine, its = one.result.makespan_us, other.result.makespan_us
    return abs(mine - its) <= max(SAME, _error(one, other)) * max(mine, its)


def behind(entry: Entry, best: Entry) -> str:
    """Additional time of a policy over the best one: ``best``, ``tie`` or percent."""
    if entry is best:
        return "best"
    if tied(entry, best):
        return "tie"
    fastest_us = best.result.makespan_us
    return f"{100.0 * (entry.result.makespan_us - fastest_us) / fastest_us:+.1f} %" if fastest_us > 0.0 else ""


def verdict(comparison: Comparison) -> str:
    """The best policy, where it saves time, its lead against the model error, and the bound; or the least latencies."""
    best = comparison.entries[0]
    if shares_nothing(comparison.trace):
        return f"{ALONE[0].upper()}{ALONE[1:]}."
    if least := _least_latencies(comparison):
        parts = [*least, "makespans say little: they include the time in which requests arrive"]
    elif comparison.restart:
        parts = [_stp(best), f"run once, {_gain(best, comparison)}"]
    else:
        parts = [_gain(best, comparison), _lead(comparison, best), _bound(comparison)]
    text = "; ".join(filter(None, parts))
    return f"{text[:1].upper()}{text[1:]}."


def doubts(comparison: Comparison) -> list[str]:
    """Why the model's error is not known, each reason once, with the policies that it is of."""
    return comparison.attributed(lambda entry: [entry.how_wrong.reason] if ": " in entry.how_wrong.reason else [])


def explained(comparison: Comparison) -> Entry:
    """The entry whose kernels say what sharing gains or costs: the best policy, or the best that shares the GPU."""
    sharing = (entry for entry in comparison.entries if entry.result.policy != BASELINE)
    return next(sharing, comparison.entries[0])


def _least_latencies(comparison: Comparison) -> list[str]:
    """Which policies have the lowest latencies, and for which programs; nothing of one policy."""
    if len(comparison.entries) == 1:
        return []
    tails = {
        entry.result.policy: {
            program: of[TARGET_PERCENTILE] for program, of in latency_percentiles_us(entry.result).items()
        }
        for entry in comparison.entries
    }
    programs = tails[comparison.entries[0].result.policy]
    least = grouped(programs, lambda program: _least(tails, program))
    found = []
    for policies, of in least.items():
        what = f"{TARGET_PERCENTILE}th percentile of latency for {' and '.join(of)}"
        if len(policies) == len(tails):
            found.append(f"all have the same {what}")
        elif len(policies) == 1:
            found.append(f"{_has(comparison[policies[0]])} the lowest {what}")
        else:
            found.append(f"{' and '.join(_name(comparison[one]) for one in policies)} have the lowest {what}")
    return found


def _least(tails: Mapping[str, Mapping[str, float]], program: str) -> tuple[str, ...]:
    """The policies with the lowest latency of a program, within what is printed as +0.0 %."""
    least = min(of[program] for of in tails.values())
    return tuple(policy for policy, of in tails.items() if of[program] <= least * (1.0 + SAME))


def _gain(best: Entry, comparison: Comparison) -> str:
    serial_us = best.result.makespan_us * best.speedup_vs_serial
    if best.result.policy == BASELINE:
        shared = explained(comparison)
        if shared is best:
            return f"serial takes {number(serial_us)} µs"
        lost = shared.result.makespan_us - serial_us
        sign, found = -1.0, f"serial is fastest: {_name(shared)} would cost {number(lost)} µs"
        if lost <= 0.0:
            return "no policy is faster than serial"
    else:
        shared, saved = best, serial_us - best.result.makespan_us
        verb = "save" if best.result.policy in NAMES else "saves"
        sign, found = 1.0, f"{_name(best)} {verb} {number(saved)} µs of {number(serial_us)}"
        if saved <= 0.0:
            return f"{_name(best)} {verb} nothing over serial"
        if saved <= _error(best) * serial_us:
            return f"{found}, less than the model's error"
    gain = {part: sign * us for part, us in (shared.gain_us or {}).items()}
    largest = max((abs(us) for us in gain.values()), default=0.0)
    told = {part: us for part, us in gain.items() if abs(us) >= LEAST_SHARE * largest and number(abs(us)) != "0.0"}
    if not told:
        return found
    named = (f"{number(us)} {PARTS_IN_WORDS[part]}" for part, us in sorted(told.items(), key=lambda one: -one[1]))
    return f"{found}: {', '.join(named)}"


def _stp(best: Entry) -> str:
    stp = best.sharing["stp"]
    return "" if stp is None else f"{_has(best)} the highest STP, {number(stp, 3)}"


def _lead(comparison: Comparison, best: Entry) -> str:
    """Whether the lead over the next policy is more than the model's error."""
    others = [entry for entry in comparison.entries if entry is not best]
    ties = [entry for entry in others if tied(entry, best)]
    if ties:
        names = " and ".join(_quoted(entry) for entry in ties[:2])
        names = names if len(ties) < 3 else f"{_quoted(ties[0])} and {len(ties) - 1} others"
        if not any(_error(entry, best) for entry in ties):
            return f"{names} {'takes' if len(ties) == 1 else 'take'} the same time"
        return f"the difference to {names} is less than the model's error: a tie"
    if not others:
        return ""
    doubted = [entry for entry in (best, others[0]) if entry.how_wrong.band is None]
    if len(doubted) == 2:
        return f"whether the lead over {_quoted(others[0])} is real is unknown: neither is validated"
    unsure = f" ({_quoted(doubted[0])} is not validated)" if doubted else ""
    return f"the lead over {_quoted(others[0])} is more than the model's error{unsure}"


def _bound(comparison: Comparison) -> str:
    best = comparison.entries[0]
    serial_us, bound_us = best.result.makespan_us * best.speedup_vs_serial, comparison.bound_us
    if bound_us is None:
        return ""
    return f"no policy can save more than {number(max(0.0, serial_us - bound_us))} µs (limit: {comparison.bound_by})"


def _error(*entries: Entry) -> float:
    """Combined model error of some predictions, as a share of a makespan; 0 where none is known."""
    return hypot(*((entry.how_wrong.percent or 0.0) / 100.0 for entry in entries))


def _name(entry: Entry) -> str:
    return NAMES.get(entry.result.policy, _quoted(entry))


def _has(entry: Entry) -> str:
    return f"{_name(entry)} {'have' if entry.result.policy in NAMES else 'has'}"


def _quoted(entry: Entry) -> str:
    name = entry.result.policy
    return f"`{name.rpartition('/')[2] if '.py:' in name else name}`"
