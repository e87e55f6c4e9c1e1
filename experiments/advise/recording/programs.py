"""Whole programs alone and together: programs.py corun|record|ncu|worker ARGS. CUDA graphs, so that the host is out of it."""

# ruff: noqa
# The script as it ran on the GPU, only formatted.

import ctypes, os, sys, time
import torch, torch.nn as nn, torch.nn.functional as F

H = os.path.dirname(os.path.abspath(__file__))
L = ctypes.CDLL(H + "/gate.so")
V = ctypes.c_void_p
L.stream_of.restype = V
L.stream_of.argtypes = [ctypes.c_int, ctypes.POINTER(ctypes.c_ulonglong)]
L.copy.argtypes = [V, V, ctypes.c_ulonglong, V]
for n in ("flag_wait", "flag_write"):
    getattr(L, n).argtypes = [V]
torch.zeros(1, device="cuda")
torch.manual_seed(0)
torch.backends.mha.set_fastpath_enabled(False)
B = torch.bfloat16


def new_stream(priority=0):
    p = L.stream_of(priority, ctypes.byref(ctypes.c_ulonglong()))
    return torch.cuda.ExternalStream(p), p


def green(n):
    a, b, x, y = V(), V(), ctypes.c_uint(), ctypes.c_uint()
    L.green(n, ctypes.byref(a), ctypes.byref(x), ctypes.byref(b), ctypes.byref(y))
    return (torch.cuda.ExternalStream(a.value), a.value, x.value), (
        torch.cuda.ExternalStream(b.value),
        b.value,
        y.value,
    )


class Layers(nn.Module):
    def __init__(s, layers, d, h, ff):
        super().__init__()
        s.h, s.d, s.n = h, d, nn.Parameter(torch.ones(d))
        s.l = nn.ModuleList(
            [
                nn.ModuleDict(
                    dict(
                        q=nn.Linear(d, 3 * d, bias=False),
                        o=nn.Linear(d, d, bias=False),
                        u=nn.Linear(d, ff, bias=False),
                        g=nn.Linear(d, ff, bias=False),
                        w=nn.Linear(ff, d, bias=False),
                    )
                )
                for _ in range(layers)
            ]
        )

    def forward(s, x):
        for i, m in enumerate(s.l):
            x = x + m["o"](s.attend(i, m["q"](F.rms_norm(x, (s.d,), s.n))).reshape(x.shape))
            y = F.rms_norm(x, (s.d,), s.n)
            x = x + m["w"](F.silu(m["g"](y)) * m["u"](y))
        return x


class Decode(Layers):
    def keep(s, batch, context):
        s.kv = [[torch.randn(batch, s.h, context, s.d // s.h, device="cuda", dtype=B) for _ in range(2)] for _ in s.l]
        return s

    def attend(s, i, qkv):
        q = qkv.chunk(3, -1)[0].view(qkv.shape[0], s.h, 1, -1)
        return F.scaled_dot_product_attention(q, *s.kv[i])


class Prefill(Layers):
    def attend(s, i, qkv):
        b, t, _ = qkv.shape
        q, k, v = (z.view(b, t, s.h, -1).transpose(1, 2) for z in qkv.chunk(3, -1))
        return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)


NETS = dict(resnet50=32, mobilenet_v2=64, efficientnet_b0=32)


def make(name, few=False):
    if name in NETS:
        import torchvision

        m = getattr(torchvision.models, name)().eval().cuda().to(B).to(memory_format=torch.channels_last)
        x = torch.randn(NETS[name], 3, 224, 224, device="cuda", dtype=B).contiguous(memory_format=torch.channels_last)
    elif name.startswith("decode"):
        n = int(name[6:])
        m = Decode(1 if few else 6, 2048, 16, 5632).cuda().to(B).keep(n, 1024)
        x = torch.randn(n, 2048, device="cuda", dtype=B)
    elif name.startswith("prefill"):
        n = int(name[7:])
        m = Prefill(1 if few else 4, 2048, 16, 5632).cuda().to(B)
        x = torch.randn(n, 512, 2048, device="cuda", dtype=B)
    elif name == "copies":
        size = 4 << 20
        host = [torch.empty(size, dtype=torch.uint8).pin_memory() for _ in range(2)]
        dev = torch.empty(size // 2, device="cuda", dtype=B)
        w = torch.randn(2048, 2048, device="cuda", dtype=B)

        def f():
            s = torch.cuda.current_stream().cuda_stream
            for _ in range(1 if few else 4):
                L.copy(dev.data_ptr(), host[0].data_ptr(), size, s)
                with torch.inference_mode():
                    y = F.gelu(dev.view(1024, 2048) @ w)
                L.copy(host[1].data_ptr(), y.data_ptr(), size, s)

        return f

    def f():
        with torch.inference_mode():
            return m(x)

    return f


def graph(f, s):
    with torch.cuda.stream(s):
        for _ in range(2):
            f()
    torch.cuda.synchronize()
    g = torch.cuda.CUDAGraph()
    with torch.cuda.graph(g, stream=s):
        f()
    torch.cuda.synchronize()
    return g


med = lambda v: sorted(v)[len(v) // 2]


def events(n):
    return [torch.cuda.Event(enable_timing=True) for _ in range(n)]


def run_n(g, s, n):
    with torch.cuda.stream(s[0]):
        for _ in range(n):
            g.replay()


def corun(pairs, path, until):
    out = open(path, "w")
    ctl = new_stream()[1]
    print("a,na,b,nb,mode,sms_a,sms_b,ms_a,ms_b,ms_makespan", file=out)
    sms = torch.cuda.get_device_properties(0).multi_processor_count
    S = [new_stream() + (sms,), new_stream() + (sms,)]
    low, high = torch.cuda.Stream.priority_range()
    P = [new_stream(high) + (sms,), new_stream(high) + (sms,)]
    G = [green(n) for n in (16, 32, 48, 64, 80, 96, 112)]
    made = {}

    def one(g, s, n):
        t = []
        for _ in range(5):
            e = events(2)
            L.flag_reset()
            L.flag_wait(s[1])
            e[0].record(s[0])
            run_n(g, s, n)
            e[1].record(s[0])
            L.flag_write(ctl)
            torch.cuda.synchronize()
            t.append(e[0].elapsed_time(e[1]))
        return med(t)

    for a, b in (x.split("+") for x in pairs.split(",")):
        if time.time() > until:
            print("no time for", a, b, flush=True)
            continue
        for x in (a, b):
            made.setdefault(x, make(x))
        fa, fb = made[a], made[b]
        ga, gb = graph(fa, S[0][0]), graph(fb, S[1][0])
        ta, tb = one(ga, S[0], 4) / 4, one(gb, S[1], 4) / 4
        na, nb = (max(1, round(4 * tb / ta)), 4) if ta < tb else (4, max(1, round(4 * ta / tb)))

        def together(g1, s1, g2, s2):
            v = []
            for k in range(8):
                e = events(4)
                L.flag_reset()
                both = [(0, g1, s1, na), (1, g2, s2, nb)]
                for i, g, s, n in both if k % 2 else both[::-1]:
                    L.flag_wait(s[1])
                    e[2 * i].record(s[0])
                    run_n(g, s, n)
                    e[2 * i + 1].record(s[0])
                L.flag_write(ctl)
                torch.cuda.synchronize()
                z = min(0.0, e[0].elapsed_time(e[2]))
                v.append(
                    (
                        e[0].elapsed_time(e[1]) - z,
                        e[0].elapsed_time(e[3]) - z,
                        max(e[0].elapsed_time(e[1]), e[0].elapsed_time(e[3])) - z,
                    )
                )
            return [med([x[i] for x in v]) for i in range(3)]

        row = lambda m, x, y, t: (
            print(a, na, b, nb, m, x, y, *("%.6f" % q for q in t), sep=",", file=out),
            out.flush(),
        )
        t1, t2 = one(ga, S[0], na), one(gb, S[1], nb)
        row("alone", sms, sms, (t1, t2, t1 + t2))
        row("streams", sms, sms, together(ga, S[0], gb, S[1]))
        row("priority_a", sms, sms, together(graph(fa, P[0][0]), P[0], gb, S[1]))
        row("priority_b", sms, sms, together(ga, S[0], graph(fb, P[1][0]), P[1]))
        for p, q in G:
            h1, h2 = graph(fa, p[0]), graph(fb, q[0])
            row("green", p[2], q[2], together(h1, p, h2, q))
            row("alone_green", p[2], q[2], (one(h1, p, na), one(h2, q, nb), 0))
        print(a, na, b, nb, "at", round(until - time.time()), flush=True)


def record(names, folder):
    s, _ = new_stream()
    for name in names.split(","):
        g = graph(make(name), s)
        with torch.cuda.stream(s):
            for _ in range(3):
                g.replay()
            torch.cuda.synchronize()
            with torch.profiler.profile(
                activities=[torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
            ) as pr:
                for _ in range(2):
                    g.replay()
                torch.cuda.synchronize()
        pr.export_chrome_trace(f"{folder}/{name}.kineto.json")


def ncu(names):
    c = torch.cuda.cudart()
    for name in names.split(","):
        f = make(name, few=True)
        f()
        f()
        torch.cuda.synchronize()
        c.cudaProfilerStart()
        f()
        torch.cuda.synchronize()
        c.cudaProfilerStop()


def worker(name):
    s = new_stream()
    g = graph(make(name), s[0])
    print("ready", flush=True)
    t = []
    run_n(g, s, 3)
    torch.cuda.synchronize()
    for line in sys.stdin:
        at, n = line.split()
        while time.monotonic() < float(at):
            pass
        begin = time.monotonic()
        run_n(g, s, int(n))
        torch.cuda.synchronize()
        print(begin, time.monotonic(), flush=True)


if __name__ == "__main__":
    mode, name = sys.argv[1:3]
    if mode == "corun":
        L.init()
        corun(name, sys.argv[3], time.time() + float(sys.argv[4]))
    elif mode == "record":
        record(name, sys.argv[3])
    elif mode == "ncu":
        ncu(name)
    else:
        worker(name)
