"""Which core runs: the compiled one where it was built from the sources beside it, else core.py as plain Python.

The build reads this file, too (by its path), so it imports nothing of gpusim.
"""

from __future__ import annotations

import sys
from functools import cache
from hashlib import sha256
from importlib import import_module
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

CORE = "gpusim.engine.core"
SOURCES = ("core.py", "core.pxd")
NOT_STAMPED = 'BUILT_FROM = ""'  # a line of core.py, which the build gives the hash of the sources


def source_hash(folder: Path) -> str:
    """A hash of the sources of the core in a folder."""
    return sha256(b"\0".join((folder / name).read_bytes() for name in SOURCES)).hexdigest()


def stamped(folder: Path) -> str:
    """core.py as the build compiles it: it knows which sources it is of."""
    return (
        (folder / "core.py").read_text(encoding="utf-8").replace(NOT_STAMPED, f'BUILT_FROM = "{source_hash(folder)}"')
    )


def load_core() -> ModuleType:
    """Imports the core: the compiled one of the sources beside it, else the plain one."""
    try:
        core = import_module(CORE)
    except ImportError:  # compiled for another system
        return plain_core(CORE)
    fresh = is_plain(core) or getattr(core, "BUILT_FROM", "") == source_hash(Path(__file__).parent)
    return core if fresh else plain_core(CORE)


def plain_core(name: str) -> ModuleType:
    """core.py itself as a new module of some name, whether or not a compiled one stands beside it."""
    spec = spec_from_file_location(name, Path(__file__).with_name("core.py"))
    assert spec is not None and spec.loader is not None
    module = sys.modules[name] = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def is_plain(core: ModuleType) -> bool:
    """Whether a core is plain Python."""
    return str(core.__file__).endswith(".py")


@cache
def tell_if_plain() -> None:
    """Says on standard error, once a process and not in worker processes, when plain Python runs, and what to do."""
    if not is_plain(sys.modules[CORE]):
        return
    from multiprocessing import parent_process  # takes a while to import, and mostly there is nothing to say

    if parent_process() is not None:
        return
    beside = (Path(__file__).with_name("core" + suffix) for suffix in EXTENSION_SUFFIXES)
    if any(path.exists() for path in beside):
        missing = "the compiled core is not of this core.py"
        remedy = "install gpusim anew (`pip install -e .`)"
    else:
        missing = "the core is not compiled"
        remedy = "install a C compiler with Python's headers, then gpusim anew (`pip install -e .`)"
    print(f"gpusim: {missing}; replays take some 50 times as long: {remedy}", file=sys.stderr)
