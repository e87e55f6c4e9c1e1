"""Hashes of what can change a result: source code, plain data, files.

What is predicted by the same sources from the same GPUs, traces and parameters is the same, so a hash of these says
whether a result that was kept may be used again.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import asdict, is_dataclass
from functools import cache
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec, resolve_name
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from gpusim.common.errors import quote

IMPORT = re.compile(
    r"^[ \t]*(?:from[ \t]+([.\w]+)[ \t]+import[ \t]+(\([^)]*\)|[^\n#;(]+)|import[ \t]+([^\n#;]+))", re.M
)
"""An import at the beginning of a line; a parser finds no others in this package and takes ten times as long."""
FOR_CHECKERS = re.compile(r"\nif TYPE_CHECKING:\n(?:[ \t].*\n|\n)*")
"""What only type checkers read: `gpusim` itself names there what it imports when first used."""
COMMENT = re.compile("#.*")


def model_sources() -> str:
    """A hash of the sources of a replay's result: `gpusim.studies.replay`, all that it imports, and all policies."""
    return sources("gpusim.studies.replay", "gpusim.policies")


@cache
def sources(*modules: str) -> str:
    """A hash of modules and of all that they import from their own packages, wherever in them an import stands.

    No module is imported. What is computed is the same on every machine and where the package is installed. An import
    for type checkers alone does not count: it never runs.

    Args:
        modules: names; that of a package stands for all modules in it.

    Raises:
        ModuleNotFoundError: there is no such module.
    """
    asked = [name for module in modules for name in _with_modules_inside(module)]
    packages = {module.partition(".")[0] for module in modules}
    found: dict[str, bytes] = {}
    specs: dict[str, ModuleSpec | None] = {}
    seen: set[str] = set()
    while asked:
        name = asked.pop()
        if name in seen:
            continue
        seen.add(name)
        file = module_file(name, specs)
        if file is None:
            continue
        found[name] = _text(file)
        if file.suffix == ".py":
            package = name if file.stem == "__init__" else name.rpartition(".")[0]
            asked += [other for other in _imports(found[name], package) if other.partition(".")[0] in packages]
        asked.append(name.rpartition(".")[0] or name)  # importing it runs the package that it is in
        declarations = file.with_suffix(".pxd")
        if declarations.exists():
            found[f"{name}.pxd"] = _text(declarations)
    return _hash(part for name in sorted(found) for part in (name.encode(), found[name]))


@cache
def modules(*names: str) -> str:
    """A hash of modules alone, without what they import; names as for `sources`.

    Raises:
        ModuleNotFoundError: there is no such module.
    """
    inside = [name for module in names for name in _with_modules_inside(module)]
    return _hash(part for name in sorted(inside) for part in (name.encode(), *_texts(name)))


def files(paths: Iterable[Path]) -> str:
    """A hash of the names and contents of files, in their order."""
    return _hash(part for path in paths for part in (path.name.encode(), path.read_bytes()))


def data(content: Any) -> str:
    """A hash of plain data, and of dataclasses and pydantic models such as GPUs."""
    return _hash([json.dumps(content, sort_keys=True, default=_plain).encode()])


def module_file(name: str, found: dict[str, ModuleSpec | None] | None = None) -> Path | None:
    """The file of a module, the source where it is compiled from one beside it; None where there is no file.

    Args:
        name: of the module.
        found: as of `module_spec`.
    """
    spec = module_spec(name, found)
    if spec is None or not spec.has_location or spec.origin is None:
        return None
    file = Path(spec.origin)
    source = file.with_name(f"{name.rpartition('.')[2]}.py")
    return source if file.suffix != ".py" and source.exists() else file


def module_spec(name: str, found: dict[str, ModuleSpec | None] | None = None) -> ModuleSpec | None:
    """Where a module is; None where there is none. Nothing is imported, not even the packages it is in.

    Args:
        name: of the module.
        found: modules looked for before, which are not looked for again; this one is added, and the packages it is in.
    """
    found = {} if found is None else found
    if name not in found:
        package = name.rpartition(".")[0]
        found[name] = _spec_in(module_spec(package, found), name) if package else _top(name)
    return found[name]


def _spec_in(package: ModuleSpec | None, name: str) -> ModuleSpec | None:
    folders = None if package is None else package.submodule_search_locations
    return None if folders is None else PathFinder.find_spec(name, list(folders))


def _top(name: str) -> ModuleSpec | None:
    try:
        return find_spec(name)
    except (ImportError, ValueError):
        return None


def _texts(name: str) -> list[bytes]:
    """The source of a module and its declarations for the compiler."""
    file = module_file(name)
    if file is None:
        return []
    return [_text(path) for path in (file, file.with_suffix(".pxd")) if path.exists()]


def _text(path: Path) -> bytes:
    """A source, however its lines end."""
    return path.read_bytes().replace(b"\r\n", b"\n")


def _with_modules_inside(name: str) -> Iterator[str]:
    spec = module_spec(name)
    if spec is None:
        raise ModuleNotFoundError(f"no module {name}", name=name)
    yield name
    for folder in spec.submodule_search_locations or ():
        yield from (f"{name}.{file.stem}" for file in Path(folder).glob("*.py") if file.stem != "__init__")


def _imports(source: bytes, package: str) -> Iterator[str]:
    """Modules that one of a package may import; of `from a import b` both `a` and `a.b`, which need not be one."""
    for where, names, modules in IMPORT.findall(FOR_CHECKERS.sub("\n", source.decode("utf-8", "replace"))):
        if where:
            base = resolve_name(where, package)
            yield base
            yield from (f"{base}.{name}" for name in _names(names))
        else:
            yield from _names(modules)


def _names(text: str) -> list[str]:
    """The names in `(a, b as c)`."""
    return [words[0] for words in (one.split() for one in COMMENT.sub("", text).strip("() \t\n").split(",")) if words]


def _hash(parts: Iterable[bytes]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "big") + part)
    return digest.hexdigest()


def _plain(value: object) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump()
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    raise TypeError(f"{quote(value)} has no fingerprint")
