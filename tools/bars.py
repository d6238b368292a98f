#!/usr/bin/env python3
# tools/bars.py: holds what `qkv bench --json` and `bench/versus.py --json` print to the speeds that qkv aims at.
"""Usage: tools/bars.py [--short] measured.jsonl...

Prints a line a bar: what was seen, what is aimed at, and whether that holds; --short leaves out those that hold. Files may
come from several runs; where something was measured more than once, the best counts, as within one run. With AVX2, shares
of the peak of attention may stay 3 points below the bars, which are those of AVX-512. What no file has a line for is left
out and counted. Exit code 1 if a bar is missed.
"""
import json
import sys

AVX2_ALLOWANCE = 0.03
LENGTHS = (512, 1024, 2048, 4096)
WIDTHS = (64, 128)
LAYERS = ((16, 128, 512, 8), (64, 16, 512, 8), (8, 512, 512, 8), (32, 128, 384, 12))


class Measured:
    """The best row of each thing that was measured."""

    def __init__(self, rows):
        self.best = {}
        self.avx2 = False
        for row in rows:
            peer = row.get("versus")
            self.avx2 |= row.get("isa") == "avx2"
            key = (peer, None if peer else row["bench"], row["case"], json.dumps(row["shape"], sort_keys=True))
            if "ns_per_unit" in row:  # as if the peak of its run were 100 GFLOP/s
                row["unit"] = row["ns_per_unit"] * row["peak_gflops"] / 100
            best = self.best.setdefault(key, dict(row))
            for name in ("ms", "peer_ms", "qkv_ms", "unit"):
                if name in row:
                    best[name] = min(best[name], row[name])
            for name in ("share_of_peak", "share_of_bandwidth"):
                if name in row:
                    best[name] = max(best[name], row[name])

    def find(self, peer, bench, case, shape):
        for (its_peer, its_bench, its_case, _), row in self.best.items():
            if (its_peer, its_bench, its_case) == (peer, bench, case) and shape.items() <= row["shape"].items():
                return row
        return None


class Bars:
    def __init__(self, measured, short):
        self.measured, self.short = measured, short
        self.held = self.missed = self.unknown = 0

    def bar(self, name, seen, bar, at_most=False):
        if seen is None:
            self.unknown += 1
            return
        holds = seen <= bar if at_most else seen >= bar
        self.held += holds
        self.missed += not holds
        if not (self.short and holds):
            print(f"  {'holds ' if holds else 'MISSED'} {seen:7.3f} {'<=' if at_most else '>='} {bar:.3f}  {name}")

    def share(self, bench, case, bar, of="peak", allowance=False, **shape):
        row = self.measured.find(None, bench, case, shape)
        if allowance and self.measured.avx2:
            bar -= AVX2_ALLOWANCE
        self.bar(text(bench, case, shape) + f", share of the {of}", row and row["share_of_" + of], bar)

    def against(self, bench, case, other, bar, by="share_of_peak", **shape):
        """By share_of_peak: speed at equal useful work. By ms: how many times faster a call is."""
        mine, theirs = (self.measured.find(None, bench, name, shape) for name in (case, other))
        seen = None
        if mine and theirs:
            seen = mine[by] / theirs[by] if by == "share_of_peak" else theirs[by] / mine[by]
        self.bar(text(bench, case, shape) + f", speed over {other}", seen, bar)

    def unit(self, bench, bar, **shape):
        row = self.measured.find(None, bench, "additive", shape)
        self.bar(text(bench, "additive", shape) + ", ns a unit", row and row["unit"], bar, at_most=True)

    def versus(self, peer, case, bar, **shape):
        row = self.measured.find(peer, None, case, shape)
        self.bar(text(case, "", shape) + f", times faster than {peer}", row and row["peer_ms"] / row["qkv_ms"], bar)


def text(bench, case, shape):
    return " ".join(word for word in (bench, case, *(f"{k}={v}" for k, v in shape.items())) if word)


def forward(bars):
    for D in WIDTHS:
        long = .86 if D == 64 else .87
        for T, plain in ((128, .82), (512, .84), (1024, long), (2048, long), (4096, long)):
            bars.share("attend", "plain", plain, allowance=True, Tq=T, D=D)
        for T in LENGTHS:
            bars.share("attend", "causal", .78 if T == 512 else .83, allowance=True, Tq=T, D=D)
            for case in ("lengths", "alibi", "window"):
                bars.against("attend", case, "plain", .95, Tq=T, D=D)
            for case in ("bias", "keep"):
                bars.against("attend", case, "plain", 1 / 1.05, Tq=T, D=D)
        for Tk in (16384, 65536):
            bars.share("decode", "float32", .88, of="bandwidth", Tk=Tk, D=D)
            bars.against("decode", "float16", "float32", 1.5, by="ms", Tk=Tk, D=D)
            bars.against("decode", "grouped", "separate", 3, by="ms", Tk=Tk, D=D)
    plain = {D: bars.measured.find(None, "attend", "plain", {"Tq": 1024, "D": D}) for D in (40, 48, 64, 80, 96, 128)}
    for D, neighbour in ((40, 48), (80, 64), (96, 128)):
        known = plain[D] and plain[neighbour]
        bars.bar(f"attend plain Tq=1024 D={D}, speed over D={neighbour}",
                 plain[D]["share_of_peak"] / plain[neighbour]["share_of_peak"] if known else None, .85)
    for M in (512, 1024, 2048):
        bars.share("gemm", "square", .90, M=M)
    for M in (64, 900):
        bars.share("gemm", "packed", .87, M=M)
        bars.share("gemm", "per_call", .80, M=M)


def mechanism(bars):
    for D in WIDTHS:
        for T in LENGTHS:
            for case in ("gaussian", "cosine", "bilinear"):
                bars.against("scores", case, "scaled_dot", .95, Tq=T, D=D)
    for T in LENGTHS:
        for E in (64, 128, 256):
            bars.unit("scores", .13, Tq=T, E=E)
        for case in ("laplace", "boxcar", "triangular", "epanechnikov"):
            bars.share("scores", case, .6, Tq=T, D=64)
        for case in ("normalize", "raw", "uniform"):
            bars.against("weighings", case, "softmax", 1, by="ms", Tq=T)
        bars.against("weighings", "top_k", "softmax", 1 / 1.15, by="ms", Tq=T)
        for case in ("lse", "mass", "top", "entropy", "effective", "rows", "partial"):
            bars.against("statistics", case, "none", 1 / 1.10, by="ms", Tq=T)
    bars.against("cache", "append", "decode", 100, by="ms")


def gradients(bars):
    for D in WIDTHS:
        for T in (512, 1024, 2048):
            bars.share("backward", "plain", .86, allowance=True, Tq=T, D=D)
        for T, bar in ((512, .79), (2048, .84)):
            bars.share("backward", "causal", bar, allowance=True, Tq=T, D=D)
    for Tq in (512, 64):
        for E in (64, 128, 256):
            bars.unit("backward", .32, Tq=Tq, E=E)
    bars.share("backward", "gru", .68)
    bars.share("backward", "linear", .80)


def layers(bars):
    for B, T, width, heads in LAYERS:
        shape = {"B": B, "T": T, "width": width, "heads": heads}
        bars.share("layers", "mha_forward", .82, **shape)
        bars.share("layers", "mha_train", .80, **shape)


def torch(bars):
    for D in WIDTHS:
        for T in (16, 32, 64, 128, 512, 1024, 2048):
            for case, bar in (("plain", 1.2 if D == 64 else 1.1), ("causal", 1.4), ("bias", 1.2), ("keep", 1.2)):
                bars.versus("torch", case, 2 if T <= 32 else bar, Tq=T, D=D)
        for T in (64, 128, 256, 512, 1024, 2048):
            bars.versus("torch", "plain+backward", 1.2, Tq=T, D=D)
            bars.versus("torch", "causal+backward", 1.5, Tq=T, D=D)
        bars.versus("torch", "decode", 1.7, D=D)
    bars.versus("torch", "additive_forward", 20)
    bars.versus("torch", "additive", 12)
    for i, (B, T, width, heads) in enumerate(LAYERS):
        for case in ("mha_forward", "mha_train"):
            bars.versus("torch", case, 1.1 if i < 2 else 1.25, B=B, T=T, width=width, heads=heads)
    bars.versus("torch", "mha_additive", 8)


def onnxruntime(bars):
    for D in WIDTHS:
        for T in (16, 32, 64, 128, 512, 1024, 2048):
            for case, bar in (("plain", 1), ("causal", 1.35), ("bias", 1), ("keep", 1)):
                bars.versus("onnxruntime", case, bar, Tq=T, D=D)
        bars.versus("onnxruntime", "decode", 2, D=D)


def read(path):
    with open(path, encoding="utf-8") as file:
        rows = [json.loads(line) for line in file if line.strip()]
    for row in rows:
        if not isinstance(row, dict) or not {"case", "shape"} <= row.keys() or not {"bench", "versus"} & row.keys():
            raise ValueError(f"no line of qkv bench --json or bench/versus.py --json: {json.dumps(row)[:80]}")
        if "error" in row:
            raise ValueError(f"{row['case']} {row['shape']}: {row['error']}")
    return rows


def main():
    short = "--short" in sys.argv
    paths = [word for word in sys.argv[1:] if word != "--short"]
    if not paths or any(path.startswith("-") for path in paths):
        print(__doc__.strip(), file=sys.stderr)
        return 2
    rows = []
    for path in paths:
        try:
            rows += read(path)
        except (OSError, ValueError) as error:
            print(f"bars: {path}: {error}", file=sys.stderr)
            return 1
    bars = Bars(Measured(rows), short)
    for part in (forward, mechanism, gradients, layers, torch, onnxruntime):
        print(part.__name__)
        part(bars)
    print(f"{bars.held} hold, {bars.missed} are missed, {bars.unknown} were not measured")
    return 1 if bars.missed else 0


if __name__ == "__main__":
    sys.exit(main())
