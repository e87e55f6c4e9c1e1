"""Two processes on one GPU, without and with MPS: processes.py FILE SECONDS PAIR..."""

# ruff: noqa
# The script as it ran on the GPU, only formatted.

import os, subprocess, sys, time

H = os.path.dirname(os.path.abspath(__file__))
med = lambda v: sorted(v)[len(v) // 2]


def start(name, percent=None):
    env = dict(os.environ) | ({"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": str(percent)} if percent else {})
    return subprocess.Popen(
        [sys.executable, H + "/programs.py", "worker", name],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=env,
        text=True,
    )


def wait(w):
    line = w.stdout.readline()
    if line.strip() != "ready":
        raise SystemExit(f"worker says {line!r}")


def go(*ws):
    at = time.monotonic() + 0.004
    for w, n in ws:
        w.stdin.write(f"{at} {n}\n")
        w.stdin.flush()
    return [tuple(map(float, w.stdout.readline().split())) for w, _ in ws]


def alone(w, n):
    return med([1e3 * (e - b) for _ in range(5) for b, e in go((w, n))])


def both(w1, n1, w2, n2):
    v = []
    for _ in range(7):
        (b1, e1), (b2, e2) = go((w1, n1), (w2, n2))
        z = min(b1, b2)
        v.append((1e3 * (e1 - z), 1e3 * (e2 - z), 1e3 * (max(e1, e2) - z)))
    return [med([x[i] for x in v]) for i in range(3)]


path, until, pairs = sys.argv[1], time.time() + float(sys.argv[2]), [x.split("+") for x in sys.argv[3:]]
out = open(path, "w")
print("a,na,b,nb,mode,percent_a,percent_b,ms_a,ms_b,ms_makespan", file=out)
passes = {}


def row(a, b, m, x, y, t):
    print(a, passes[a, b][0], b, passes[a, b][1], m, x, y, *("%.6f" % q for q in t), sep=",", file=out)
    out.flush()


def measure(mode, percents):
    ws = {(a, b, p): (start(a, p and p[0]), start(b, p and p[1])) for a, b in pairs for p in percents}
    for two in ws.values():
        wait(two[0])
        wait(two[1])
    print(mode, len(ws), "pairs ready, seconds left", round(until - time.time()), flush=True)
    for (a, b, p), (x, y) in ws.items():
        if (a, b) not in passes:
            ta, tb = alone(x, 4) / 4, alone(y, 4) / 4
            passes[a, b] = (max(1, round(8 * tb / ta)), 8) if ta < tb else (8, max(1, round(8 * ta / tb)))
        na, nb = passes[a, b]
        t1, t2 = alone(x, na), alone(y, nb)
        row(a, b, "alone_" + mode, *(p or (100, 100)), (t1, t2, t1 + t2))
        row(a, b, mode, *(p or (100, 100)), both(x, na, y, nb))
    for two in ws.values():
        for w in two:
            w.stdin.close()
    for two in ws.values():
        for w in two:
            w.wait()


measure("time_slices", [None])
os.environ["CUDA_MPS_PIPE_DIRECTORY"] = "/tmp/mps"
os.environ["CUDA_MPS_LOG_DIRECTORY"] = "/tmp/mps_log"
os.makedirs("/tmp/mps", exist_ok=True)
os.makedirs("/tmp/mps_log", exist_ok=True)
print(subprocess.run(["nvidia-cuda-mps-control", "-d"], capture_output=True, text=True), flush=True)
if time.time() < until:
    measure("mps", [(100, 100), (30, 70), (50, 50), (70, 30)])
subprocess.run(["nvidia-cuda-mps-control"], input="quit\n", text=True)
