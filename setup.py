"""What pyproject.toml cannot say: gpus/ and sample traces ship in the package, and the engine's core is compiled."""

import importlib.util
import os
import runpy
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py
from setuptools.errors import CompileError

from build_backend import has_compiler, zig_command

ENGINE = Path("gpusim/engine")
JOINED = Path("build/joined", ENGINE)  # the sources of the core as one module
GPU_FILES = sorted(path.as_posix() for path in Path("gpus").glob("*.toml"))
SAMPLES = ("googlenet_forward", "inception_3a", "pair_3a_3x3_precomp_5x5_fft_tiling")  # as gpusim/trace/file.py
SAMPLE_FILES = [f"traces/{name}.json.gz" for name in SAMPLES]

# Without contraction into fused multiply-adds the compiled core gives bit for bit what plain Python gives.
# Symbols for a debugger, which Python's own flags ask for, take a third of the compiler's time.
FLAGS = [] if sys.platform == "win32" else ["-O2", "-g0", "-ffp-contract=off"]


class BuildWithData(build_py):
    """Copy gpus/ and the samples of traces/ into the wheel. An editable install reads the source tree."""

    def run(self) -> None:
        """Builds the package, then copies the files of data into it."""
        super().run()
        if not self.editable_mode:
            for source, target in self._copies().items():
                Path(target).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source, target)

    def get_source_files(self) -> list[str]:
        """Return the files of a source distribution."""
        return [*super().get_source_files(), *GPU_FILES, *SAMPLE_FILES, "build_backend.py"]

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:
        """Return the files that a build makes."""
        outputs = super().get_outputs(include_bytecode)
        return outputs if self.editable_mode else [*outputs, *self._copies().values()]

    def _copies(self) -> dict[str, str]:
        folders = {"gpus": GPU_FILES, "samples": SAMPLE_FILES}
        return {
            source: str(Path(self.build_lib, "gpusim", folder, Path(source).name))
            for folder, sources in folders.items()
            for source in sources
        }


class BuildCore(build_ext):
    """Build the core, with zig where no other C compiler is there."""

    def build_extension(self, ext: Extension) -> None:
        """Builds one extension."""
        if importlib.util.find_spec("ziglang") is None or has_compiler():
            super().build_extension(ext)
            return
        target = Path(self.get_ext_fullpath(ext.name))
        target.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory() as cache:
            caches = {"ZIG_GLOBAL_CACHE_DIR": cache, "ZIG_LOCAL_CACHE_DIR": cache}
            try:
                subprocess.run(zig_command(ext.sources[0], str(target)), env=os.environ | caches, check=True)
            except (OSError, subprocess.CalledProcessError) as error:
                raise CompileError(str(error)) from error


def compiled_core() -> list[Extension]:
    """Return the optional extension, none without Cython. Where it is not built, plain Python files run."""
    if not ENGINE.exists():
        return []
    try:
        from Cython.Build import cythonize
    except ImportError:
        return []
    extension = Extension("gpusim.engine.core", [joined_core()], extra_compile_args=FLAGS)
    modules: list[Extension] = cythonize([extension], language_level=3)
    for module in modules:
        module.optional = True  # no C compiler, no harm; cythonize would drop it from `extension`
    return modules


def joined_core() -> str:
    """Write the sources of the core as one module unless it is there, and return its path."""
    JOINED.mkdir(parents=True, exist_ok=True)
    (JOINED.parent / "__init__.py").touch()
    (JOINED / "__init__.py").touch()
    source, types = runpy.run_path(str(ENGINE / "compiled.py"))["joined"]()
    for name, text in (("core.py", source), ("core.pxd", types)):
        path = JOINED / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
    return (JOINED / "core.py").as_posix()


setup(cmdclass={"build_py": BuildWithData, "build_ext": BuildCore}, ext_modules=compiled_core())
