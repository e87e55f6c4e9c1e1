"""gpusim: replay recorded GPU kernel traces under policies that partition one GPU.

    result = gpusim.replay("trace.json", "h200", policy="leftover")

What `__all__` lists is stable; other names may change. Names are imported when first used, so that `import gpusim` is
quick.

A tag behind a statement in these sources tells how sure it is: [V] verified, read in the source named; [A] from the
published abstract only; [M] recalled from memory, not checked; [D] designed here. A statement without a tag is about
this code. CONTRIBUTING.md says what each folder holds and which may import which.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpusim.choose.advise import advise as advise
    from gpusim.choose.pairs import pairs as pairs
    from gpusim.choose.search import select as select
    from gpusim.common.errors import InputError as InputError
    from gpusim.hardware.gpu import GPU as GPU
    from gpusim.hardware.gpu import load_gpu as load_gpu
    from gpusim.hardware.what_if import what_if as what_if
    from gpusim.io.importing import import_profile as import_profile
    from gpusim.io.viewer import save_timeline as save_timeline
    from gpusim.model.occupancy import occupancy as occupancy
    from gpusim.policies.interface import Eviction as Eviction
    from gpusim.policies.interface import Grant as Grant
    from gpusim.policies.interface import KernelView as KernelView
    from gpusim.policies.interface import Partition as Partition
    from gpusim.policies.interface import Policy as Policy
    from gpusim.policies.interface import View as View
    from gpusim.results.comparison import Comparison as Comparison
    from gpusim.results.result import Result as Result
    from gpusim.session import Session as Session
    from gpusim.session import compare as compare
    from gpusim.session import replay as replay
    from gpusim.trace.file import load_trace as load_trace
    from gpusim.trace.format import Trace as Trace
    from gpusim.trace.kernels import KernelLaunch as KernelLaunch
    from gpusim.trace.kernels import Mix as Mix
    from gpusim.trace.operations import Collective as Collective
    from gpusim.trace.operations import Convolution as Convolution
    from gpusim.trace.operations import ConvolutionAlgorithm as ConvolutionAlgorithm
    from gpusim.trace.operations import ConvolutionShape as ConvolutionShape
    from gpusim.trace.operations import Copy as Copy
    from gpusim.trace.operations import Host as Host
    from gpusim.trace.operations import Kernel as Kernel
    from gpusim.trace.operations import LoopArrivals as LoopArrivals
    from gpusim.trace.operations import PoissonArrivals as PoissonArrivals
    from gpusim.trace.operations import Stream as Stream
    from gpusim.trace.operations import TimesArrivals as TimesArrivals
    from gpusim.trace.programs import Program as Program

__version__ = "0.1.0"

_HOME = {
    "pairs": "gpusim.choose.pairs",
    "select": "gpusim.choose.search",
    "what_if": "gpusim.hardware.what_if",
    "Comparison": "gpusim.results.comparison",
    "advise": "gpusim.choose.advise",
    "compare": "gpusim.session",
    "Collective": "gpusim.trace.operations",
    "Convolution": "gpusim.trace.operations",
    "ConvolutionAlgorithm": "gpusim.trace.operations",
    "ConvolutionShape": "gpusim.trace.operations",
    "Copy": "gpusim.trace.operations",
    "Eviction": "gpusim.policies.interface",
    "GPU": "gpusim.hardware.gpu",
    "Grant": "gpusim.policies.interface",
    "Host": "gpusim.trace.operations",
    "InputError": "gpusim.common.errors",
    "Kernel": "gpusim.trace.operations",
    "KernelLaunch": "gpusim.trace.kernels",
    "KernelView": "gpusim.policies.interface",
    "LoopArrivals": "gpusim.trace.operations",
    "Mix": "gpusim.trace.kernels",
    "Partition": "gpusim.policies.interface",
    "PoissonArrivals": "gpusim.trace.operations",
    "Policy": "gpusim.policies.interface",
    "Program": "gpusim.trace.programs",
    "Result": "gpusim.results.result",
    "Session": "gpusim.session",
    "Stream": "gpusim.trace.operations",
    "TimesArrivals": "gpusim.trace.operations",
    "Trace": "gpusim.trace.format",
    "View": "gpusim.policies.interface",
    "import_profile": "gpusim.io.importing",
    "load_gpu": "gpusim.hardware.gpu",
    "load_trace": "gpusim.trace.file",
    "occupancy": "gpusim.model.occupancy",
    "replay": "gpusim.session",
    "save_timeline": "gpusim.io.viewer",
}

__all__ = [
    "GPU",
    "Collective",
    "Comparison",
    "Convolution",
    "ConvolutionAlgorithm",
    "ConvolutionShape",
    "Copy",
    "Eviction",
    "Grant",
    "Host",
    "InputError",
    "Kernel",
    "KernelLaunch",
    "KernelView",
    "LoopArrivals",
    "Mix",
    "Partition",
    "PoissonArrivals",
    "Policy",
    "Program",
    "Result",
    "Session",
    "Stream",
    "TimesArrivals",
    "Trace",
    "View",
    "advise",
    "compare",
    "import_profile",
    "load_gpu",
    "load_trace",
    "occupancy",
    "pairs",
    "replay",
    "save_timeline",
    "select",
    "what_if",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
