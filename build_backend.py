"""The build backend: setuptools, which also asks for a C compiler as a wheel (zig) where the machine has none."""

from __future__ import annotations

import compileall
import subprocess
import sys
from distutils.ccompiler import new_compiler
from distutils.errors import CCompilerError, DistutilsError
from distutils.sysconfig import customize_compiler, get_python_inc
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from setuptools import build_meta
from setuptools.build_meta import (
    build_sdist,
    build_wheel,
    get_requires_for_build_sdist,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]

PACKAGE = "gpusim"
COMPILER_WHEEL = "ziglang"
EXTENSION = "#include <Python.h>\nPyMODINIT_FUNC PyInit_probe(void) { return 0; }\n"


def build_editable(wheel_directory: str, config_settings: Any = None, metadata_directory: str | None = None) -> str:
    """Build as setuptools does, then compile the package to bytecode in place, so that the first run is quick."""
    wheel: str = build_meta.build_editable(wheel_directory, config_settings, metadata_directory)
    compileall.compile_dir(PACKAGE, quiet=2)
    return wheel


def get_requires_for_build_wheel(config_settings: Any = None) -> list[str]:
    """Return what setuptools needs, and the compiler's wheel where there is no compiler."""
    return [*build_meta.get_requires_for_build_wheel(config_settings), *missing_compiler()]


def get_requires_for_build_editable(config_settings: Any = None) -> list[str]:
    """Return what setuptools needs, and the compiler's wheel where there is no compiler."""
    return [*build_meta.get_requires_for_build_editable(config_settings), *missing_compiler()]


def missing_compiler() -> list[str]:
    """Return the wheel with a compiler if it is needed, useful and obtainable."""
    needed = sys.platform != "win32" and not has_compiler()
    return [COMPILER_WHEEL] if needed and Path(get_python_inc(), "Python.h").is_file() and _obtainable() else []


@cache
def has_compiler() -> bool:
    """Whether the C compiler that setuptools uses here builds an extension of this Python."""
    with TemporaryDirectory() as folder:
        source = Path(folder, "probe.c")
        source.write_text(EXTENSION)
        compiler = new_compiler()
        customize_compiler(compiler)
        try:
            objects = compiler.compile([str(source)], output_dir=folder, include_dirs=[get_python_inc()])
            compiler.link_shared_object(objects, str(Path(folder, "probe.so")))
        except (CCompilerError, DistutilsError):
            return False
    return True


def zig_command(source: str, extension: str) -> list[str]:
    """Return the command that builds an extension from one C file, for any processor of this architecture."""
    mac = ["-undefined", "dynamic_lookup"] if sys.platform == "darwin" else []
    return [
        *(sys.executable, "-m", "ziglang", "cc", "-shared", "-fPIC", *mac),
        *("-O2", "-DNDEBUG", "-fwrapv", "-ffp-contract=off", "-mcpu=baseline", "-fno-sanitize=undefined"),
        *("-I", get_python_inc(), source, "-o", extension),
    ]


def _obtainable() -> bool:
    """Whether pip finds the wheel for this machine; without pip, assume that the installer does."""
    pip = [sys.executable, "-I", "-m", "pip"]
    if subprocess.run([*pip, "--version"], capture_output=True, check=False).returncode != 0:
        return True
    return subprocess.run([*pip, "index", "versions", COMPILER_WHEEL], capture_output=True, check=False).returncode == 0
