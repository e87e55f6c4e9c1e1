"""Policies by name, with their parameters read from text such as ``inter-sm:sms=64+68``."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import os
import pkgutil
import sys
import typing
from collections.abc import Callable, Iterable, Iterator
from copy import deepcopy
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType, NoneType

import gpusim.policies
from gpusim.common.errors import InputError, described, expected_one_of, quote
from gpusim.common.files import MAX_SETTINGS_BYTES, read_bytes
from gpusim.common.fingerprint import module_file
from gpusim.common.numbers import finite_number, whole_number
from gpusim.policies.checks import name_of, raised, shipped
from gpusim.policies.interface import Parameter, Policy
from gpusim.policies.tools.values import wrong

ENTRY_POINTS = "gpusim.policies"
POLICY_CLASS = "a subclass of gpusim.policies.interface.Policy"
TRUTH = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
READERS: dict[object, tuple[str, Callable[[str], object]]] = {  # of parameters by type; others are text
    bool: ("true or false", lambda text: TRUTH[text.lower()]),
    int: ("integer", whole_number),
    float: ("number", finite_number),
}


@dataclasses.dataclass(frozen=True, slots=True)
class OutsideCode:
    """Where the code of a policy is that is no part of gpusim."""

    module: str  # its name; empty for a file that is none
    file: Path  # the file, links followed
    offered: bool = False  # whether it is the entry point of an installed package

    def __str__(self) -> str:
        return f"{self.module} ({self.file})" if self.module else str(self.file)


@cache
def policies() -> dict[str, type[Policy]]:
    """All policies by name: those of this package and those that installed packages offer, sorted.

    One that an installed package offers and that is none, cannot be imported or has a name that is taken is left out,
    with one line of warning.
    """
    found = {policy.name: policy for policy in _shipped_policies()}
    for entry in sorted(entry_points(group=ENTRY_POINTS), key=lambda entry: (entry.name, entry.value)):
        try:
            policy = _offered(entry)
            if found.setdefault(entry.name, policy) is not policy:
                taken = found[entry.name]
                whose = f"{taken.__module__}:{taken.__qualname__}"
                raise InputError(None, _place(entry), f"has the name of {whose}", "another name")
        except InputError as error:
            _warn(error)
    return dict(sorted(found.items()))


def _shipped_policies() -> Iterator[type[Policy]]:
    """The policies of this package. Their modules are imported here, and not when gpusim starts."""
    for found in pkgutil.iter_modules(gpusim.policies.__path__):
        module = importlib.import_module(f"gpusim.policies.{found.name}")
        for _, item in sorted(inspect.getmembers(module, inspect.isclass)):
            if issubclass(item, Policy) and item.__module__ == module.__name__ and not inspect.isabstract(item):
                yield item


def _warn(left_out: InputError) -> None:
    """Print a warning, in the first process only."""
    import logging  # as multiprocessing it takes a while to import, and mostly there is nothing to say
    from multiprocessing import parent_process

    if parent_process() is None:
        logging.getLogger("gpusim").warning("left out: %s", left_out)


def _place(entry: EntryPoint) -> str:
    return f"policy {entry.name} = {entry.value} of an installed package"


def _offered(entry: EntryPoint) -> type[Policy]:
    """The policy of an entry point."""
    try:
        item = entry.load()
    except (Exception, SystemExit) as error:
        problem = f"cannot be imported: {described(error)}"
        raise InputError(None, _place(entry), problem, POLICY_CLASS) from error
    policy = _policy_class(item, _place(entry))
    if not isinstance(getattr(policy, "summary", None), str):
        raise InputError(None, _place(entry), "has no summary", "a sentence")
    return policy


def _policy_class(item: object, place: str) -> type[Policy]:
    """A class as a policy; one that is no dataclass is made one."""
    if not (inspect.isclass(item) and issubclass(item, Policy)):
        raise InputError(None, place, f"{quote(getattr(item, '__name__', item))} is no policy", POLICY_CLASS)
    if inspect.isabstract(item):
        lacking = ", ".join(sorted(item.__abstractmethods__))
        raise InputError(None, place, f"{quote(item.__name__)} does not define {lacking}", f"{POLICY_CLASS} that does")
    if not isinstance(getattr(item, "name", None), str):
        raise InputError(None, place, f"{quote(item.__name__)} has no name", 'a class attribute, such as name = "mine"')
    try:
        policy = item if "__dataclass_fields__" in vars(item) else dataclasses.dataclass(item)
        parameters_of(policy)
    except Exception as error:
        problem = f"has fields that cannot be parameters: {described(error)}"
        raise InputError(None, place, problem, "a dataclass of text, numbers and truth values") from error
    return policy


@dataclasses.dataclass(frozen=True, slots=True)
class Spec:
    """A policy as text gives it: ``NAME[:key=value,…]``, read once."""

    text: str  # as given
    policy: type[Policy]  # the class that it names
    arguments: dict[str, object]  # its parameters

    def make(self) -> Policy:
        """Return a new policy for one replay."""
        try:
            return self.policy(**self.arguments)
        except InputError:
            raise
        except (Exception, SystemExit) as error:
            if shipped(self.policy):
                raise
            name, _ = split_name(self.text)
            raise wrong(name, raised("making it", error, self.policy), "other parameters") from error


@dataclasses.dataclass(frozen=True)
class Given:
    """A policy object; each replay gets a copy."""

    text: str  # its name and its parameters that are no default
    policy: Policy

    def make(self) -> Policy:
        """Return a copy of the policy for one replay."""
        return deepcopy(self.policy)


def given(policy: Policy) -> Given:
    """A policy object that no replay has used."""
    known = [one for one in dataclasses.fields(policy) if one.init] if dataclasses.is_dataclass(policy) else []
    values = {one.name: getattr(policy, one.name) for one in known}
    changed = ",".join(f"{one.name}={values[one.name]}" for one in known if values[one.name] != one.default)
    return Given(f"{name_of(policy)}:{changed}" if changed else name_of(policy), policy)


def spec_of(text: str) -> Spec:
    """Read ``NAME[:key=value,…]``; NAME may be ``FILE.py:Class`` or ``package.module:Class``."""
    name, parameters = split_name(text)
    policy = policy_class(name)
    return Spec(text, policy, _arguments(policy, name, parameters))


def each_once(policies: Iterable[str | Policy]) -> list[Spec | Given]:
    """Policies by their text or as objects, each once, in the order given; objects that look alike must be one."""
    found: dict[str, Spec | Given] = {}
    for policy in policies:
        one = spec_of(policy) if isinstance(policy, str) else given(policy)
        known = found.setdefault(one.text, one)
        if isinstance(known, Given) and isinstance(one, Given) and vars(known.policy) != vars(one.policy):
            raise InputError(None, "policies", f"has two of the name {quote(one.text)}", "a name of its own for each")
    return list(found.values())


def policy_from(text: str) -> Policy:
    """A fresh policy from text, as `spec_of` and `Spec.make`."""
    return spec_of(text).make()


def policy_class(name: str) -> type[Policy]:
    """The policy of a name, or of ``FILE.py:Class`` or ``package.module:Class``, without parameters."""
    return _shipped(name) or policies().get(name) or _own(name)


@cache
def _shipped(name: str) -> type[Policy] | None:
    """A policy of this package, found without importing other packages, nor more of this one than it takes."""
    return next((policy for policy in _shipped_policies() if policy.name == name), None)


def code_of(text: str) -> OutsideCode | None:
    """The code that `policy_from` would run; None where it is part of gpusim.

    Of a file or module of one's own nothing runs yet; a name that is none of gpusim's is looked for in the packages
    that are installed, which runs what they offer as policies.
    """
    name, _ = split_name(text)
    if _shipped(name) is not None:
        return None
    known = policies().get(name)
    where = known.__module__ if known is not None else _where(name)
    if where.partition(".")[0] == gpusim.__name__:
        return None
    if where.endswith(".py"):
        return OutsideCode("", _required_file(Path(where)).resolve())
    file = module_file(where)
    if file is None:
        problem = f"cannot be imported: no module {quote(where)}"
        raise wrong(name, problem, "a module with the policy's class")
    return OutsideCode(where, file.resolve(), offered=known is not None)


def split_file(text: str) -> tuple[str, str]:
    """The file in ``FILE.py:Class…`` and the rest from the colon on; an empty file in any other text."""
    file, colon, rest = text.partition(".py:")
    return (f"{file}.py", f":{rest}") if colon else ("", text)


def parameters_of(policy: type[Policy]) -> list[Parameter]:
    """The parameters of a policy with their types and defaults."""
    hints = typing.get_type_hints(policy)
    given = [field for field in dataclasses.fields(policy) if field.init]
    defaults = {field.name: "" if field.default is None else str(field.default) for field in given}
    return [
        Parameter(field.name, _kind(hints[field.name])[0], defaults[field.name], field.metadata.get("help", ""))
        for field in sorted(given, key=lambda field: bool(field.kw_only))  # those of all such policies last
    ]


def split_name(text: str) -> tuple[str, str]:
    """Name and parameters of ``NAME[:key=value,…]``; in a user's own policy's name a colon is before the class."""
    file, rest = split_file(text)
    head, colon, rest = (file, ":", rest[1:]) if file else text.partition(":")
    if not colon:
        return head, ""
    first = rest.split(":", 1)[0]
    if file or ("=" not in first and head not in policies()):
        item, _, parameters = rest.partition(":")
        return f"{head}:{item}", parameters
    return head, rest


def _where(name: str) -> str:
    """The file or module of a user's own policy."""
    where, colon, _ = name.rpartition(":")
    if not colon and name.endswith(".py"):
        raise _without_class(Path(name))
    if not colon:
        raise wrong(name, "no such policy", expected_one_of(policies(), name, "or FILE.py:Class"))
    return where


def _without_class(path: Path) -> InputError:
    """What to tell of a file that is given without the class in it; nothing of the file runs."""
    source = read_bytes(_required_file(path), MAX_SETTINGS_BYTES)
    try:
        classes = [node.name for node in ast.parse(source).body if isinstance(node, ast.ClassDef)]
    except (SyntaxError, ValueError) as error:
        return InputError(path, "policy", f"is no Python ({described(error)})", "a Python file with the policy's class")
    if not classes:
        return InputError(path, "policy", "holds no class", f"{POLICY_CLASS}, named as {path}:Class")
    named = ", ".join(f"{path}:{one}" for one in classes)
    return InputError(path, "policy", "is given without a class", f"one of {named}")


def _own(name: str) -> type[Policy]:
    where, item = _where(name), name.rpartition(":")[2]
    module = _load_file(Path(where)) if where.endswith(".py") else _load_module(where)
    return _policy_class(getattr(module, item, item), f"policy {name}")


def _required_file(path: Path) -> Path:
    if not os.path.isfile(path):
        raise InputError(path, "policy", "no such file", "a Python file with the policy's class")
    return path


def _load_file(path: Path) -> ModuleType:
    source = read_bytes(_required_file(path), MAX_SETTINGS_BYTES)
    module = ModuleType(f"gpusim_policy_{path.stem}")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module
    try:
        exec(compile(source, path, "exec"), module.__dict__)  # as it is now, not as it was when last compiled
    except (Exception, SystemExit) as error:
        raise InputError(
            path, "policy", f"cannot be run: {described(error)}", "a Python file with the policy's class"
        ) from error
    return module


def _load_module(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except (Exception, SystemExit) as error:
        problem = f"cannot be imported: {described(error)}"
        raise wrong(name, problem, "a module with the policy's class") from error


def _arguments(policy: type[Policy], name: str, text: str) -> dict[str, object]:
    if not text:
        return {}
    hints = typing.get_type_hints(policy)
    known = {f.name: hints[f.name] for f in dataclasses.fields(policy) if f.init}
    values: dict[str, object] = {}
    before = ""
    for part in text.split(","):
        key, equals, value = part.partition("=")
        key = key.strip().replace("-", "_")
        if key not in known:
            if before and part[:1].isdigit():
                raise wrong(name, f"has {quote(f'{before},{part}')}", f"{quote(f'{before}+{part}')}: + joins values")
            raise wrong(name, f"has no parameter {quote(key)}", expected_one_of(known, key))
        if key in values:
            raise wrong(name, f"gives {key} twice", "each parameter once")
        if not equals or not value:
            raise wrong(name, f"{key} has no value", f"{key}=VALUE")
        kind, read = _kind(known[key])
        try:
            values[key] = read(value.strip())
        except (ValueError, KeyError):
            raise wrong(name, f"{key}={value.strip()} is no {kind}", f"a value of type {kind}") from None
        before = part
    return values


def _kind(hint: object) -> tuple[str, Callable[[str], object]]:
    """Return the type of a parameter and the reader of its text; None as a further type is left out."""
    kind = next((option for option in typing.get_args(hint) if option is not NoneType), hint)
    return READERS.get(kind, ("text", str))
