"""Third recording: small batches, and networks of other shapes."""
FWD = {"IMPLICIT_GEMM": 0, "IMPLICIT_PRECOMP_GEMM": 1, "FFT_TILING": 5, "WINOGRAD_NONFUSED": 7}
BWD = {"ALGO_0": 0, "ALGO_1": 1, "WINOGRAD_NONFUSED": 5}
def emit(f, net, n, name, c, h, k, r, p, s, d="fwd", extra=True):
    A = FWD if d == "fwd" else BWD
    for a, i in A.items():
        if a == "FFT_TILING" and (r < 5 or s > 1): continue
        if a == "WINOGRAD_NONFUSED" and (r not in (3, 5) or s > 1): continue
        if a == "ALGO_0" and d == "bwd_data" and r == 1: pass
        f.write(f"{net}/{name}/{d}/{a}/FMA {d} {n} {c} {h} {k} {r} {p} {s} {i} FMA\n")
    f.write(f"{net}/{name}/{d}/{'IMPLICIT_PRECOMP_GEMM' if d=='fwd' else 'ALGO_1'}/TF32 {d} {n} {c} {h} {k} {r} {p} {s} 1 TF32\n")
def inception(name, c, hw, k1, r3, k3, r5, k5, kp):
    return [(f"{name}.1x1", c, hw, k1, 1, 0, 1), (f"{name}.3x3_reduce", c, hw, r3, 1, 0, 1), (f"{name}.3x3", r3, hw, k3, 3, 1, 1),
            (f"{name}.5x5_reduce", c, hw, r5, 1, 0, 1), (f"{name}.5x5", r5, hw, k5, 5, 2, 1), (f"{name}.pool_proj", c, hw, kp, 1, 0, 1)]
with open("net3a.specs", "w") as f:
    for m in [("3a",192,28,64,96,128,16,32,32),("3b",256,28,128,128,192,32,96,64),("4a",480,14,192,96,208,16,48,64),("4c",512,14,128,128,256,24,64,64),("4e",528,14,256,160,320,32,128,128),("5a",832,7,256,160,320,32,128,128),("5b",832,7,384,192,384,48,128,128)]:
        for l in inception(*m): emit(f, "googlenet16", 16, *l)
