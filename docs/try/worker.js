// Runs gpusim in Pyodide, beside the page; build.sh puts Pyodide and the wheels into build/.
import { loadPyodide } from "./build/pyodide/pyodide.mjs";

const python = await loadPyodide();
const wheels = await (await fetch("build/wheels.txt")).text();
for (const name of wheels.trim().split("\n")) {
  python.unpackArchive(await (await fetch(`build/${name}`)).arrayBuffer(), "wheel");
}
postMessage({ state: "Ready." });

onmessage = ({ data }) => {
  const trace = data.bytes ? `/tmp/${data.name}` : `sample:${data.sample}`;
  if (data.bytes) python.FS.writeFile(trace, new Uint8Array(data.bytes));
  python.globals.set("arguments", python.toPy(["replay", trace, "--no-cache", ...data.policies.flatMap((one) => ["--policy", one])]));
  const start = performance.now();
  const output = python.runPython(`
import io, contextlib
from gpusim.cli import main
printed = io.StringIO()
with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
    main(arguments)
"".join(line for line in printed.getvalue().splitlines(True) if "core is not compiled" not in line)
`);
  postMessage({ output, state: `Done in ${((performance.now() - start) / 1000).toFixed(0)} s.` });
};
