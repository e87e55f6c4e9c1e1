#!/usr/bin/env bash
# Put Pyodide and the wheels that the page needs into docs/try/build; then serve docs/try, such as by
#   python3 -m http.server -d docs/try
set -euo pipefail
cd "$(dirname "$0")"
VERSION=314.0.7        # of Pyodide, and what its Python and its ABI are called
PYTHON=3.14 ABI=cp314 PLATFORM=pyemscripten_2026_0_wasm32
rm -rf build && mkdir -p build/pyodide
(cd build && npm pack --silent "pyodide@$VERSION" && tar -xzf pyodide-*.tgz -C pyodide --strip-components=1 && rm pyodide-*.tgz)
pip download --quiet --dest build --only-binary=:all: --python-version "$PYTHON" --implementation cp \
  --abi "$ABI" --abi abi3 --abi none --platform "$PLATFORM" --platform any pydantic simpy
numpy=$(python3 -c 'import json; print(json.load(open("build/pyodide/pyodide-lock.json"))["packages"]["numpy"]["file_name"])')
curl -fsSL -o "build/$numpy" "https://cdn.jsdelivr.net/pyodide/v$VERSION/full/$numpy"  # no registry has it for Pyodide
pip wheel --quiet --no-deps --wheel-dir build ../..   # its compiled core is for this machine: Pyodide takes the plain one
(cd build && ls -- *.whl > wheels.txt)
