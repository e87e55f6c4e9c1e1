"""Which core runs: the compiled one where it was built from the sources beside it, else the plain Python files.

The core is several Python files, `PARTS`, that import one another. The build joins them into one module and compiles
that with the types of the ``.pxd`` file beside each. So calls between parts cost nothing, and no part can be compiled
from other sources than the rest.

The build reads this file, too (by its path), so it imports nothing of gpusim.
"""

from __future__ import annotations

import ast
import sys
from functools import cache
from hashlib import sha256
from importlib import import_module
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

CORE = "gpusim.engine.core"
PARTS = (  # each imports only those before it
    "gpusim.model.memory",
    "gpusim.model.clock",
    "gpusim.model.mixing",
    "gpusim.engine.tables",
    "gpusim.engine.launches",
    "gpusim.engine.mixes",
    "gpusim.engine.domains",
    "gpusim.engine.first_ends",
    "gpusim.engine.history",
    "gpusim.engine.residents",
    "gpusim.engine.placing",
    "gpusim.engine.skipping",
    "gpusim.engine.bindings",
    CORE,
)
DIRECTIVES = (
    "# cython: language_level=3, annotation_typing=False, boundscheck=False, wraparound=False, cdivision=True, "
    "initializedcheck=False, auto_pickle=False\n"
)
DECLARATIONS = "cimport cython\nfrom libc cimport math\n"
PACKAGE = Path(__file__).parents[1]  # gpusim/


def joined(package: Path = PACKAGE) -> tuple[str, str]:
    """The source and the C types of the core as the build compiles them: one module that knows its sources."""
    source, types = DIRECTIVES + "from __future__ import annotations\n", DECLARATIONS
    for path in _files(package):
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".py":
            source += _without_imports_of_parts(text)
        else:
            types += text
    return source + f'BUILT_FROM = "{source_hash(package)}"\n', types


def source_hash(package: Path = PACKAGE) -> str:
    """A hash of the sources of the core in a package's folder."""
    return sha256(b"\0".join([DIRECTIVES.encode(), *(path.read_bytes() for path in _files(package))])).hexdigest()


def _files(package: Path) -> list[Path]:
    stems = [package.joinpath(*part.split(".")[1:]) for part in PARTS]
    return [stem.with_suffix(suffix) for stem in stems for suffix in (".py", ".pxd")]


def _without_imports_of_parts(text: str) -> str:
    """Return a part without imports of other parts and of the future, which the joined module has already."""
    lines = text.splitlines(keepends=True)
    for node in ast.parse(text).body:
        if isinstance(node, ast.ImportFrom) and node.module in ("__future__", *PARTS):
            end = node.end_lineno or node.lineno
            lines[node.lineno - 1 : end] = ["\n"] * (end - node.lineno + 1)
    return "".join(lines)


def load_core() -> ModuleType:
    """Import the core: the compiled one of the sources beside it, else the plain one."""
    try:
        core = import_module(CORE)
    except ImportError:  # compiled for another system
        return plain_core(CORE)
    return core if is_plain(core) or getattr(core, "BUILT_FROM", "") == source_hash() else plain_core(CORE)


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
    """Warn on standard error that plain Python runs, and what to do: once per process, never in worker processes."""
    if not is_plain(sys.modules[CORE]):
        return
    from multiprocessing import parent_process  # takes a while to import, and mostly there is nothing to say

    if parent_process() is not None:
        return
    beside = (Path(__file__).with_name("core" + suffix) for suffix in EXTENSION_SUFFIXES)
    if any(path.exists() for path in beside):
        missing = "the compiled core is not of these sources"
        remedy = "install gpusim anew (`pip install -e .`)"
    else:
        missing = "the core is not compiled"
        remedy = "install a C compiler with Python's headers, then gpusim anew (`pip install -e .`)"
    print(f"gpusim: {missing}; replays take some 50 times as long: {remedy}", file=sys.stderr)
