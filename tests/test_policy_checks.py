"""The border between policies and the engine: whatever a policy answers, the replay ends or one line says why not."""

from __future__ import annotations

import os
import subprocess
import sys
import traceback
from asyncio import CancelledError
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from math import inf, nan, nextafter
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from strategies import examples
from tiny import kernel, played, stream, tiny

from gpusim import InputError
from gpusim.cli import main
from gpusim.engine.device import DECISIONS
from gpusim.policies.interface import Domains, Eviction, Grant, Partition, Policy, View
from gpusim.policies.smk import SMK
from gpusim.results.result import Result

TRACES = Path(__file__).resolve().parent.parent / "traces"
SMS = 4


@dataclass
class Answering(Policy):
    """Answers what it is told to; by default as plain streams do."""

    name = "answering"
    summary = "for these tests"
    answer: Callable[[View], Any] = lambda view: plain(view)
    domains: Any = None
    shown: Any = False
    calls: int = field(default=0, init=False)

    def partition(self, view: View) -> Partition:
        self.calls += 1
        return self.answer(view)  # type: ignore[no-any-return]

    def memory_domains(self, gpu: object, streams: object) -> Domains:
        return self.domains  # type: ignore[no-any-return]

    def shows_sms(self) -> bool:
        return self.shown  # type: ignore[no-any-return]


def plain(view: View, **changes: Any) -> Partition:
    return replace(Partition(tuple(Grant(kernel.id) for kernel in view.kernels)), **changes)


def run(policy: Policy) -> Result:
    """Two streams of small kernels on four SMs that hold one block each."""
    streams = (
        stream("a", kernel("a0", 6, 30.0), kernel("a1", 3, 10.0)),
        stream("b", kernel("b0", 4, 10.0, threads=256), kernel("b1", 30, 40.0, threads=128)),
    )
    return played(policy, *streams, gpu=tiny(SMS))


def refused(policy: Policy) -> str:
    with pytest.raises(InputError) as caught:
        run(policy)
    line = str(caught.value)
    assert line.startswith("policy answering: ") and "\n" not in line
    return line


# ---- each thing that can be wrong ------------------------------------------------------------------------------------


WRONG_GRANTS = [
    ("kernel", 7),
    ("kernel", -1),
    ("kernel", "a0"),
    ("kernel", None),
    ("kernel", []),
    ("kernel", 10**30),
    ("blocks_per_sm", -1),
    ("blocks_per_sm", 1.5),
    ("blocks_per_sm", "2"),
    ("sms", frozenset({SMS})),
    ("sms", frozenset({-1})),
    ("sms", frozenset({"0"})),
    ("sms", {0, 1}),
    ("sms", (0, 1)),
    ("sms", 3),
    ("queue", 0.5),
    ("queue", None),
    ("queue", -1),
    ("queue", 2**63),
    ("tenant", -1),
    ("tenant", "a"),
    ("tenant", 2**63),
    ("per_sm", (1,) * (SMS - 1)),
    ("per_sm", (1,) * (SMS + 1)),
    ("per_sm", ()),
    ("per_sm", [1] * SMS),
    ("per_sm", (1, 1, -1, 1)),
    ("per_sm", (1, 1, 0.5, 1)),
    ("per_sm", (1, 1, None, 1)),
    *((name, share) for name in ("issue_share", "l1_share", "dram_share") for share in (0.0, -0.5, 1.01, nan, inf)),
    ("issue_share", "half"),
    ("dram_share", 5e-324),
    ("quota", 0.0),
    ("quota", -1.0),
    ("quota", nan),
    ("quota", inf),
    ("quota", "1"),
]


@pytest.mark.parametrize(("name", "value"), WRONG_GRANTS)
def test_a_wrong_grant(name: str, value: Any) -> None:
    line = refused(Answering(lambda view: Partition((replace(Grant(0), **{name: value}),))))
    assert line.startswith(f"policy answering: grants[0].{name}") and "; expected " in line


WRONG_EVICTIONS = [
    ("kernel", 7),
    ("sm", 100_000),
    ("sm", SMS),
    ("sm", -1),
    ("sm", 0.0),
    ("blocks", -1),
    ("blocks", 2**63),
    ("blocks", 0.5),
    ("cost_us", -1.0),
    ("cost_us", nan),
    ("cost_us", inf),
    ("cost_us", 10**400),
    ("cost_us", None),
    ("restart", None),
]


@pytest.mark.parametrize(("name", "value"), WRONG_EVICTIONS)
def test_a_wrong_eviction(name: str, value: Any) -> None:
    eviction = replace(Eviction(0, 0, 1, 0.0), **{name: value})
    line = refused(Answering(lambda view: plain(view, evictions=(eviction,))))
    assert line.startswith(f"policy answering: evictions[0].{name} is ") and "; expected " in line


@pytest.mark.parametrize("wake", [0.0, -1.0, nan, inf, -inf, 10**400, "soon"])
def test_a_wrong_time_to_wake(wake: Any) -> None:
    assert "wake_us is " in refused(Answering(lambda view: plain(view, wake_us=wake)))


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (None, "partition() gives None"),
        ([], "partition() gives []"),
        ((Grant(0),), "partition() gives (Grant("),
        (Partition([Grant(0)]), "grants is ["),  # type: ignore[arg-type]
        (Partition(None), "grants is None"),  # type: ignore[arg-type]
        (Partition((None,)), "grants[0] is None"),  # type: ignore[arg-type]
        (Partition((Grant(0), Grant(0))), "grants[1] is a second one for kernel 0"),
        (Partition((), [Eviction(0, 0, 1, 0.0)]), "evictions is ["),  # type: ignore[arg-type]
        (Partition((), (0,)), "evictions[0] is 0"),  # type: ignore[arg-type]
    ],
)
def test_answers_of_a_wrong_type(answer: Any, says: str) -> None:
    assert says in refused(Answering(lambda view: answer))


@pytest.mark.parametrize(
    "domains",
    [
        [],
        3,
        [frozenset(range(SMS))],
        [(frozenset({0, 1}), 0.5)],  # SMs 2 and 3 are nowhere
        [(frozenset(range(SMS)), 0.5), (frozenset({3}), 0.5)],
        [(frozenset(range(SMS + 1)), 1.0)],
        [(set(range(SMS)), 1.0)],
        *([(frozenset(range(SMS)), share)] for share in (0.0, -1.0, nan, inf, 1.5, "1")),
        [(frozenset({0, 1}), 0.7), (frozenset({2, 3}), 0.7)],
    ],
)
def test_wrong_memory_domains(domains: Any) -> None:
    assert "memory_domains()" in refused(Answering(domains=domains))


def test_memory_domains_that_can_be() -> None:
    halves = [(frozenset({0, 1}), 0.5), (frozenset({2, 3}), 0.5)]
    assert run(Answering(domains=halves)).makespan_us > 0.0


@pytest.mark.parametrize("shown", [None, 1, "yes"])
def test_shows_sms_is_true_or_false(shown: Any) -> None:
    assert "shows_sms() gives " in refused(Answering(shown=shown))


def test_a_kernel_that_has_ended_is_not_known() -> None:
    def stale(view: View) -> Partition:
        return plain(view) if view.kernels[0].id == 0 else Partition((Grant(0),))

    assert "grants[0].kernel is 0; expected " in refused(Answering(stale))


class Liar(int):
    """A million that says it is within any limits."""

    def __le__(self, other: object) -> bool:
        return True

    __ge__ = __le__

    def __int__(self) -> int:
        return 0


class Nothing(float):
    """Not a number that says it is within any limits."""

    def __le__(self, other: object) -> bool:
        return True

    __ge__ = __le__


class Anywhere(frozenset[int]):
    """SMs that say they are those of any GPU."""

    def __le__(self, other: object) -> bool:
        return True


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (
            lambda view: {"evictions": (Eviction(view.kernels[0].id, Liar(10**6), 1, 0.0),)},
            r"evictions\[0\]\.sm is 1000000",
        ),
        (lambda view: {"grants": (Grant(view.kernels[0].id, issue_share=Nothing("nan")),)}, r"issue_share is nan"),
        (lambda view: {"grants": (Grant(view.kernels[0].id, sms=Anywhere({0, 10**6})),)}, r"grants\[0\]\.sms is "),
    ],
    ids=["SM", "share", "set of SMs"],
)
def test_numbers_of_a_class_of_ones_own_are_refused(change: Callable[[View], dict[str, Any]], problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        run(Answering(lambda view: plain(view, **change(view))))


class Empty(tuple[int, ...]):
    """As many numbers as any GPU has SMs, none of which comes out."""

    def __iter__(self) -> Iterator[int]:
        return iter(())


LYING = """
from test_policy_checks import SMS, Answering, Empty, Grant, Partition, run
from gpusim import InputError
try:
    run(Answering(lambda view: Partition(tuple(Grant(kernel.id, per_sm=Empty([1] * SMS)) for kernel in view.kernels))))
except InputError as error:
    print(error)
"""


def test_a_tuple_of_a_class_of_ones_own_is_refused() -> None:
    """In a process of its own, which it would end: the compiled core takes as many numbers as it has SMs."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
    ran = subprocess.run([sys.executable, "-c", LYING], capture_output=True, text=True, check=False, env=environment)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith("policy answering: grants[0].per_sm is ")


@pytest.mark.parametrize("name", ["blocks_per_sm", "queue", "issue_share", "quota"])
def test_spans_of_time_are_no_numbers(name: str) -> None:
    grant = replace(Grant(0), **{name: np.timedelta64(1, "us")})
    assert f"grants[0].{name} is " in refused(Answering(lambda view: Partition((grant,))))


@pytest.mark.parametrize(
    ("answer", "missing"),
    [
        (object.__new__(Partition), "Partition that has no grants"),
        (Partition((object.__new__(Grant),)), "Grant that has"),
    ],
    ids=["partition", "grant"],
)
def test_an_object_that_was_never_filled_is_refused(answer: Partition, missing: str) -> None:
    assert f"partition() gives a {missing}" in refused(Answering(lambda view: answer))


@pytest.mark.parametrize("raised", [GeneratorExit, CancelledError])
def test_whatever_a_policy_raises_is_one_line(raised: type[BaseException]) -> None:
    def answer(view: View) -> Partition:
        raise raised

    assert f"partition raised {raised.__name__}" in refused(Answering(answer))


def test_a_time_in_single_precision_does_not_set_the_clock() -> None:
    """The time is what it says; what comes after is as exact as ever."""
    result = run(Answering(lambda view: plain(view, wake_us=np.float32(view.now_us + 8.0))))
    assert type(result.makespan_us) is float and result.makespan_us == run(Answering()).makespan_us


def test_numbers_of_numpy_are_numbers() -> None:
    def answer(view: View) -> Partition:
        per_sm = tuple(np.full(SMS, 1))
        grants = [Grant(k.id, per_sm=per_sm, queue=np.int64(k.id), issue_share=np.float32(0.5)) for k in view.kernels]  # type: ignore[arg-type]
        return Partition(tuple(grants), wake_us=np.float64(view.now_us + 10.0))

    run(Answering(answer))


@pytest.mark.parametrize("wrong", [SMK, None, 3])
def test_what_is_no_policy(wrong: Any) -> None:
    with pytest.raises(InputError, match=r"^policy: is .*; expected an object of a subclass of Policy"):
        played(wrong, stream("a", kernel("a0", 1, 10.0)))


# ---- what a policy raises --------------------------------------------------------------------------------------------


def test_an_exception_of_a_policy_is_one_line_and_keeps_its_traceback() -> None:
    def answer(view: View) -> Partition:
        return {}["no such key"]  # type: ignore[no-any-return]

    with pytest.raises(InputError) as caught:
        run(Answering(answer))
    assert str(caught.value).startswith(
        "policy answering: partition raised KeyError: 'no such key' (test_policy_checks"
    )
    cause = caught.value.__cause__
    assert isinstance(cause, KeyError)
    assert "no such key" in "".join(traceback.format_exception(cause))


@pytest.mark.parametrize(
    "ask",
    [
        lambda view: view.residents(99),
        lambda view: view.progress(99),
        lambda view: view.blocks_done("a"),
        lambda view: view.solo_rate(99, 1),
        lambda view: view.mix_rates(((99, 1),)),
        lambda view: view.solo_rate(0, None),
        lambda view: exit(0),
    ],
)
def test_a_wrong_question_is_the_policy_s(ask: Callable[[View], object]) -> None:
    assert "partition raised " in refused(Answering(lambda view: [ask(view), plain(view)][1]))


def test_what_a_policy_of_this_package_raises_is_a_defect_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SMK, "partition", lambda self, view: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        run(SMK())


def test_other_methods_and_a_policy_without_a_name() -> None:
    class Nameless(Policy):
        def prepare(self, gpu: object, streams: object) -> None:
            raise RuntimeError

        def partition(self, view: View) -> Partition:
            return plain(view)

    with pytest.raises(
        InputError, match=r"^policy Nameless: prepare raised RuntimeError \(test_policy_checks.py, line"
    ):
        run(Nameless())


def test_the_command_line_prints_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "from gpusim.policies.interface import Policy\n"
        "class Mine(Policy):\n"
        "    name = 'mine'\n"
        "    summary = 'divides by zero'\n"
        "    def partition(self, view):\n"
        "        return 1 / 0\n"
    )
    trace = str(TRACES / "inception_3a.json.gz")
    assert main(["replay", trace, "--policy", f"{file}:Mine"]) == 2
    assert capsys.readouterr().err == (
        "policy mine: partition raised ZeroDivisionError: division by zero (mine.py, line 6)\n"
    )


# ---- for ever --------------------------------------------------------------------------------------------------------


FOR_EVER: list[Callable[[View], Partition]] = [
    lambda view: plain(view, wake_us=nextafter(view.now_us, inf)),
    lambda view: plain(view, wake_us=view.now_us + 1e-9),
    lambda view: Partition((), wake_us=view.now_us + 1.0),
    lambda view: plain(  # every block starts again before it ends
        view,
        evictions=tuple(Eviction(k.id, sm, 32, 0.0, restart=True) for k in view.kernels for sm in range(SMS)),
        wake_us=view.now_us + 1.0,
    ),
    lambda view: plain(  # every block has more to do than before
        view,
        evictions=tuple(Eviction(k.id, sm, 32, 2.0) for k in view.kernels for sm in range(SMS)),
        wake_us=view.now_us + 1.0,
    ),
]


@pytest.mark.parametrize("answer", FOR_EVER)
def test_a_policy_that_gets_nowhere_is_told_so(answer: Callable[[View], Partition]) -> None:
    policy = Answering(answer)
    assert "has decided " in refused(policy)
    assert policy.calls >= DECISIONS


def test_a_policy_may_look_often() -> None:
    often = run(Answering(lambda view: plain(view, wake_us=view.now_us + 0.1)))
    assert often.kernel_runs == run(Answering()).kernel_runs


# ---- anything --------------------------------------------------------------------------------------------------------


def valid(random: Random, view: View) -> Partition:
    """A partition that nothing speaks against, sensible or not."""

    def share() -> float | None:
        return random.choice([None, 1.0, 0.5, 1e-3, random.random() or 1.0])

    grants = [
        Grant(
            k.id,
            random.choice([None, 0, 1, 2, 40]),
            random.choice([None, frozenset(random.sample(range(SMS), random.randint(0, SMS)))]),
            random.choice([0, k.id, 7]),
            share(),
            share(),
            share(),
            random.choice([None, tuple(random.randint(0, 3) for _ in range(SMS))]),
            random.choice([None, k.id, 0]),
            random.choice([None, 1.0, random.random() or 1.0, 1e9]),
        )
        for k in random.sample(view.kernels, random.randint(0, len(view.kernels)))
    ]
    evictions = [
        Eviction(
            random.choice(view.kernels).id,
            random.randrange(SMS),
            random.randint(0, 32),
            random.choice([0.0, 1.0, random.random()]),
            random.random() < 0.5,
        )
        for _ in range(random.choice([0, 0, 1, 5]))
    ]
    wake = random.choice([None, view.now_us + 0.5, view.now_us + 10.0 * random.random() + 1e-3])
    return Partition(tuple(grants), tuple(evictions), wake)


def hostile(random: Random, view: View) -> Any:
    """A partition with one thing in it that is wrong, or none at all."""
    answer = valid(random, view)
    anything = [None, -1, 10**6, 2**63, -(2**63), 10**400, nan, inf, -inf, 0.0, 5e-324, "x", [], (), b"\0", object()]
    choice = random.randrange(6)
    if choice == 0 and answer.grants:
        names = [name for name in Grant.__slots__ if name not in ("kernel",)]
        grant = replace(answer.grants[0], **{random.choice(names): random.choice(anything)})
        return replace(answer, grants=(grant, *answer.grants[1:]))
    if choice == 1 and answer.evictions:
        eviction = replace(answer.evictions[0], **{random.choice(Eviction.__slots__): random.choice(anything)})
        return replace(answer, evictions=(eviction, *answer.evictions[1:]))
    if choice == 2:
        return replace(answer, grants=(*answer.grants, Grant(random.choice([-1, 99, 0, 1]), None, None, 3)))
    if choice == 3 and answer.grants:
        per_sm = tuple(random.choice([0, 1, -5, 10**9]) for _ in range(random.randint(0, 3 * SMS)))
        return replace(answer, grants=(replace(answer.grants[0], per_sm=per_sm), *answer.grants[1:]))
    if choice == 4:
        return replace(answer, wake_us=random.choice([*anything, view.now_us, view.now_us - 1.0]))
    return random.choice([*anything, answer])


@examples(400)
@given(seed=st.integers(0, 2**32), wrong_share=st.sampled_from([0.0, 0.0, 0.05, 0.5]), helps=st.booleans())
@example(seed=0, wrong_share=0.0, helps=True)
def test_whatever_a_policy_answers(seed: int, wrong_share: float, helps: bool) -> None:
    """It ends with every block run once, or with one line: never a crash, a hang or another exception."""
    random = Random(seed)

    def answer(view: View) -> Any:
        if helps and random.random() < 0.2:
            return plain(view, wake_us=view.now_us + 5.0)
        return hostile(random, view) if random.random() < wrong_share else valid(random, view)

    try:
        result = run(Answering(answer))
    except InputError as error:
        assert str(error).startswith("policy answering: ")
        return
    ran = [0] * len(result.kernel_runs)
    for placement in result.placements:
        ran[placement.run] += placement.blocks
    assert ran == [run.blocks for run in result.kernel_runs] and sorted(ran) == [3, 4, 6, 30]
