"""gpusim: replay recorded GPU kernel traces under policies that partition one GPU.

    result = gpusim.replay("trace.json", "h200", policy="leftover")

What `__all__` lists is stable; other names may change. Names are imported when first used, so that `import gpusim` is
quick.

A tag behind a statement in these sources tells how sure it is: [V] verified, read in the source named; [A] from the
published abstract only; [M] recalled from memory, not checked; [D] designed here. A statement without a tag is about
this code. CONTRIBUTING.md describes each folder and the allowed imports.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpusim.choose.advise import advise
    from gpusim.choose.interference import slowdown
    from gpusim.choose.pairs import pairs
    from gpusim.choose.search import select
    from gpusim.common.errors import InputError
    from gpusim.hardware.gpu import GPU, load_gpu
    from gpusim.hardware.what_if import what_if
    from gpusim.io.importing import import_profile
    from gpusim.io.part import Part
    from gpusim.io.viewer import save_timeline
    from gpusim.model.occupancy import occupancy
    from gpusim.policies.interface import Eviction, Grant, KernelView, Partition, Policy, View
    from gpusim.results.comparison import Comparison
    from gpusim.results.result import Result
    from gpusim.session import Session, compare, replay
    from gpusim.sweeps.run import Swept, sweep
    from gpusim.trace.edit import merge
    from gpusim.trace.file import load_trace
    from gpusim.trace.format import Trace
    from gpusim.trace.kernels import KernelLaunch, Mix
    from gpusim.trace.operations import (
        Collective,
        Convolution,
        ConvolutionAlgorithm,
        ConvolutionShape,
        Copy,
        Host,
        Kernel,
        LoopArrivals,
        PoissonArrivals,
        Stream,
        TimesArrivals,
    )
    from gpusim.trace.points import with_points
    from gpusim.trace.programs import Program

__version__ = "0.1.0"

_NAMES = {  # what each module has of them
    "gpusim.choose.advise": "advise",
    "gpusim.choose.interference": "slowdown",
    "gpusim.choose.pairs": "pairs",
    "gpusim.choose.search": "select",
    "gpusim.common.errors": "InputError",
    "gpusim.hardware.gpu": "GPU load_gpu",
    "gpusim.hardware.what_if": "what_if",
    "gpusim.io.importing": "import_profile",
    "gpusim.io.part": "Part",
    "gpusim.io.viewer": "save_timeline",
    "gpusim.model.occupancy": "occupancy",
    "gpusim.policies.interface": "Eviction Grant KernelView Partition Policy View",
    "gpusim.results.comparison": "Comparison",
    "gpusim.results.result": "Result",
    "gpusim.session": "Session compare replay",
    "gpusim.sweeps.run": "Swept sweep",
    "gpusim.trace.edit": "merge",
    "gpusim.trace.file": "load_trace",
    "gpusim.trace.format": "Trace",
    "gpusim.trace.kernels": "KernelLaunch Mix",
    "gpusim.trace.operations": "Collective Convolution ConvolutionAlgorithm ConvolutionShape Copy Host "
    "Kernel LoopArrivals PoissonArrivals Stream TimesArrivals",
    "gpusim.trace.points": "with_points",
    "gpusim.trace.programs": "Program",
}
_HOME = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = [
    "GPU", "Collective", "Comparison", "Convolution", "ConvolutionAlgorithm", "ConvolutionShape", "Copy",
    "Eviction", "Grant", "Host", "InputError", "Kernel", "KernelLaunch", "KernelView", "LoopArrivals", "Mix",
    "Part", "Partition", "PoissonArrivals", "Policy", "Program", "Result", "Session", "Stream", "Swept",
    "TimesArrivals", "Trace", "View", "advise", "compare", "import_profile", "load_gpu", "load_trace", "merge",
    "occupancy", "pairs", "replay", "save_timeline", "select", "slowdown", "sweep", "what_if", "with_points",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
