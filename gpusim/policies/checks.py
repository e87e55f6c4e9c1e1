"""The border between a policy and the engine: every answer of a policy is checked before it takes effect.

The SMs are advanced by a compiled core that trusts its numbers, so every one that a policy gives is checked here first.
Nothing is repaired. An invalid answer is an `InputError` that names the policy.
"""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable, Container, Mapping
from dataclasses import replace
from math import fsum, inf, isclose
from numbers import Integral, Real
from pathlib import Path
from typing import NoReturn, ParamSpec, TypeGuard, TypeVar

from gpusim.common.errors import InputError, described, quote
from gpusim.hardware.gpu import GPU
from gpusim.policies.interface import Domains, Eviction, Grant, Partition, Policy

P = ParamSpec("P")
T = TypeVar("T")

MOST_CHARACTERS = 300  # of an exception
LEAST_SHARE = 1e-9  # of anything: below, times leave the range in which a replay can tell them apart
LONGEST_US = 1e15  # thirty years
LEAST_QUOTA, MOST_QUOTA = 1e-100, 1e100  # only their ratios count
NUMBERS = ("builtins", "fractions", "numpy")  # modules whose numbers a policy may answer with
NO_NUMBER = "timedelta64"  # which numpy has among its integers
LARGEST = 2**31 - 1  # number of a queue or of a tenant


def name_of(policy: Policy) -> str:
    """A policy's name, or that of its class where it has none."""
    return getattr(policy, "name", type(policy).__name__)


def named(policy: Policy) -> str:
    """Name of a policy in messages."""
    return f"policy {name_of(policy)}"


def shipped(policy: type[Policy]) -> bool:
    """Whether a policy is of this package, so that an exception in it is a defect of ours."""
    return policy.__module__.startswith("gpusim.")


def ask(policy: Policy, method: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a method of a policy and return its result.

    Raises:
        InputError: a user's own policy raised something; it is the cause (``__cause__``), with its traceback. An
            exception of a policy of this package is not changed.
    """
    try:
        return method(*args, **kwargs)
    except (InputError, KeyboardInterrupt):
        raise
    except BaseException as error:
        if shipped(type(policy)):
            raise
        raise InputError(None, named(policy), raised(method.__name__, error, type(policy))) from error


def notes_of(policy: Policy) -> tuple[str, ...]:
    """The notes of a policy on the replay that has ended, checked."""
    notes = ask(policy, policy.notes)
    if not (isinstance(notes, tuple | list) and all(isinstance(note, str) for note in notes)):
        raise InputError(None, named(policy), f"notes() gives {quote(notes)}", "a tuple of lines of text")
    return tuple(notes)


def raised(where: str, error: BaseException, policy: type[Policy]) -> str:
    """One line about an exception: what it says, and the last line of the policy's own file that it passed."""
    try:
        file = inspect.getsourcefile(policy)
    except TypeError:  # a class that was made without a file
        file = None
    mine = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    at = f" ({Path(mine[-1].filename).name}, line {mine[-1].lineno})" if mine else ""
    return f"{where} raised {described(error)[:MOST_CHARACTERS]}{at}"


def _whole(value: object, most: float = inf) -> TypeGuard[int]:
    """Whether a value is a non-negative integer, of Python or numpy."""
    return (type(value) is int or (isinstance(value, Integral) and _plain(value))) and 0 <= int(value) <= most


def _real(value: object) -> TypeGuard[float]:
    """Whether a value is a real number, of Python or numpy."""
    return type(value) is float or (isinstance(value, Real) and _plain(value))


def _plain(value: object) -> bool:
    """Whether a number compares as what it is: one of a policy's own class need not."""
    return type(value).__module__ in NUMBERS and type(value).__name__ != NO_NUMBER


class Border:
    """The checks of one policy on one GPU; anything that is no policy is refused."""

    def __init__(self, policy: Policy, gpu: GPU) -> None:
        if not isinstance(policy, Policy):
            raise InputError(None, "policy", f"is {quote(policy)}", "an object of a subclass of Policy, or its name")
        self._name = named(policy)
        self._sm_count = gpu.sm_count
        self._sms = frozenset(range(gpu.sm_count))
        self._most_blocks = gpu.limits.max_blocks_per_sm

    def shows_sms(self, answer: object) -> bool:
        """Check the value that ``Policy.shows_sms`` returned."""
        if not isinstance(answer, bool):
            self._refuse(f"shows_sms() gives {quote(answer)}", "True or False")
        return answer

    def memory_domains(self, answer: object) -> Domains:
        """Check the value that ``Policy.memory_domains`` returned: each SM in one domain, all shares at most 1."""
        if answer is None:
            return None
        if not isinstance(answer, list | tuple):
            self._refuse(f"memory_domains() gives {quote(answer)}", "a list of (SMs, share), or None")
        found: list[tuple[frozenset[int], float]] = []
        for n, domain in enumerate(answer):
            place = f"memory_domains()[{n}]"
            if not (isinstance(domain, tuple) and len(domain) == 2):
                self._refuse(f"{place} is {quote(domain)}", "(SMs, share)")
            sms, share = domain
            self._check_sms(place, sms)
            self._check_share(place, share)
            found.append((frozenset(map(int, sms)), float(share)))
        if sorted(sm for sms, _ in found for sm in sms) != sorted(self._sms):
            self._refuse("memory_domains() do not hold every SM once", f"each of the {self._sm_count} SMs in one")
        total = fsum(share for _, share in found)
        if total > 1.0 and not isclose(total, 1.0):
            self._refuse(f"memory_domains() have {total:g} of L2 and DRAM together", "at most 1")
        return found

    def partition(
        self, answer: object, kernels: Container[int], now_us: float, before: Mapping[int, Grant]
    ) -> tuple[Partition, dict[int, Grant]]:
        """Return what ``Policy.partition`` returned, and its grants by kernel.

        Its objects are of the very classes of the interface: one of a policy's own need not give twice what it gave. A
        grant in ``before`` was checked when it was given; one that is given again needs no second look.
        """
        try:
            if type(answer) is not Partition:
                self._refuse(f"partition() gives {quote(answer)}", "a Partition")
            if type(answer.grants) is not tuple:
                self._refuse(f"grants is {quote(answer.grants)}", "a tuple of Grant")
            grants: dict[int, Grant] = {}
            for n, grant in enumerate(answer.grants):
                if type(grant) is not Grant:
                    self._refuse(f"grants[{n}] is {quote(grant)}", "a Grant")
                kernel = grant.kernel
                if type(kernel) is not int or before.get(kernel) is not grant:
                    self._check_kernel(f"grants[{n}]", kernel, kernels)
                    self._check_grant(f"grants[{n}]", grant)
                if kernel in grants:
                    self._refuse(f"grants[{n}] is a second one for kernel {kernel}", "one for each kernel")
                grants[kernel] = grant
            if type(answer.evictions) is not tuple:
                self._refuse(f"evictions is {quote(answer.evictions)}", "a tuple of Eviction")
            for n, eviction in enumerate(answer.evictions):
                self._check_eviction(f"evictions[{n}]", eviction, kernels)
            wake_us = answer.wake_us
            if wake_us is None or (type(wake_us) is float and now_us < wake_us <= LONGEST_US):
                return answer, grants
            if not (_real(wake_us) and 0.0 <= wake_us <= LONGEST_US and now_us < float(wake_us)):
                self._refuse(f"wake_us is {quote(wake_us)} at {now_us:g} us", "a later time, us, or None")
            return replace(answer, wake_us=float(wake_us)), grants
        except AttributeError as error:
            self._refuse(f"partition() gives a {type(error.obj).__name__} that has no {error.name}", "whole objects")

    def _check_grant(self, place: str, grant: Grant) -> None:
        if grant.blocks_per_sm is not None and not _whole(grant.blocks_per_sm):
            self._refuse(f"{place}.blocks_per_sm is {quote(grant.blocks_per_sm)}", "a number of blocks, or None")
        if grant.sms is not None:
            self._check_sms(f"{place}.sms", grant.sms)
        if grant.per_sm is not None:
            self._check_per_sm(f"{place}.per_sm", grant.per_sm)
        if not _whole(grant.queue, LARGEST):
            self._refuse(f"{place}.queue is {quote(grant.queue)}", f"a whole number from 0 to {LARGEST}")
        if grant.tenant is not None and not _whole(grant.tenant, LARGEST):
            self._refuse(f"{place}.tenant is {quote(grant.tenant)}", f"a whole number from 0 to {LARGEST}, or None")
        for name in ("issue_share", "l1_share", "dram_share"):
            share = getattr(grant, name)
            if share is not None:
                self._check_share(f"{place}.{name}", share)
        if grant.quota is not None and not (_real(grant.quota) and LEAST_QUOTA <= grant.quota <= MOST_QUOTA):
            self._refuse(f"{place}.quota is {quote(grant.quota)}", "above 0 and finite, or None")

    def _check_eviction(self, place: str, eviction: object, kernels: Container[int]) -> None:
        if type(eviction) is not Eviction:
            self._refuse(f"{place} is {quote(eviction)}", "an Eviction")
        self._check_kernel(place, eviction.kernel, kernels)
        if not _whole(eviction.sm, self._sm_count - 1):
            self._refuse(f"{place}.sm is {quote(eviction.sm)}", f"an SM from 0 to {self._sm_count - 1}")
        if not _whole(eviction.blocks, self._most_blocks):
            self._refuse(f"{place}.blocks is {quote(eviction.blocks)}", f"a number from 0 to {self._most_blocks}")
        if not (_real(eviction.cost_us) and 0.0 <= eviction.cost_us <= LONGEST_US):
            self._refuse(f"{place}.cost_us is {quote(eviction.cost_us)}", "0 or more, us")
        if not isinstance(eviction.restart, bool):
            self._refuse(f"{place}.restart is {quote(eviction.restart)}", "True or False")

    def _check_kernel(self, place: str, kernel: object, kernels: Container[int]) -> None:
        if not _whole(kernel, LARGEST) or kernel not in kernels:
            self._refuse(f"{place}.kernel is {quote(kernel)}", "the id of a kernel that is ready or running")

    def _check_sms(self, place: str, sms: object) -> None:
        if not (type(sms) is frozenset and sms <= self._sms):
            self._refuse(f"{place} is {quote(sms)}", f"a frozenset of SMs from 0 to {self._sm_count - 1}")

    def _check_per_sm(self, place: str, per_sm: object) -> None:
        if type(per_sm) is not tuple:
            self._refuse(f"{place} is {quote(per_sm)}", "a tuple of numbers of blocks, one an SM")
        if len(per_sm) != self._sm_count:
            self._refuse(f"{place} has {len(per_sm)} numbers", f"{self._sm_count}, one an SM")
        for sm, blocks in enumerate(per_sm):
            if not _whole(blocks):
                self._refuse(f"{place}[{sm}] is {quote(blocks)}", "a number of blocks")

    def _check_share(self, place: str, share: object) -> None:
        if not (_real(share) and LEAST_SHARE <= share <= 1.0):
            self._refuse(f"{place} is {quote(share)}", f"a share above 0 ({LEAST_SHARE:g} or more) and at most 1")

    def _refuse(self, problem: str, expected: str) -> NoReturn:
        raise InputError(None, self._name, problem, expected)
