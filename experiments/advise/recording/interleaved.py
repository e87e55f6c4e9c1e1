"""Two programs kernel by kernel in turns, in one CUDA graph of one stream: interleaved.py FOLDER A+PASSES+B+PASSES..."""

# ruff: noqa
# The script as it ran on the GPU, only formatted. interleaved.csv has the times, and whose kernel came when.

import gzip, json, sys, threading, torch
from torch.utils._python_dispatch import TorchDispatchMode
from programs import *

L.init()
out = sys.argv[1]
S, ctl, made = new_stream(), new_stream()[1], {}
VIEWS = (
    "view",
    "t",
    "transpose",
    "expand",
    "slice",
    "unbind",
    "split",
    "permute",
    "detach",
    "alias",
    "select",
    "unsqueeze",
    "squeeze",
    "as_strided",
    "empty",
    "reshape",
    "chunk",
    "unflatten",
    "flatten",
    "_reshape_alias",
    "split_with_sizes",
    "new_empty",
    "empty_like",
    "lift_fresh",
    "contiguous",
)


class Turns:
    def __init__(self):
        self.c = threading.Condition()
        self.turn = 0
        self.done = [False, False]
        self.ops = [0, 0]

    def wait(self, me):
        with self.c:
            self.c.wait_for(lambda: self.turn == me or self.done[1 - me])

    def step(self, me):
        with self.c:
            self.ops[me] += 1
            if not self.done[1 - me]:
                self.turn = 1 - me
                self.c.notify_all()
                self.c.wait_for(lambda: self.turn == me or self.done[1 - me])

    def end(self, me):
        with self.c:
            self.done[me] = True
            self.turn = 1 - me
            self.c.notify_all()


class Mode(TorchDispatchMode):
    def __init__(self, turns, me):
        super().__init__()
        self.turns, self.me = turns, me

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        r = func(*args, **(kwargs or {}))
        if func._schema.name.split("::")[1].rstrip("_") not in VIEWS and func._schema.name.split("::")[1] not in VIEWS:
            self.turns.step(self.me)
        return r


def interleaved(fa, na, fb, nb):
    go, ready, res = threading.Event(), threading.Event(), {}
    turns = Turns()

    def second():
        try:
            with torch.cuda.stream(S[0]):
                for _ in range(2):
                    fb()
                torch.cuda.synchronize()
                ready.set()
                go.wait()
                turns.wait(1)
                with Mode(turns, 1):
                    for _ in range(nb):
                        fb()
        except Exception as e:
            res["e"] = repr(e)
            ready.set()
        turns.end(1)

    t = threading.Thread(target=second)
    t.start()
    with torch.cuda.stream(S[0]):
        for _ in range(2):
            fa()
    torch.cuda.synchronize()
    ready.wait()
    g = torch.cuda.CUDAGraph()
    with torch.cuda.graph(g, stream=S[0], capture_error_mode="relaxed"):
        go.set()
        with Mode(turns, 0):
            for _ in range(na):
                fa()
        turns.end(0)
        t.join()
    torch.cuda.synchronize()
    print("ops", turns.ops, res, flush=True)
    return g


def sequential(fa, na, fb, nb):
    def f():
        for _ in range(na):
            fa()
        for _ in range(nb):
            fb()

    return graph(f, S[0])


def took(g, n=12):
    run_n(g, S, 2)
    torch.cuda.synchronize()
    e = events(n + 1)
    L.flag_reset()
    L.flag_wait(S[1])
    e[0].record(S[0])
    for i in range(n):
        run_n(g, S, 1)
        e[i + 1].record(S[0])
    L.flag_write(ctl)
    torch.cuda.synchronize()
    return med([e[i].elapsed_time(e[i + 1]) for i in range(n)])


for pair in sys.argv[2:]:
    a, na, b, nb = pair.split("+")
    na, nb = int(na), int(nb)
    for x in (a, b):
        made.setdefault(x, make(x))
    gi, gs = interleaved(made[a], na, made[b], nb), sequential(made[a], na, made[b], nb)
    t = took(gi), took(gs), took(gi), took(gs)
    print(pair, *("%.5f" % x for x in t), flush=True)
    ks = {}
    for name, g in (("inter", gi), ("seq", gs)):
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as pr:
            run_n(g, S, 5)
            torch.cuda.synchronize()
        pr.export_chrome_trace("/tmp/t.json")
        d = json.load(open("/tmp/t.json"))
        ks[name] = sorted(
            (e["ts"], e["dur"], e["name"])
            for e in d["traceEvents"]
            if e.get("cat") in ("kernel", "gpu_memset", "gpu_memcpy")
        )
    json.dump({"pair": pair, "t": t, **ks}, gzip.open(f"{out}/{a}_{b}.json.gz", "wt"))
