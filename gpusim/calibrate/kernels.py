"""The kernels of a trace as replayed on a GPU: each fitted to its recording once, and moved if that is another GPU."""

from __future__ import annotations

from dataclasses import replace

from gpusim.calibrate.cache import Fits
from gpusim.calibrate.scaling import fitted
from gpusim.calibrate.transfer import transferred
from gpusim.hardware.gpu import GPU
from gpusim.model.context import in_context
from gpusim.model.estimate import filled
from gpusim.model.kernel import KernelModel
from gpusim.model.launchable import recorded_part
from gpusim.trace.format import Trace
from gpusim.trace.kernels import KernelLaunch

SEED_STEP = 1_000_003  # between the jitter seeds of two replay seeds
SEED_RANGE = 2**31


class Kernels:
    """The models of a trace's kernels on one GPU, each fitted once; can be used for many replays.

    They were recorded on ``device`` and are replayed on ``gpu``. ``seed`` is that of the jitter of their blocks; 0:
    that of the fit to the recording. Fits are shared with those of ``like``, kernels recorded on the same device, and
    taken from and added to ``fits`` of earlier runs.
    """

    def __init__(
        self, device: GPU, gpu: GPU, seed: int = 0, like: Kernels | None = None, fits: Fits | None = None
    ) -> None:
        self.seed = seed
        self._fits = fits
        self._device = device
        self._gpu = gpu
        self._anchored: dict[KernelLaunch, KernelModel] = {} if like is None else like._anchored
        self._by_seed: dict[int, Kernels] = {seed: self}
        self._models: dict[int, tuple[KernelLaunch, KernelModel]] = {}
        self._same: dict[KernelLaunch, KernelModel] = {}

    def __getstate__(self) -> dict[str, object]:
        """What another process needs: not what is found by the ids of launches, which are others there."""
        return self.__dict__ | {"_models": {}}

    def model(self, launch: KernelLaunch, place: str) -> KernelModel:
        """The model of one launch."""
        known = self._models.get(id(launch))
        if known is not None:
            return known[1]
        model = self._same.get(launch)
        if model is None:
            device = recorded_part(launch, self._device, place)
            used = filled(launch, device)
            model = self._anchored.get(used)
            if model is None:
                model = self._anchored[used] = self._fitted(used, device, place)
            if self._gpu is not device:
                model = self._moved(model, used, device, place)
            if self.seed != 0:
                model = replace(model, seed=(model.seed + SEED_STEP * self.seed) % SEED_RANGE)
            self._same[launch] = model
        self._models[id(launch)] = (launch, model)
        return model

    def worked_out(self, trace: Trace) -> Trace:
        """A trace as it is replayed: its kernels as long as they take after the others, each worked out."""
        trace = in_context(trace, self._gpu)
        for s, stream in enumerate(trace.streams):
            for o, op in enumerate(stream.operations):
                for launch in op.launches():
                    self.model(launch, f"streams[{s}].operations[{o}] ({op.id})")
        return trace

    def _fitted(self, launch: KernelLaunch, gpu: GPU, place: str) -> KernelModel:
        """A launch on a GPU where it takes its recorded duration."""
        if self._fits is None:
            return fitted(launch, gpu, place)
        model = self._fits.find(launch, gpu)
        if model is None:
            model = fitted(launch, gpu, place)
            self._fits.keep(launch, gpu, model)
        return model

    def _moved(self, model: KernelModel, launch: KernelLaunch, device: GPU, place: str) -> KernelModel:
        """A launch on another GPU; one that communicates takes as long there, because the link sets its duration."""
        if launch.communicates:
            return self._fitted(launch.model_copy(update={"scaling": None}), self._gpu, place)
        return transferred(model, launch, device, self._gpu, place)

    def seeded(self, seed: int) -> Kernels:
        """The same kernels with another seed of the jitter."""
        if seed not in self._by_seed:
            other = Kernels(self._device, self._gpu, seed, self, self._fits)
            other._by_seed = self._by_seed
            self._by_seed[seed] = other
        return self._by_seed[seed]
