"""The kernels of a trace as replayed on a GPU: each fitted to its recording once, and moved if that is another GPU."""

from __future__ import annotations

from dataclasses import replace

from gpusim.calibrate.cache import Fits
from gpusim.calibrate.scaling import fitted
from gpusim.calibrate.transfer import transferred
from gpusim.common.errors import InputError, quote
from gpusim.hardware.gpu import GPU, gpu_names, load_gpu
from gpusim.model.kernel import KernelModel
from gpusim.trace.format import Trace
from gpusim.trace.kernels import KernelLaunch

SEED_STEP = 1_000_003  # between the jitter seeds of two replay seeds
SEED_RANGE = 2**31


class Kernels:
    """The models of a trace's kernels on one GPU, each fitted once; can be used for many replays.

    Args:
        device: the GPU that they were recorded on.
        gpu: the GPU to replay them on.
        seed: of the jitter of their blocks; 0: that of the fit to the recording.
        like: kernels recorded on the same device, with which fits are shared.
        fits: of earlier runs, to take from and to add to; None: those of this run only.
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

    def model(self, launch: KernelLaunch, place: str) -> KernelModel:
        """The model of one launch.

        Raises:
            InputError: no SM of the GPU holds a block of it; ``place`` says where in the trace it stands.
        """
        known = self._models.get(id(launch))
        if known is not None:
            return known[1]
        model = self._same.get(launch)
        if model is None:
            model = self._anchored.get(launch)
            if model is None:
                model = self._anchored[launch] = self._fitted(launch, self._device, place)
            if self._gpu is not self._device:
                model = self._moved(model, launch, place)
            if self.seed != 0:
                model = replace(model, seed=(model.seed + SEED_STEP * self.seed) % SEED_RANGE)
            self._same[launch] = model
        self._models[id(launch)] = (launch, model)
        return model

    def _fitted(self, launch: KernelLaunch, gpu: GPU, place: str) -> KernelModel:
        """A launch on a GPU where it takes its recorded duration."""
        if self._fits is None:
            return fitted(launch, gpu, place)
        model = self._fits.find(launch, gpu)
        if model is None:
            model = fitted(launch, gpu, place)
            self._fits.keep(launch, gpu, model)
        return model

    def _moved(self, model: KernelModel, launch: KernelLaunch, place: str) -> KernelModel:
        """A launch on another GPU; one that communicates takes as long there, because the link sets its duration."""
        if launch.communicates:
            return self._fitted(launch.model_copy(update={"scaling": None}), self._gpu, place)
        return transferred(model, launch, self._device, self._gpu, place)

    def seeded(self, seed: int) -> Kernels:
        """The same kernels with another seed of the jitter."""
        if seed not in self._by_seed:
            other = Kernels(self._device, self._gpu, seed, self, self._fits)
            other._by_seed = self._by_seed
            self._by_seed[seed] = other
        return self._by_seed[seed]


def recording_gpu(trace: Trace, gpu: GPU) -> GPU:
    """The GPU that a trace was recorded on: ``gpu`` itself where it is that one, else one that ships.

    Raises:
        InputError: the trace names a GPU that neither ships nor is ``gpu``.
    """
    if trace.device in gpu_names():
        device = load_gpu(trace.device)
        return gpu if device == gpu else device
    if trace.device != gpu.name:
        raise InputError(
            None,
            "device",
            f"is {quote(trace.device)}",
            f"one of {', '.join(gpu_names())}, or that GPU's file (--recorded-on)",
        )
    return gpu
