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
from contextlib import suppress
from dataclasses import asdict, is_dataclass
from functools import cache
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec, resolve_name
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel

from gpusim.common.errors import quote
from gpusim.common.files import MAX_SETTINGS_BYTES, read_kept, write_kept

DIRECTIVE = re.compile(r"^[ \t]*#[ \t]*(?:cython|distutils):.*", re.M)  # a comment that the compiler of the core obeys
MOST_KEPT = 500  # sources
# Condition of blocks that only type checkers read; `gpusim` names there the modules that it imports on first use.
CHECKERS_ONLY = "TYPE_CHECKING"
_read_before: dict[str, _Meaning] = {}  # sources, by a hash of their bytes
_in_file = set[str]()  # those of them that the file holds
_kept: Path | None = None  # that file


@cache
def sources(*modules: str) -> str:
    """A hash of modules and of all that they import from their own packages, wherever in them an import stands.

    The name of a package stands for all modules in it. No module is imported. The result is the same on every machine,
    and wherever the package is installed. An import for type checkers alone does not count: it never runs.
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
    """A hash of modules alone, without what they import; names as for `sources`."""
    inside = {name: module_file(name) for module in names for name in _with_modules_inside(module)}
    return _of_modules({name: file for name, file in inside.items() if file is not None})


def files(paths: Iterable[Path]) -> str:
    """A hash of the names and contents of files, in their order; Python's by their meaning."""
    return _hash(part for path in paths for part in (path.name.encode(), _meaning(path).digest.encode()))


def meaning(source: str, tree: ast.Module | None = None) -> bytes:
    """Return the code of a Python source, as its interpreter and the compiler of the core read it.

    Two sources with the same syntax tree, docstrings left out, and the same directives (`DIRECTIVE`) mean the same, in
    every version of Python that parses both. ``tree`` is that of the source where it is parsed already. A source
    that is not Python raises SyntaxError.
    """
    parts = [directive.strip() for directive in DIRECTIVE.findall(source)]
    _write((tree or ast.parse(source)).body, parts)
    return "\n".join(parts).encode()


def data(content: Any) -> str:
    """A hash of plain data, and of dataclasses and pydantic models such as GPUs."""
    return _hash([json.dumps(content, sort_keys=True, default=_plain).encode()])


def module_file(name: str, found: dict[str, ModuleSpec | None] | None = None) -> Path | None:
    """Return the file of a module, the source where it is compiled from one beside it; None where there is no file."""
    spec = module_spec(name, found)
    if spec is None or not spec.has_location or spec.origin is None:
        return None
    file = Path(spec.origin)
    source = file.with_name(f"{name.rpartition('.')[2]}.py")
    return source if file.suffix != ".py" and source.exists() else file


def module_spec(name: str, found: dict[str, ModuleSpec | None] | None = None) -> ModuleSpec | None:
    """Return where a module is; None where there is none. Nothing is imported, not even the packages it is in.

    ``found`` has the modules looked for before, which are not looked for again; this one and its packages are added.
    """
    found = {} if found is None else found
    if name not in found:
        found[name] = None
        inside = name.rpartition(".")[0]
        package = module_spec(inside, found) if inside else None
        if not inside:
            with suppress(ImportError, ValueError):
                found[name] = find_spec(name)
        elif package is not None and package.submodule_search_locations:
            found[name] = PathFinder.find_spec(name, list(package.submodule_search_locations))
    return found[name]


class _Meaning(NamedTuple):
    """A hash of the meaning of a source file, and its imports as (dots, module, names); see `imported_by`."""

    digest: str
    imports: tuple[tuple[int, str, tuple[str, ...]], ...] = ()

    def imported_by(self, package: str) -> Iterator[str]:
        """Modules that one of a package may import; of `from a import b` both `a` and `a.b`, which need not be one."""
        for dots, module, names in self.imports:
            base = resolve_name("." * dots + module, package)
            yield base
            yield from (f"{base}.{name}" for name in names)


def _read(text: bytes) -> _Meaning:
    """Return the meaning of a Python source; for one that does not parse, that of its bytes."""
    try:
        source = text.decode()
        tree = ast.parse(source)
        return _Meaning(_digest(meaning(source, tree)), tuple(_imports(tree)))
    except (SyntaxError, ValueError, RecursionError):
        return _Meaning(_digest(text))


def _meaning(file: Path) -> _Meaning:
    """Return the meaning of a module's file; for one without a source beside it, that of its bytes."""
    text = file.read_bytes()
    key = _digest(text)
    if file.suffix != ".py":
        return _Meaning(key)
    if key not in _read_before:
        _read_before[key] = _read(text)
    return _read_before[key]


# ---- what sources mean, kept for later processes


def keep_in(folder: Path) -> None:
    """Keep in a folder what sources mean, by a hash of their bytes, so that later processes need not parse them.

    A file that is damaged, or was written by another version of this module, counts as absent.
    """
    global _kept
    if _kept is not None:
        return
    _kept = folder / "sources.json"
    with suppress(ValueError, TypeError):
        for key, (digest, imports) in (read_kept(_kept, MAX_SETTINGS_BYTES, _own_source()) or {}).items():
            _read_before[key] = _Meaning(digest, tuple((dots, name, tuple(names)) for dots, name, names in imports))
            _in_file.add(key)


def _keep() -> None:
    """Write the meanings that were read since, if the folder can be written to."""
    if _kept is None or _read_before.keys() <= _in_file:
        return
    write_kept(_kept, dict(list(_read_before.items())[-MOST_KEPT:]), MAX_SETTINGS_BYTES, _own_source())
    _in_file.update(_read_before)


def _own_source() -> bytes:
    return Path(__file__).read_bytes()


def _digest(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()


def _of_modules(found: Mapping[str, Path]) -> str:
    """A hash of modules by name, and of their declarations for the compiler."""
    parts: list[bytes] = []
    for name in sorted(found):
        parts += [name.encode(), _meaning(found[name]).digest.encode()]
        declarations = found[name].with_suffix(".pxd")
        if declarations.exists():
            parts.append(declarations.read_bytes().replace(b"\r\n", b"\n"))
    _keep()
    return _hash(parts)


def _write(part: Any, parts: list[str]) -> None:
    """Append a part of a syntax tree, as text that is the same in all versions of Python: empty fields are left out."""
    if isinstance(part, list):
        parts.append("[")
        for one in part:
            text = one.value.value if isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant) else None
            if not isinstance(text, str):  # a docstring, or one of an attribute
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


def _imports(part: ast.AST) -> Iterator[tuple[int, str, tuple[str, ...]]]:
    """Return all imports except those for type checkers: dots, module and names of each."""
    for one in ast.iter_child_nodes(part):
        if isinstance(one, ast.If) and isinstance(one.test, ast.Name) and one.test.id == CHECKERS_ONLY:
            yield from _imports(ast.Module(one.orelse, type_ignores=[]))
        elif isinstance(one, ast.ImportFrom):
            yield one.level, one.module or "", tuple(alias.name for alias in one.names)
        elif isinstance(one, ast.Import):
            yield from ((0, alias.name, ()) for alias in one.names)
        elif isinstance(one, ast.stmt | ast.ExceptHandler | ast.match_case):
            yield from _imports(one)


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
