#!/usr/bin/env python3
# tools/bars.py: holds what `qkv bench --json` and `bench/versus.py --json` print to the speeds that qkv aims at.
"""Usage: tools/bars.py [--short] measured.jsonl...

Prints one line a bar: what was seen, what is aimed at, and whether it holds. --short leaves out those that hold. Where
something was measured more than once, the best counts, as within one run. With AVX2, shares of the peak may stay 3
points below those of AVX-512. Exit code 1 if a bar does not hold or nothing was measured for it.
"""
import json
import sys

AVX2_ALLOWANCE = 0.03


class Measured:
    def __init__(self, lines):
        self.rows = {}
        self.isa = "avx2"
        for row in lines:
            if "peer" not in row:
                self.isa = row["isa"]
            shape = row["shape"]
            key = (row.get("peer"), row["bench"], row["case"], tuple(sorted(shape.items())))
            if key not in self.rows or self.rate(row) > self.rate(self.rows[key]):
                self.rows[key] = row

    @staticmethod
    def rate(row):
        return row["ratio"] if "peer" in row else 1 / row["ms"]

    def find(self, bench, case, peer=None, **shape):
        found = [row for row in self.rows.values()
                 if row["bench"] == bench and row["case"] == case and row.get("peer") == peer
                 and all(row["shape"].get(name) == value for name, value in shape.items())]
        return found[0] if found else None


class Bars:
    def __init__(self, measured, short):
        self.measured, self.short = measured, short
        self.failures = 0

    def title(self, text):
        print(f"\n{text}")

    def line(self, name, seen, bar, at_most=False):
        holds = seen is not None and (seen <= bar if at_most else seen >= bar)
        self.failures += not holds
        if self.short and holds:
            return
        shown = "   -  " if seen is None else f"{seen:6.3f}"
        print(f"  {'holds' if holds else 'SHORT'}  {shown} {'<=' if at_most else '>='} {bar:.3f}  {name}")

    def share(self, bench, case, bar, allowance=True, value="share_of_peak", **shape):
        row = self.measured.find(bench, case, **shape)
        if allowance and self.measured.isa == "avx2":
            bar -= AVX2_ALLOWANCE
        self.line(f"{bench} {case} {text_of(shape)}", row and row[value], bar)

    def against(self, bench, case, other, bar, **shape):
        """The share of the peak over that of another case: times at equal useful work."""
        mine, theirs = self.measured.find(bench, case, **shape), self.measured.find(bench, other, **shape)
        seen = mine["share_of_peak"] / theirs["share_of_peak"] if mine and theirs else None
        self.line(f"{bench} {case} over {other} {text_of(shape)}", seen, bar)

    def times_faster(self, bench, case, other, bar, **shape):
        mine, theirs = self.measured.find(bench, case, **shape), self.measured.find(bench, other, **shape)
        self.line(f"{bench} {case}: times faster than {other} {text_of(shape)}",
                  theirs["ms"] / mine["ms"] if mine and theirs else None, bar)

    def peer(self, peer, bench, case, bar, **shape):
        row = self.measured.find(bench, case, peer=peer, **shape)
        self.line(f"times faster than {peer}: {bench} {case} {text_of(shape)}", row and row["ratio"], bar)


def text_of(shape):
    return " ".join(f"{name}={value}" for name, value in shape.items())


def forward(bars):
    bars.title("Attention forward")
    for D in (64, 128):
        for T, plain, causal in ((128, .82, None), (512, .84, .78), *((T, .86 if D == 64 else .87, .83) for T in (1024, 2048, 4096))):
            bars.share("attend", "plain", plain, Tq=T, D=D)
            if causal:
                bars.share("attend", "causal", causal, Tq=T, D=D)
        for T in (512, 1024, 2048, 4096):
            for case in ("lengths", "alibi", "window"):
                bars.against("attend", case, "plain", .95, Tq=T, D=D)
            for case in ("bias", "keep"):
                bars.against("attend", case, "plain", 1 / 1.05, Tq=T, D=D)
    for D, neighbour in ((40, 48), (80, 64), (96, 128)):
        mine = bars.measured.find("attend", "plain", Tq=1024, D=D)
        theirs = bars.measured.find("attend", "plain", Tq=1024, D=neighbour)
        bars.line(f"attend plain D={D} over D={neighbour}",
                  mine["share_of_peak"] / theirs["share_of_peak"] if mine and theirs else None, .85)
    for Tk, D in ((16384, 64), (65536, 128)):
        bars.share("decode", "float32", .88, allowance=False, value="share_of_bandwidth", Tk=Tk, D=D)
        bars.times_faster("decode", "float16", "float32", 1.5, Tk=Tk, D=D)
        bars.times_faster("decode", "grouped", "separate", 3, Tk=Tk, D=D)
    for M in (512, 1024, 2048):
        bars.share("gemm", "square", .90, allowance=False, M=M)
    for M in (64, 900):
        bars.share("gemm", "packed", .87, allowance=False, M=M)
        bars.share("gemm", "per_call", .80, allowance=False, M=M)


def mechanism(bars):
    bars.title("Scores, weighings, statistics, cache")
    for D in (64, 128):
        for T in (512, 1024, 2048):
            for case in ("gaussian", "cosine", "bilinear"):
                if bars.measured.find("scores", case, Tq=T, D=D) or T < 2048:  # --quick leaves out the longest
                    bars.against("scores", case, "scaled_dot", .95, Tq=T, D=D)
    for E in (64, 128, 256):
        row = bars.measured.find("scores", "additive", Tq=512, E=E)
        bars.line(f"additive, ns a unit at 100 GF/s, E={E}", row and row["ns_per_unit"] * row["peak_gflops"] / 100, .13, at_most=True)
    for case in ("laplace", "boxcar", "triangular", "epanechnikov"):
        bars.share("scores", case, .6, allowance=False, Tq=1024, D=64)
    for T in (512, 1024):
        for case in ("normalize", "raw", "uniform"):
            bars.times_faster("weighings", case, "softmax", 1, Tq=T, D=64)
        bars.times_faster("weighings", "top_k", "softmax", 1 / 1.15, Tq=T, D=64)
    for T in (1024, 4096):
        for case in ("lse", "mass", "top", "entropy", "effective", "rows", "partial"):
            bars.times_faster("statistics", case, "none", 1 / 1.10, Tq=T, D=64)
    bars.times_faster("cache", "append", "decode", 100)


def gradients(bars):
    bars.title("Gradients")
    for D in (64, 128):
        for T, causal in ((512, .79), (1024, None), (2048, .84)):
            bars.share("backward", "plain", .86, Tq=T, D=D)
            if causal:
                bars.share("backward", "causal", causal, Tq=T, D=D)
    for Tq in (512, 64):
        for E in (64, 128, 256):
            row = bars.measured.find("backward", "additive", Tq=Tq, E=E)
            bars.line(f"additive backward, ns a unit at 100 GF/s, Tq={Tq} E={E}",
                      row and row["ns_per_unit"] * row["peak_gflops"] / 100, .32, at_most=True)
    bars.share("backward", "gru", .68, allowance=False)
    bars.share("backward", "linear", .80, allowance=False)


LAYER_SHAPES = ((16, 128, 512, 8), (64, 16, 512, 8), (8, 512, 512, 8), (32, 128, 384, 12))


def layers(bars):
    bars.title("Layers")
    for B, T, width, heads in LAYER_SHAPES:
        shape = {"B": B, "T": T, "width": width, "heads": heads}
        bars.share("layers", "mha_forward", .82, allowance=False, **shape)
        bars.share("layers", "mha_train", .80, allowance=False, **shape)


def main():
    arguments = sys.argv[1:]
    short = "--short" in arguments
    paths = [a for a in arguments if a != "--short"]
    if not paths or any(p.startswith("-") for p in paths):
        print(__doc__.strip(), file=sys.stderr)
        return 2
    rows = []
    for path in paths:
        with open(path, encoding="utf-8") as file:
            rows += [json.loads(line) for line in file if line.strip()]
    bars = Bars(Measured(rows), short)
    forward(bars)
    mechanism(bars)
    gradients(bars)
    layers(bars)
    print(f"\n{bars.failures} short or not measured" if bars.failures else "\nall hold")
    return 1 if bars.failures else 0


if __name__ == "__main__":
    sys.exit(main())
