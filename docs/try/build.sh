#!/usr/bin/env bash
# Put Pyodide and the wheels that the page needs into docs/try/build, from npm and PyPI. Then serve docs/try, such as by
#   python3 -m http.server -d docs/try
set -euo pipefail
cd "$(dirname "$0")"
VERSION=314.0.7        # of Pyodide, and what its Python and its ABI are called
PYTHON=3.14 ABI=cp314 PLATFORM=pyemscripten_2026_0_wasm32
rm -rf build && mkdir -p build/pyodide
(cd build && npm pack --silent "pyodide@$VERSION" && tar -xzf pyodide-*.tgz -C pyodide --strip-components=1 && rm pyodide-*.tgz)
pip download --quiet --dest build --only-binary=:all: --python-version "$PYTHON" --implementation cp \
  --abi "$ABI" --abi abi3 --abi none --platform "$PLATFORM" --platform any pydantic simpy
pip wheel --quiet --no-deps --wheel-dir build ../..   # its compiled core is for this machine: Pyodide takes the plain one
(cd build && ls -- *.whl > wheels.txt)
