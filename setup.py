"""What pyproject.toml cannot say: gpus/ ships in the package, and the engine's core is compiled."""

import shutil
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_py import build_py

CORE = "gpusim/engine/core.py"
GPU_FILES = sorted(path.as_posix() for path in Path("gpus").glob("*.toml"))

# Without contraction into fused multiply-adds the compiled core gives bit for bit what plain Python gives.
FLAGS = [] if sys.platform == "win32" else ["-O2", "-ffp-contract=off"]


class BuildWithGPUs(build_py):
    """Puts gpus/ into the wheel as gpusim/gpus; an editable install reads the source tree itself."""

    def run(self) -> None:
        """Builds the package, then copies the GPU files beside it."""
        super().run()
        if not self.editable_mode:
            for source, target in self._copies().items():
                Path(target).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source, target)

    def get_source_files(self) -> list[str]:
        """Names what a source distribution carries."""
        return [*super().get_source_files(), *GPU_FILES]

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:
        """Names what a build makes."""
        outputs = super().get_outputs(include_bytecode)
        return outputs if self.editable_mode else [*outputs, *self._copies().values()]

    def _copies(self) -> dict[str, str]:
        folder = Path(self.build_lib, "gpusim", "gpus")
        return {source: str(folder / Path(source).name) for source in GPU_FILES}


def compiled_core() -> list[Extension]:
    """Returns the optional extension, none without Cython; where it is not built, plain core.py runs."""
    if not Path(CORE).exists():
        return []
    try:
        from Cython.Build import cythonize
    except ImportError:
        return []
    extension = Extension("gpusim.engine.core", [CORE], extra_compile_args=FLAGS)
    modules: list[Extension] = cythonize([extension], build_dir="build", language_level=3)
    for module in modules:
        module.optional = True  # no C compiler, no harm; cythonize would drop it from `extension`
    return modules


setup(cmdclass={"build_py": BuildWithGPUs}, ext_modules=compiled_core())
