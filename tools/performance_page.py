#!/usr/bin/env python3
# tools/performance_page.py: makes docs/performance.md from what `qkv bench --json` and `bench/versus.py --json` print.
"""Usage: tools/performance_page.py measured.jsonl... > docs/performance.md

Takes any number of files of JSON lines, of several instruction sets, numbers of threads and peers, in any order. Where
something was measured more than once, the best counts, as within one run. A line that reports a wrong output ends the
program with exit code 1 and no page.
"""
import json
import sys
from pathlib import Path

ISAS = ["avx512", "avx2", "baseline"]
CASES = ["plain", "causal", "lengths", "window", "alibi", "bias", "keep", "decode"]
COMMON_WIDTHS = [64, 128]

INTRODUCTION = """\
# How fast qkv is

<!-- Made by tools/performance_page.py; edit that instead. -->

Measured with `qkv bench --json` and `bench/versus.py --json`, which anyone can run. Every output was compared with
double precision before it was timed; times are the best of many. One thread is timed by its CPU time, several threads
by the wall. A share is of the highest rate that the same core reached in turns with the measurement: multiply-adds on
registers alone (`attend`, `gemm`), or reading the same memory in 1, 2, 4 or 8 streams (`decode`). Only useful work
counts: a causal mask halves it, padding is none of it.
"""

CASE_TEXTS = """\
`lengths`: a padded batch, sequences of T, 7/8 T, 3/4 T and 1/2 T. `window`: T/4 keys to either side. `bias` and `keep`:
a matrix of numbers or of booleans, shared by all heads. B · H = 8 up to T = 512, 2 up to 2048, 1 at 4096;
for `bias` and `keep` 8 throughout.
"""

VERSUS_TEXT = """\
One thread each, measured in turns: its time over that of qkv, so more than 1
means that qkv is faster. B = 1, H = 8. `decode` has one query for each head and 128 MB of keys and values.
"""


class Failure(Exception):
    pass


def read(paths: list[str]) -> list[dict]:
    lines = []
    for path in paths:
        for number, text in enumerate(Path(path).read_text().splitlines(), 1):
            try:
                line = json.loads(text)
            except json.JSONDecodeError as error:
                raise Failure(f"{path}:{number}: not JSON: {error}") from None
            if "error" in line:
                raise Failure(f"{path}:{number}: {line['case']} {line['shape']} was wrong: {line['error']}")
            lines.append(line)
    return lines


def score(line: dict) -> float:
    """What is best where something was measured more than once."""
    for name in ("share_of_peak", "share_of_bandwidth", "ratio"):
        if name in line:
            return line[name]
    raise Failure(f"a line is from neither qkv bench nor versus.py: {line}")


def best_of_each(lines: list[dict]) -> list[dict]:
    best = {}
    for line in lines:
        key = (
            line.get("bench", line.get("versus")),
            line["case"],
            json.dumps(line["shape"]),
            line["threads"],
            line.get("isa"),
            line["cpu"],
        )
        if key not in best or score(line) > score(best[key]):
            best[key] = line
    return list(best.values())


def table(head: list[str], rows: list[list[str]]) -> str:
    ruler = ["---"] + ["--:"] * (len(head) - 1)
    return "\n".join("| " + " | ".join(row) + " |" for row in [head, ruler, *rows]) + "\n"


def by_length(lines: list[dict], value) -> str:
    """One row for each case and width, one column for each length."""
    lengths = sorted({line["shape"]["Tk"] for line in lines})
    cells = {(line["case"], line["shape"]["D"], line["shape"]["Tk"]): value(line) for line in lines}
    rows = []
    for case in CASES:
        for D in sorted({D for name, D, _ in cells if name == case}):
            rows.append([f"{case}, D = {D}"] + [cells.get((case, D, T), "") for T in lengths])
    return table(["T ="] + [str(T) for T in lengths], rows)


def percent(share: float) -> str:
    return f"{100 * share:.0f}"


def attend_section(lines: list[dict]) -> str:
    common = [line for line in lines if line["shape"]["D"] in COMMON_WIDTHS]
    others = [line for line in lines if line["shape"]["D"] not in COMMON_WIDTHS]
    peak = max(line["peak_gflops"] for line in lines)
    text = f"### attend\n\nShare of the peak of {peak:.0f} GFLOP/s, in percent.\n\n"
    text += by_length(common, lambda line: percent(line["share_of_peak"])) + "\n" + CASE_TEXTS
    compared = [line for line in common if "vs_plain" in line]
    if compared:
        text += "\nThe same over that of `plain` at the same T and D, in percent.\n\n"
        text += by_length(compared, lambda line: percent(line["vs_plain"]))
    for T in sorted({line["shape"]["Tk"] for line in others}):
        plain = [line for line in lines if line["case"] == "plain" and line["shape"]["Tk"] == T]
        plain.sort(key=lambda line: line["shape"]["D"])
        text += f"\nOther widths, `plain`, T = {T}: share of the peak, in percent.\n\n"
        text += table(
            ["D ="] + [str(line["shape"]["D"]) for line in plain],
            [["plain"] + [percent(line["share_of_peak"]) for line in plain]],
        )
    return text


# Which case each case of decode is compared with by its time.
DECODE_PAIRS = {"float16": "float32", "grouped": "separate"}


def decode_section(lines: list[dict]) -> str:
    peak = max(line["peak_gb_per_s"] for line in lines)
    text = f"### decode\n\nOne query for each head; memory reads at {peak:.1f} GB/s.\n\n"

    def size(line):
        return line["shape"]["Tk"], line["shape"]["D"], line["shape"]["H"]

    times = {(line["case"], size(line)): line["ms"] for line in lines}
    rows = []
    for line in sorted(lines, key=size):
        shape = line["shape"]
        other = DECODE_PAIRS.get(line["case"])
        other_ms = times.get((other, size(line)))
        faster = f"{other_ms / line['ms']:.1f} × {other}" if other_ms else ""
        extents = " ".join(f"{letter} = {shape[letter]}" for letter in ("H", "Hk", "Tk", "D"))
        share = percent(line["share_of_bandwidth"])
        rows.append([f"{line['case']}, {extents}", f"{line['ms']:.2f}", f"{line['gb_per_s']:.1f}", share, faster])
    return text + table(["", "ms", "GB/s", "share, %", "as fast as"], rows)


def gemm_section(lines: list[dict]) -> str:
    peak = max(line["peak_gflops"] for line in lines)
    text = f"### gemm\n\nM × K times K × N; the peak is {peak:.0f} GFLOP/s. `packed`: the second factor was packed\n"
    text += "beforehand; otherwise it is packed within the time.\n\n"
    rows = []
    for line in lines:
        shape = line["shape"]
        extents = f"{line['case']}, {shape['M']} × {shape['K']} × {shape['N']}"
        rows.append([extents, f"{line['ms']:.3f}", f"{line['gflops']:.1f}", percent(line["share_of_peak"])])
    return text + table(["", "ms", "GFLOP/s", "share, %"], rows)


def used_columns(head: list[str], rows: list[list[str]]) -> str:
    """The table without columns that nobody fills."""
    used = [i for i in range(len(head)) if i == 0 or any(row[i] for row in rows)]
    return table([head[i] for i in used], [[row[i] for i in used] for row in rows])


def shape_text(line: dict) -> str:
    return ", ".join(f"{name} = {extent}" for name, extent in line["shape"].items() if name not in ("Hk", "Dv"))


def compared_section(name: str, introduction: str):
    """Of a bench whose cases are compared with one of them."""

    def section(lines: list[dict]) -> str:
        text = f"### {name}\n\n{introduction}\n\n"
        rows = []
        for line in lines:
            shape = line["shape"]
            hidden = f", E = {shape['E']}" if "E" in shape else ""
            against = next((percent(value) for key, value in line.items() if key.startswith("vs_")), "")
            unit = f"{line['ns_per_unit']:.3f}" if "ns_per_unit" in line else ""
            extents = f"{line['case']}, T = {shape['Tk']}, D = {shape['D']}{hidden}"
            share = line.get("share_of_peak", line.get("share_of_bandwidth"))
            rows.append([extents, f"{line['ms']:.3g}", percent(share), against, unit])
        head = ["", "ms", "share, %", "of the first, %", "ns a unit"]
        return text + used_columns(head, rows)

    return section


def share_section(name: str, introduction: str):
    """Of a bench whose cases have shapes of their own."""

    def section(lines: list[dict]) -> str:
        peak = max(line["peak_gflops"] for line in lines)
        text = f"### {name}\n\n{introduction.format(peak=peak)}\n\n"
        rows = []
        for line in lines:
            unit = f"{line['ns_per_unit']:.3f}" if "ns_per_unit" in line else ""
            rows.append([f"{line['case']}, {shape_text(line)}", f"{line['ms']:.3g}", percent(line["share_of_peak"]), unit])
        head = ["", "ms", "share, %", "ns a unit"]
        return text + used_columns(head, rows)

    return section


SECTIONS = {
    "attend": attend_section,
    "decode": decode_section,
    "gemm": gemm_section,
    "scores": compared_section(
        "scores",
        "Preparing queries and keys is part of the time; bilinear's product with M counts as work, and so do additive's\n"
        "projections. `ns a unit`: per (query, key, hidden unit).",
    ),
    "weighings": compared_section("weighings", "Of scaled dot products; `top_k` keeps 8, and pools no others."),
    "statistics": compared_section("statistics", "`none` is softmax alone; `top` keeps 8, `rows` 4 rows of weights."),
    "cache": compared_section("cache", "`append` adds one token to a cache of Tk, of which a window keeps so many."),
    "backward": share_section(
        "backward",
        "The backward pass alone of attention, of `gru` and `linear` with the forward pass; the peak is {peak:.0f}\n"
        "GFLOP/s. `ns a unit`: per (query, key, hidden unit).",
    ),
    "layers": share_section(
        "layers",
        "Multi-head self-attention with its projections, forward and in training; the peak is {peak:.0f} GFLOP/s.\n"
        "`mha_additive` is training with additive scores, counted as if they were dot products.",
    ),
}


def bench_chapters(lines: list[dict]) -> str:
    text = ""

    def chapter(line):
        return ISAS.index(line["isa"]), line["threads"], line["cpu"]

    for isa, threads, cpu in sorted({chapter(line) for line in lines}):
        chosen = [line for line in lines if chapter(line) == (isa, threads, cpu)]
        count = "one thread" if threads == 1 else f"{threads} threads"
        text += f"\n## {ISAS[isa]}, {count}\n\n{cpu}, {dates(chosen)}.\n"
        for bench, section in SECTIONS.items():
            of_bench = [line for line in chosen if line["bench"] == bench]
            if of_bench:
                text += "\n" + section(of_bench)
    return text


def versus_chapters(lines: list[dict]) -> str:
    text = ""
    for peer, cpu in sorted({(line["versus"], line["cpu"]) for line in lines}):
        chosen = [line for line in lines if (line["versus"], line["cpu"]) == (peer, cpu)]
        versions = ", ".join(sorted({line["version"] for line in chosen}))
        text += f"\n## Against {peer} {versions}\n\n{cpu}, {dates(chosen)}. {VERSUS_TEXT}\n"
        training = [line for line in chosen if line["case"] not in CASES]
        attend = [line for line in chosen if line["case"] in CASES and line["case"] != "decode"]
        decode = [line for line in chosen if line["case"] == "decode"]
        for part in filter(None, [attend, decode]):
            text += by_length(part, lambda line: f"{line['ratio']:.2f}") + "\n"
        if training:
            text += "Forward and backward together, but for `additive_forward` and `mha_forward`:\n\n"
            rows = []
            for line in training:
                shape = line["shape"]
                if "Tk" not in shape:
                    size = f", {shape_text(line)}"
                else:
                    size = f", T = {shape['Tk']}, D = {shape['D']}" if shape["Tk"] > 1 else ""
                times = [f"{line['peer_ms']:.3g}", f"{line['qkv_ms']:.3g}", f"{line['ratio']:.2f}"]
                rows.append([line["case"] + size, *times])
            text += table(["", f"{peer}, ms", "qkv, ms", "ratio"], rows) + "\n"
        ways = sorted({line["way"] for line in chosen if line not in training})
        if len(ways) > 1:
            text += f"The fastest way of {peer} at each shape: one of {', '.join(ways)}.\n"
    return text


def dates(lines: list[dict]) -> str:
    days = sorted({line["date"] for line in lines})
    return days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"


def page(lines: list[dict]) -> str:
    best = best_of_each(lines)
    measured = [line for line in best if "bench" in line]
    compared = [line for line in best if "versus" in line]
    text = INTRODUCTION + bench_chapters(measured) + versus_chapters(compared)
    return text.rstrip("\n") + "\n"


def main() -> int:
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        print(__doc__, file=sys.stderr)
        return 2
    try:
        sys.stdout.write(page(read(sys.argv[1:])))
    except (Failure, OSError) as failure:
        print(f"performance_page: {failure}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
