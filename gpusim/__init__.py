"""gpusim: replay recorded GPU kernel traces under policies that partition one GPU.

    gpu = gpusim.load_gpu("h200")
    trace = gpusim.load_trace("trace.json")
    result = gpusim.replay(trace, gpu, policy="leftover")

Names are imported when first used, so that `import gpusim` is quick.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpusim.api import replay as replay
    from gpusim.errors import InputError as InputError
    from gpusim.gpu import GPU as GPU
    from gpusim.gpu import load_gpu as load_gpu
    from gpusim.occupancy import occupancy as occupancy
    from gpusim.trace import Trace as Trace
    from gpusim.trace import load_trace as load_trace

__version__ = "0.1.0"

_HOME = {
    "GPU": "gpusim.gpu",
    "InputError": "gpusim.errors",
    "Trace": "gpusim.trace",
    "load_gpu": "gpusim.gpu",
    "load_trace": "gpusim.trace",
    "replay": "gpusim.api",
}

__all__ = ["GPU", "InputError", "Trace", "load_gpu", "load_trace", "occupancy", "replay"]


def __getattr__(name: str) -> Any:
    if name == "occupancy":  # a module that can be called: see there
        return import_module("gpusim.occupancy")
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
