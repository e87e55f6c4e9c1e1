"""gpusim: replay recorded GPU kernel traces under policies that partition one GPU.

    gpu = gpusim.load_gpu("h200")
    trace = gpusim.load_trace("trace.json")
    result = gpusim.replay(trace, gpu, policy="leftover")

Names are imported when first used, so that `import gpusim` is quick.

A tag behind a statement in these sources tells how sure it is: [V] verified, read in the source named; [A] from the
published abstract only; [M] recalled from memory, not checked; [D] designed here. A statement without a tag is about
this code. CONTRIBUTING.md says what each folder holds and which may import which.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpusim.common.errors import InputError as InputError
    from gpusim.hardware.gpu import GPU as GPU
    from gpusim.hardware.gpu import load_gpu as load_gpu
    from gpusim.io.viewer import save_timeline as save_timeline
    from gpusim.model.occupancy import occupancy as occupancy
    from gpusim.studies.replay import replay as replay
    from gpusim.trace.file import load_trace as load_trace
    from gpusim.trace.format import Trace as Trace

__version__ = "0.1.0"

_HOME = {
    "GPU": "gpusim.hardware.gpu",
    "InputError": "gpusim.common.errors",
    "Trace": "gpusim.trace.format",
    "load_gpu": "gpusim.hardware.gpu",
    "load_trace": "gpusim.trace.file",
    "occupancy": "gpusim.model.occupancy",
    "replay": "gpusim.studies.replay",
    "save_timeline": "gpusim.io.viewer",
}

__all__ = ["GPU", "InputError", "Trace", "load_gpu", "load_trace", "occupancy", "replay", "save_timeline"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
