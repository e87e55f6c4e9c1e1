// Runs gpusim in Pyodide, beside the page; build.sh puts Pyodide and the wheels into build/.
const text = async (path) => {
  const answer = await fetch(path);
  if (!answer.ok) throw new Error(`${path}: ${answer.status} (docs/try/build.sh makes the folder build)`);
  return answer.text();
};

const start = async () => {
  const wheels = await text("build/wheels.txt");
  const { loadPyodide } = await import("./build/pyodide/pyodide.mjs");
  const python = await loadPyodide();
  for (const name of wheels.trim().split("\n")) {
    python.unpackArchive(await (await fetch(`build/${name}`)).arrayBuffer(), "wheel");
  }
  python.runPython(await text("replay.py"));
  postMessage({ state: "Ready." });
  return python;
};

const ready = start();
ready.catch((error) => postMessage({ failed: error.message }));

onmessage = async ({ data }) => {
  const python = await ready;
  const trace = data.bytes ? `/tmp/${data.name}` : `sample:${data.sample}`;
  if (data.bytes) python.FS.writeFile(trace, new Uint8Array(data.bytes));
  const begin = performance.now();
  try {
    const output = python.globals.get("compared")(trace, python.toPy(data.policies), (step) => postMessage({ step }));
    postMessage({ output, state: `Done in ${((performance.now() - begin) / 1000).toFixed(1)} s.` });
  } catch (error) {
    postMessage({ output: error.message, state: "Failed." });
  }
};
