"""What policies say of a replay afterwards: every fallback, why, and how often."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from tiny import kernel, stream, tiny, trace

from gpusim import InputError, load_gpu, replay
from gpusim.hardware.gpu import GPU
from gpusim.policies.hardware import Leftover
from gpusim.policies.registry import policies, policy_from
from gpusim.results.error_band import experiment_of
from gpusim.studies.rules import replay_rule
from gpusim.trace.format import Trace
from gpusim.trace.operations import Stream

H200 = load_gpu("h200")
WIDE = 1024  # threads: one block has an SM to itself
SMALL = 128


def told(policy: str, *streams: Stream, gpu: GPU | None = None) -> tuple[str, ...]:
    return policy_notes(policy, trace(*streams), gpu or tiny())


def policy_notes(policy: str, made: Trace, gpu: GPU) -> tuple[str, ...]:
    chosen = policy_from(policy)
    replay_rule(made, gpu, chosen)
    return chosen.notes()


def one_each(*names: str, threads: int = SMALL, blocks: int = 8, priority: int = 0) -> list[Stream]:
    """Streams of one kernel."""
    return [stream(name, kernel(name, blocks, 21.0, threads=threads), priority=priority) for name in names]


# ---- inside an SM ---------------------------------------------------------------------------------------------------


def test_even_says_that_it_split_the_sms() -> None:
    """Once when both are ready; when one has ended the other is alone."""
    said = "SMs split in 1 of 1 decision: one block of each kernel does not fit an SM together"
    assert told("even", *one_each("a", "b", threads=WIDE)) == (said,)
    assert told("even", *one_each("a", "b")) == ()


def test_even_says_in_how_many_decisions_kernels_were_mixed() -> None:
    """First a and b, which do not fit together; then b and c, which do: split and mixed are both said."""
    wide, narrow = kernel("a", 8, 21.0, threads=WIDE), kernel("c", 640, 210.0, threads=SMALL)
    made = trace(stream("x", wide, narrow), stream("y", kernel("b", 640, 420.0, threads=SMALL)))
    result = replay(made, tiny(), "even")
    said = "SMs split in 1 of 2 decisions: one block of each kernel does not fit an SM together"
    assert [note for note in result.notes if "split" in note] == [said]
    assert experiment_of(result)[0] == "quota"


def test_warped_slicer_says_why_it_split_the_sms() -> None:
    fits = "SMs split in 1 of 1 decision: the kernels do not fit an SM together"
    assert told("warped-slicer", *one_each("a", "b", threads=WIDE)) == (fits,)
    lost = "SMs split in 1 of 1 decision: slicing would cost a kernel more than the 0 % allowed"
    many = one_each("a", "b", threads=512, blocks=64)
    assert told("warped-slicer:loss=0", *many) == (lost,)
    assert told("warped-slicer", *many) == ()


def test_warped_slicer_says_that_nothing_was_sampled() -> None:
    """The warm-up ends when the profiled SMs hold none of the blocks any more that they were to sample."""
    streams = one_each("a", "b", blocks=2) + one_each("c", "d", "e", "f", threads=WIDE, blocks=40)
    notes = told("warped-slicer:curve=profiled,warmup_cycles=1,sample_cycles=1", *streams)
    assert any(note.endswith(": no SM came to sample one of the kernels") for note in notes)


def test_smk_says_that_a_kernel_had_no_room() -> None:
    (note,) = told("smk", *one_each("a", "b", threads=WIDE))
    assert note.startswith("a kernel waited: an SM has no room for a block of it beside the others' shares (")
    assert told("smk", *one_each("a", "b")) == ()


# ---- SM splits ------------------------------------------------------------------------------------------------------


def test_more_streams_than_sms_wait() -> None:
    said = ("more streams than SMs to hand out: up to 1 stream waited for another",)
    assert told("inter-sm", *one_each("a", "b", "c"), gpu=tiny(2)) == said
    assert told("inter-sm:granularity=2", *one_each("a", "b", "c")) == said
    assert told("inter-sm", *one_each("a", "b"), gpu=tiny(2)) == ()
    assert told("cd-search", *one_each("a", "b", "c"), gpu=tiny(2)) == said
    assert said[0] in told("even", *one_each("a", "b", "c", threads=WIDE), gpu=tiny(2))


def test_cd_search_says_that_there_was_nobody_to_move_sms_between() -> None:
    said = "even SM split kept for 1 set of kernels: nobody to take SMs from, or to give them to"
    assert told("cd-search", *one_each("a", "b")) == (said,)


def test_maestro_says_what_measured_best() -> None:
    notes = told("maestro:epoch_us=0.5", *one_each("a", "b", blocks=400), gpu=tiny(16))
    assert any(note.endswith("measured best for 1 set of kernels") for note in notes)
    (cut,) = told("maestro:epoch_us=1000", *one_each("a", "b"))
    assert cut == "the search was cut short for 1 set of kernels"


# ---- what hardware offers -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("green-context:sms=60+60", ("sms=60+60 is made 64+64 SMs", "4 of 132 SMs are in no part")),
        ("green-context:sms=64+68", ()),
        ("green-context", ()),
        ("mps:percent=10+90", ("percent=10+90 is made 14+119 SMs",)),
        ("mps:percent=50+50", ()),
        ("mps", ()),
        ("mig", ("12 of 132 SMs are in no part",)),
        ("tpc-mask:masks=0x1", ("2 of 132 SMs are in no part",)),
        ("tpc-mask", ()),
    ],
)
def test_parts_say_what_they_are_made(policy: str, expected: tuple[str, ...]) -> None:
    chosen = policy_from(policy)
    chosen.prepare(H200, ["a", "b"])
    assert chosen.notes() == expected


def test_fewer_parts_than_streams() -> None:
    assert told("green-context", *one_each("a", "b", "c"), gpu=tiny(16)) == (
        "2 parts for 3 streams: the others wait until one has ended",
    )


# ---- latency critical -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["orion", "reef"])
def test_nothing_is_latency_critical(policy: str) -> None:
    said = "no kernel beside others had a priority above 0: all were best effort"
    assert told(policy, *one_each("a", "b")) == (said,)
    assert said not in told(policy, *one_each("a"), *one_each("b", priority=1))


def test_reef_says_that_nothing_could_pad() -> None:
    """The latency-critical kernel fills every SM."""
    said = "no best-effort kernel fitted beside 1 of 1 latency-critical kernel that came while some were ready"
    assert told("reef", *one_each("a"), *one_each("b", priority=1)) == (said,)


# ---- all ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", [name for name in policies() if not name.startswith("oracle-")])
def test_notes_are_lines_without_a_full_stop(policy: str) -> None:
    chosen = policy_from(policy)
    replay_rule(trace(*one_each("a", "b"), device="h200"), H200, chosen)
    notes = chosen.notes()
    assert isinstance(notes, tuple)
    assert all(note and "\n" not in note and not note.endswith(".") for note in notes)


@dataclass
class Telling(Leftover):
    """Says whatever it is told to say."""

    what: object = ()

    def notes(self) -> tuple[str, ...]:
        if self.what is None:
            raise ValueError("nothing to say")
        return self.what  # type: ignore[return-value]


def test_a_policys_notes_are_the_results() -> None:
    made, gpu = trace(*one_each("a", "b")), tiny()
    assert replay(made, gpu, Telling(what=("all went well",))).notes == ("all went well",)
    assert replay(made, gpu, "orion").notes == policy_notes("orion", made, gpu) != ()
    moved = replay(trace(*one_each("a", "b"), device="h200"), gpu, Telling(what=["all went well"]))
    assert moved.notes == ("recorded on h200, replayed on tiny: not validated", "all went well")


@pytest.mark.parametrize("what", ["all went well", 3, ("a", 3), None])
def test_notes_that_are_none_are_one_line(what: object) -> None:
    with pytest.raises(InputError, match=r"^policy leftover: notes(\(\) gives| raised).*") as error:
        replay(trace(*one_each("a", "b")), tiny(), Telling(what=what))
    assert "\n" not in str(error.value)
