"""Hashes of what can change a result: source code, plain data, files.

The same sources predict the same from the same GPUs, traces and parameters, so a hash of these says whether a stored
result still holds. Sources count by their meaning: a hash changes with a constant, an operator or a directive to the
compiler, not with docstrings, comments or layout.
"""

from __future__ import annotations

import ast
import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, is_dataclass
from functools import cache
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec, resolve_name
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel

from gpusim.common.errors import quote

DIRECTIVE = re.compile(r"^[ \t]*#[ \t]*(?:cython|distutils):.*", re.M)
"""A comment that the compiler of the core obeys."""
CHECKERS_ONLY = "TYPE_CHECKING"
"""What a block is under that only type checkers read: `gpusim` names there what it imports when first used."""


def model_sources() -> str:
    """A hash of the sources of a replay's result: `gpusim.session`, all that it imports, and all policies."""
    return sources("gpusim.session", "gpusim.policies")


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
    found: dict[str, Path] = {}
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
        found[name] = file
        package = name if file.stem == "__init__" else name.rpartition(".")[0]
        asked += [other for other in _meaning(file).imported_by(package) if other.partition(".")[0] in packages]
        asked.append(name.rpartition(".")[0] or name)  # importing it runs the package that it is in
    return _of_modules(found)


@cache
def modules(*names: str) -> str:
    """A hash of modules alone, without what they import; names as for `sources`.

    Raises:
        ModuleNotFoundError: there is no such module.
    """
    inside = {name: module_file(name) for module in names for name in _with_modules_inside(module)}
    return _of_modules({name: file for name, file in inside.items() if file is not None})


def files(paths: Iterable[Path]) -> str:
    """A hash of the names and contents of files, in their order; Python's by their meaning."""
    return _hash(part for path in paths for part in (path.name.encode(), _content(path)))


def meaning(source: str) -> bytes:
    """What a Python source says to its interpreter and to the compiler of the core.

    Two sources with the same syntax tree, docstrings left out, and the same directives (`DIRECTIVE`) mean the same, in
    every version of Python that parses both.

    Raises:
        SyntaxError, ValueError: it is no Python.
    """
    return _meaning_of(source, ast.parse(source))


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


class _Meaning(NamedTuple):
    """Of a source file: what it means, and its imports as (dots, module, names), whose modules `imported_by` gives."""

    content: bytes
    imports: tuple[tuple[int, str, tuple[str, ...]], ...] = ()

    def imported_by(self, package: str) -> Iterator[str]:
        """Modules that one of a package may import; of `from a import b` both `a` and `a.b`, which need not be one."""
        for dots, module, names in self.imports:
            base = resolve_name("." * dots + module, package)
            yield base
            yield from (f"{base}.{name}" for name in names)


@cache
def _read(text: bytes) -> _Meaning:
    """Of a Python source; what does not parse means what its bytes are."""
    try:
        source = text.decode()
        tree = ast.parse(source)
        return _Meaning(_meaning_of(source, tree), tuple(_imports(tree)))
    except (SyntaxError, ValueError, RecursionError):
        return _Meaning(text)


def _meaning(file: Path) -> _Meaning:
    """Of a module's file; one that is compiled from no source beside it means what its bytes are."""
    text = file.read_bytes()
    return _read(text) if file.suffix == ".py" else _Meaning(text)


def _meaning_of(source: str, tree: ast.Module) -> bytes:
    parts = [directive.strip() for directive in DIRECTIVE.findall(source)]
    _write(tree.body, parts)
    return "\n".join(parts).encode()


def _content(path: Path) -> bytes:
    return _meaning(path).content


def _of_modules(found: Mapping[str, Path]) -> str:
    """A hash of modules by name, and of their declarations for the compiler."""
    parts: list[bytes] = []
    for name in sorted(found):
        parts += [name.encode(), _content(found[name])]
        declarations = found[name].with_suffix(".pxd")
        if declarations.exists():
            parts.append(declarations.read_bytes().replace(b"\r\n", b"\n"))
    return _hash(parts)


def _write(part: Any, parts: list[str]) -> None:
    """Append a part of a syntax tree, as text that is the same in all versions of Python: empty fields are left out."""
    if isinstance(part, list):
        parts.append("[")
        for one in part:
            if not (isinstance(one, ast.Expr) and _is_text(one.value)):  # a docstring, or one of an attribute
                _write(one, parts)
        parts.append("]")
    elif isinstance(part, ast.AST):
        parts.append(type(part).__name__)
        for field in part._fields:
            value = getattr(part, field, None)
            if value is not None and value != []:
                parts.append(field)
                _write(value, parts)
    else:
        parts.append(ascii(part))


def _is_text(part: ast.expr) -> bool:
    return isinstance(part, ast.Constant) and isinstance(part.value, str)


def _imports(part: ast.AST) -> Iterator[tuple[int, str, tuple[str, ...]]]:
    """Imports wherever they stand, but for those that only type checkers read: dots, module and names of each."""
    for one in _statements(part):
        if isinstance(one, ast.ImportFrom):
            yield one.level, one.module or "", tuple(alias.name for alias in one.names)
        elif isinstance(one, ast.Import):
            yield from ((0, alias.name, ()) for alias in one.names)


def _statements(part: ast.AST) -> Iterator[ast.AST]:
    for one in ast.iter_child_nodes(part):
        if isinstance(one, ast.If) and isinstance(one.test, ast.Name) and one.test.id == CHECKERS_ONLY:
            for other in one.orelse:
                yield other
                yield from _statements(other)
        elif isinstance(one, ast.stmt | ast.ExceptHandler | ast.match_case):
            yield one
            yield from _statements(one)


def _with_modules_inside(name: str) -> Iterator[str]:
    spec = module_spec(name)
    if spec is None:
        raise ModuleNotFoundError(f"no module {name}", name=name)
    yield name
    for folder in spec.submodule_search_locations or ():
        yield from (f"{name}.{file.stem}" for file in Path(folder).glob("*.py") if file.stem != "__init__")


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
