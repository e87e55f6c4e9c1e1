"""A policy that divides the GPU between programs: it sees each program as one stream."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import fsum

from gpusim.hardware.gpu import GPU
from gpusim.policies.checks import ask, name_of
from gpusim.policies.interface import Domains, KernelView, OperationView, Partition, PassView, Policy, View
from gpusim.policies.tools.values import Programs
from gpusim.trace.programs import Program


class ByProgram(Policy):
    """Shows a policy the programs of a trace in place of their streams.

    Kernels of a program's streams are in one line, in the order in which they became ready.

    Programs that have no stream on the policy's GPU are left out.
    """

    summary = "a policy that divides the GPU between programs"

    def __init__(self, policy: Policy, programs: Sequence[Program]) -> None:
        self.name = name_of(policy)  # type: ignore[misc]
        self.sharing_limit = policy.sharing_limit  # type: ignore[misc]
        self.single_stream = policy.single_stream  # type: ignore[misc]
        self._policy = policy
        self._of_trace = programs
        self._programs = Programs()
        self._program_of: list[int] = []  # by the position of a stream
        self._streams: list[str] = []
        self._alone_us: dict[int, float] = {}  # work of a pass, by the position of the stream

    def prepare(self, gpu: GPU, streams: Sequence[str]) -> None:
        """Prepare the policy with the names of the programs."""
        here = [one for one in self._of_trace if not set(streams).isdisjoint(one.streams)]
        place = {stream: at for at, one in enumerate(here) for stream in one.streams}
        self._programs = Programs(one.name for one in here)
        self._program_of = [place[stream] for stream in streams]
        self._streams = list(streams)
        ask(self._policy, self._policy.prepare, gpu, self._programs)

    def shows_sms(self) -> bool:
        """As the policy says."""
        return ask(self._policy, self._policy.shows_sms)

    def memory_domains(self, gpu: GPU, streams: Sequence[str]) -> Domains:
        """As the policy says for the programs."""
        return ask(self._policy, self._policy.memory_domains, gpu, self._programs)

    def notes(self) -> tuple[str, ...]:
        """Notes of the policy."""
        return ask(self._policy, self._policy.notes)

    def partition(self, view: View) -> Partition:
        """Decide as the policy does, which sees programs."""
        with_work = set(view.streams)
        busy = {self._program_of[at] for at, name in enumerate(self._streams) if name in with_work}
        return ask(
            self._policy,
            self._policy.partition,
            view._replace(
                kernels=tuple(map(self._kernel, view.kernels)),
                streams=tuple(name for at, name in enumerate(self._programs) if at in busy),
                unready=lambda: self._unready(view),
                operations=lambda: self._operations(view),
                passes=lambda: self._passes(view),
            ),
        )

    def _kernel(self, kernel: KernelView) -> KernelView:
        program = self._program_of[kernel.stream_index]
        return KernelView(kernel.id, self._programs[program], program, *kernel[3:])  # `_replace` takes longer

    def _unready(self, view: View) -> Mapping[int, tuple[float, int]]:
        """For each program the first kernel that is queued and not ready."""
        found: dict[int, tuple[float, int]] = {}
        for stream, queued in view.unready().items():
            program = self._program_of[stream]
            found[program] = min(queued, found.get(program, queued))
        return found

    def _operations(self, view: View) -> Sequence[OperationView]:
        return tuple(replace(op, stream_index=self._program_of[op.stream_index]) for op in view.operations())

    def _passes(self, view: View) -> Mapping[int, PassView]:
        """For each program its streams' passes added; that of a stream which has ended has no work left."""
        passes = view.passes()
        self._alone_us |= {stream: one.alone_us for stream, one in passes.items()}
        found: dict[int, list[PassView]] = {}
        for stream, one in passes.items():
            found.setdefault(self._program_of[stream], []).append(one)
        return {
            program: PassView(
                min(one.release_us for one in of),
                fsum(us for stream, us in self._alone_us.items() if self._program_of[stream] == program),
                fsum(one.left_us for one in of),
            )
            for program, of in sorted(found.items())
        }
