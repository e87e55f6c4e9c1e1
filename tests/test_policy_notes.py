"""What policies say of a replay afterwards: every fallback, why, and how often."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from tiny import convolution, kernel, launch, played, stream, tiny, trace

from gpusim import InputError, load_gpu, replay
from gpusim.hardware.gpu import GPU
from gpusim.policies.hardware import Leftover
from gpusim.policies.registry import policies, policy_from
from gpusim.results.error_band import experiment_of
from gpusim.trace.format import Trace
from gpusim.trace.kernels import ALL_COUNTERS, Mix, WarpStalls
from gpusim.trace.operations import Kernel, Stream

H200 = load_gpu("h200")
WIDE = 1024  # threads: one block has an SM to itself
SMALL = 128


def told(policy: str, *streams: Stream, gpu: GPU | None = None) -> tuple[str, ...]:
    gpu = gpu or tiny()
    return policy_notes(policy, trace(*streams, device=gpu.name), gpu)


def policy_notes(policy: str, made: Trace, gpu: GPU) -> tuple[str, ...]:
    chosen = policy_from(policy)
    replay(made, gpu, chosen)
    return chosen.notes()


def one_each(*names: str, threads: int = SMALL, blocks: int = 8, priority: int = 0) -> list[Stream]:
    """Streams of one kernel."""
    return [stream(name, kernel(name, blocks, 21.0, threads=threads), priority=priority) for name in names]


# ---- inside an SM ---------------------------------------------------------------------------------------------------


def test_even_says_that_it_split_the_sms() -> None:
    """Once when both are ready; when one has ended the other is alone."""
    said = "SMs split in 1 of 1 decision: one block of each kernel does not fit on an SM"
    assert told("even", *one_each("a", "b", threads=WIDE)) == (said,)
    assert told("even", *one_each("a", "b")) == ()


def test_even_says_that_shares_were_not_equal() -> None:
    """A block of 1024 threads holds half of an SM's warps and more than a third of them; beside two small ones."""
    said = "unequal shares: an equal share does not hold a block of each kernel (1 decision)"
    big = stream("big", kernel("big", 8, 21.0, threads=768))
    assert said in told("even", big, *one_each("b", "c"))


def test_quota_says_that_an_sm_does_not_hold_the_quotas() -> None:
    """One block of 1,024 threads with 64 registers fills an SM."""
    said = "an SM does not hold the quotas together: the first come has its own (1 decision)"
    assert told("quota:blocks=a:1+b:1", *one_each("a", "b", threads=WIDE)) == (said,)
    assert told("quota:blocks=a:1+b:1", *one_each("a", "b")) == ()
    assert told("quota:blocks=a:1", *one_each("a", "b", threads=WIDE)) == ()


def test_even_says_in_how_many_decisions_kernels_were_mixed() -> None:
    """First a and b, which do not fit together; then b and c, which do: split and mixed are both said."""
    wide, narrow = kernel("a", 8, 21.0, threads=WIDE), kernel("c", 640, 210.0, threads=SMALL)
    made = trace(stream("x", wide, narrow), stream("y", kernel("b", 640, 420.0, threads=SMALL)))
    result = replay(made, tiny(), "even")
    said = "SMs split in 1 of 2 decisions: one block of each kernel does not fit on an SM"
    assert [note for note in result.notes if "split" in note] == [said]
    assert experiment_of(result)[0] == "quota"


def test_warped_slicer_says_why_it_split_the_sms() -> None:
    fits = "SMs split in 1 of 1 decision: the kernels do not fit together on an SM"
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
    assert told("cd-search", *one_each("a", "b"))[0] == said


def test_searches_say_that_they_were_cut_short() -> None:
    """A stream that reads memory all the time may give SMs to one that computes, but both end before an epoch does."""
    reads = Mix(dram_read_bytes=4.5e9 / 13200, alu_utilisation_percent=10.0)
    memory = launch(13200, 1000.0, threads=256).model_copy(update={"mix": reads})
    streams = [stream("a", Kernel(id="a", kind="kernel", kernel=memory)), stream("b", counted_kernel("b"))]
    assert "the search was cut short for 1 set of kernels" in told("cd-search:epoch_us=10000", *streams, gpu=H200)


def test_a_fixed_split_says_which_sms_it_leaves_out() -> None:
    streams = one_each("a", "b")
    said = ("1 of 4 SMs are in no part",)
    assert told("inter-sm:sms=1+2", *streams) == said
    assert told("tpc-stealing:sms=1+2", *streams) == said
    assert told("inter-sm:sms=1+3", *streams) == told("inter-sm:sms=1+2,dynamic=true", *streams) == ()
    assert told("tpc-stealing:sms=1+3", *streams) == ()


def test_right_size_says_that_the_sizes_exceed_the_gpu() -> None:
    """Each needs all SMs to take no longer than on all."""
    said = "sizes shrunk: streams need more SMs within the tolerance than there are (1 decision)"
    assert told("right-size:tolerance=0", *one_each("a", "b", threads=WIDE)) == (said,)
    assert told("right-size:tolerance=10", *one_each("a", "b", threads=WIDE)) == ()


def test_maestro_says_that_blocks_of_all_do_not_fit_an_sm() -> None:
    notes = told("maestro:epoch_us=0.5", *one_each("a", "b", threads=WIDE, blocks=400), gpu=tiny(16))
    assert "one block of each does not fit an SM for 1 set of kernels" in notes


def test_maestro_says_what_measured_best() -> None:
    notes = told("maestro:epoch_us=0.5", *one_each("a", "b", blocks=400), gpu=tiny(16))
    assert any(note.endswith("measured best for 1 set of kernels") for note in notes)
    (cut,) = told("maestro:epoch_us=1000", *one_each("a", "b"))
    assert cut == "the search was cut short for 1 set of kernels"


# ---- what hardware offers -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("green-context:sms=64+64", ("4 of 132 SMs are in no part",)),
        ("green-context:sms=64+68", ()),
        ("green-context", ()),
        (
            "mps:percent=10+90",
            (
                "percent=10+90 gives 12+118 SMs",
                "2 of 132 SMs are in no part",
            ),
        ),
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


@pytest.mark.parametrize("policy", ["green-context", "tpc-mask"])
def test_parts_say_what_they_do_not_hold(policy: str) -> None:
    """A kernel on a stream of a library is held to no green context and no mask of TPCs; an MPS client holds it."""
    branching = stream("a", convolution("a", [launch(4, 11.0), launch(4, 11.0, stream="internal0")]))
    said = "1 kernel on streams that a library opened ran outside their stream's part"
    assert said in told(policy, branching, *one_each("b"), gpu=tiny(16))
    assert told("mps:percent=50", branching, *one_each("b"), gpu=tiny(16)) == ()


def test_time_slicing_says_that_there_was_nobody_to_preempt() -> None:
    said = "no kernels of several priorities met: there was nobody to preempt"
    assert said in told("time-slicing:preempt=true", *one_each("a", "b"))
    assert said not in told("time-slicing:preempt=true", *one_each("a"), *one_each("b", priority=1))
    assert said not in told("time-slicing", *one_each("a", "b"))


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


def test_orion_says_that_nothing_ran_beside() -> None:
    said = "1 best-effort kernel waited for latency-critical ones, none ran beside"
    assert said in told("orion", *one_each("a", threads=WIDE), *one_each("b", priority=1))
    assert said not in told("orion", *one_each("a"), *one_each("b", priority=1))


def test_latency_target_says_that_it_was_missed() -> None:
    """Beside the other it has three of four SMs, on which its four blocks take two waves instead of one."""
    said = "target missed: 1 of 1 latency-critical request took more than 1.25 times its isolated time"
    urgent = stream("urgent", *(kernel(f"u{i}", 4, 21.0) for i in range(3)), priority=1)
    other = stream("other", kernel("o", 40, 21.0))
    result = played("latency-target", urgent, other)
    assert result.notes == (said,)
    assert result.stream_runs[0].slowdown > 1.25
    held = played("latency-target:slowdown=2.5", urgent, other)
    assert held.notes == () and held.stream_runs[0].slowdown < 2.5


@pytest.mark.parametrize(("other_us", "missed"), [(2.0, False), (15.0, True), (400.0, True)])
def test_latency_target_judges_the_last_kernel_too(other_us: float, missed: bool) -> None:
    """The pass is one kernel of two waves on 3 SMs; the other's ends before it, or goes on after it."""
    urgent = stream("urgent", kernel("u", 4, 21.0), priority=1)
    result = played("latency-target:slowdown=1.2", urgent, stream("other", kernel("o", 1, other_us)))
    assert (result.stream_runs[0].slowdown > 1.2, bool(result.notes)) == (missed, missed)


# ---- counters -------------------------------------------------------------------------------------------------------


def counted_kernel(id: str) -> Kernel:
    """A kernel of 264 blocks and 1,000 us with all counters."""
    stalls = WarpStalls(**{name: 0.1 for name in WarpStalls.model_fields})
    mix = Mix.model_validate(dict.fromkeys(ALL_COUNTERS, 1.0) | {"stalls": stalls})
    one = launch(264, 1000.0, threads=SMALL).model_copy(update={"mix": mix})
    return Kernel(id=id, kind="kernel", kernel=one)


@pytest.mark.parametrize(
    ("policy", "consequence"),
    [
        ("orion", "whether two are bound by the same was not asked of these, only their size"),
        ("interference-aware", "these ran beside nobody"),
        ("cd-search", "these counted as compute-bound"),
        ("smk:mitigation=dmil", "the mitigation held these to no limit"),
        ("warped-slicer:mitigation=qbmi", "the mitigation held these to no limit"),
        ("warped-slicer:curve=profiled", "their samples count as if memory had not been saturated"),
    ],
)
def test_missing_counters_are_told(policy: str, consequence: str) -> None:
    counted, urgent = stream("a", counted_kernel("a")), stream("b", counted_kernel("b"), priority=1)
    blind = stream("b", kernel("b", 264, 1000.0, threads=SMALL), priority=1)
    said = f"1 of 2 kernels that shared the GPU had no counters: {consequence}"
    assert said in told(policy, counted, blind, gpu=H200)
    assert not any("counters" in note for note in told(policy, counted, urgent, gpu=H200))


@pytest.mark.parametrize("policy", ["smk", "warped-slicer"])
def test_counters_that_are_not_asked_for_may_be_missing(policy: str) -> None:
    assert told(policy, *one_each("a", "b")) == ()


# ---- all ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", [name for name in policies() if not name.startswith("oracle-")])
def test_notes_are_lines_without_a_full_stop(policy: str) -> None:
    chosen = policy_from(policy)
    replay(trace(*one_each("a", "b"), device="h200"), H200, chosen)
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
    assert (moved.notes[0], moved.notes[-1]) == ("recorded on h200, replayed on tiny: not validated", "all went well")


@pytest.mark.parametrize("what", ["all went well", 3, ("a", 3), None])
def test_notes_that_are_none_are_one_line(what: object) -> None:
    with pytest.raises(InputError, match=r"^policy leftover: notes(\(\) gives| raised).*") as error:
        replay(trace(*one_each("a", "b")), tiny(), Telling(what=what))
    assert "\n" not in str(error.value)
