"""Time of each kernel of whole programs on parts of the SMs: record.py SECONDS. OUT in the environment names a folder."""

# ruff: noqa
# The script as it ran on an H200 on 2026-11-28, only formatted; programs.py and gate.cu are those of ../advise/recording.
# The profiler loses the last launches on parts of the SMs, and the script kept the last ones that came. They were put
# in order afterwards, by the numbers of launches that it printed. efficientnet_b0 was timed by kernels.py of that folder.

import csv, gzip, json, os, sys, time

sys.path.insert(0, "devtmp1")
sys.path.insert(0, ".")
import programs as P
import torch
from torch.profiler import ProfilerActivity, profile

out = os.environ["OUT"]
P.L.init()
S = P.new_stream() + (132,)
parts = [("all",) + S]
for n in (16, 32, 64, 96):
    parts.append(("group",) + P.green(n)[0])
from experiments.unseen_programs import models_fourth as c
from experiments.unseen_programs import models_second as a
from experiments.unseen_programs import models_third as b

w = csv.writer(gzip.open(out + "/curves3.csv.gz", "wt"))
w.writerow("program,side,sms,pass,index,name,grid,us".split(","))
t0 = time.time()
every = {**c.MODELS, **b.MODELS, **a.MODELS}
for name in every:
    if time.time() - t0 > float(sys.argv[1]):
        print("no time", name)
        continue
    try:
        f = every[name]()
        gs = [P.graph(f, p[1]) for p in parts]
        for g, p in zip(gs, parts):
            P.run_n(g, (p[1],), 2)
        torch.cuda.synchronize()
        for q, (g, p) in enumerate(zip(gs, parts)):
            with profile(activities=[ProfilerActivity.CUDA]) as pr:
                P.run_n(g, (p[1],), 3)
                torch.cuda.synchronize()
            pr.export_chrome_trace("/tmp/t.json")
            ev = sorted(
                (e for e in json.load(open("/tmp/t.json"))["traceEvents"] if e.get("cat") == "kernel"),
                key=lambda e: e["ts"],
            )
            n = len(ev) // 3
            if q == 0:
                N = n
            if len(ev) % 3 or n != N:
                print(name, p[3], "odd", len(ev), N)
            ev = ev[-(len(ev) // N) * N :]
            for i, e in enumerate(ev):
                if i < N and len(ev) > N:
                    continue
                w.writerow(
                    [
                        name,
                        p[0],
                        p[3],
                        i // N,
                        i % N,
                        e["name"][:100] if q == 0 and i // N == 1 else "",
                        "x".join(map(str, e["args"]["grid"])) if q == 0 and i // N == 1 else "",
                        e["dur"],
                    ]
                )
        print(name, N, round(time.time() - t0), flush=True)
        del gs, f
        torch.cuda.empty_cache()
    except Exception as x:
        print(name, "failed", repr(x)[:300], flush=True)
