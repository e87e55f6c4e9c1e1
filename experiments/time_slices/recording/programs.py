"""Two processes without MPS, one released 0.3 ms after the other: programs.py FOLDER FILE PAIR...

FOLDER has programs.py and gate.so of experiments/advise/recording.
"""

# ruff: noqa
# The script as it ran on the GPU, only formatted.

import subprocess, sys, time

FIRST_S = 0.0003
med = lambda v: sorted(v)[len(v) // 2]


def start(name):
    return subprocess.Popen(
        [sys.executable, folder + "/programs.py", "worker", name],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def go(*ws):
    at = time.monotonic() + 0.004
    for w, n, late in ws:
        w.stdin.write(f"{at + late} {n}\n")
        w.stdin.flush()
    return [tuple(map(float, w.stdout.readline().split())) for w, _, _ in ws]


def alone(w, n):
    return med([1e6 * (e - b) for _ in range(5) for b, e in go((w, n, 0))])


folder, path, pairs = sys.argv[1], sys.argv[2], [x.split("+") for x in sys.argv[3:]]
out = open(path, "w")
print("a,passes_a,b,passes_b,first,a_us,b_us,makespan_us", file=out)
ws = {(a, b): (start(a), start(b)) for a, b in pairs}
for two in ws.values():
    for w in two:
        line = w.stdout.readline()
        if line.strip() != "ready":
            raise SystemExit(f"worker says {line!r}")
print(len(ws), "pairs ready", flush=True)
for (a, b), (x, y) in ws.items():
    ta, tb = alone(x, 4) / 4, alone(y, 4) / 4
    na, nb = (max(1, round(8 * tb / ta)), 8) if ta < tb else (8, max(1, round(8 * ta / tb)))
    row = lambda first, *us: print(a, na, b, nb, first, *("%.1f" % q for q in us), sep=",", file=out, flush=True)
    t1, t2 = alone(x, na), alone(y, nb)
    row("alone", t1, t2, t1 + t2)
    for first, late in (("a", (0, FIRST_S)), ("b", (FIRST_S, 0))):
        v = []
        for _ in range(7):
            (b1, e1), (b2, e2) = go((x, na, late[0]), (y, nb, late[1]))
            z = min(b1, b2)
            v.append((1e6 * (e1 - z), 1e6 * (e2 - z), 1e6 * (max(e1, e2) - z)))
        row(first, *(med([t[i] for t in v]) for i in range(3)))
for two in ws.values():
    for w in two:
        w.stdin.close()
for two in ws.values():
    for w in two:
        w.wait()
