#!/usr/bin/env python3
# bench/versus.py: qkv against another library, in turns, on the same shapes.
"""Measures PyTorch or ONNX Runtime and qkv in turns, one thread each, by CPU time, and prints peer / qkv.

Each side is a process of its own that stays alive and answers one request after the other, so that only one of them
works at any time; the best of several rounds counts. Both check their outputs against double precision before they
are timed. The peer is installed into a virtual environment under build/ when it is not there yet.
"""
import argparse
import datetime
import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# For each peer: what to install, as arguments of one `pip install` after the other, and how to see that it is there.
PEERS = {
    "torch": {
        "install": [["torch==2.13.0", "numpy"]],
        "version": "import numpy, torch; assert torch.__version__.split('+')[0] == '2.13.0'; print(torch.__version__)",
    },
    "onnxruntime": {
        "install": [["onnxruntime", "onnx", "numpy"]],
        "version": "import numpy, onnx, onnxruntime; print(onnxruntime.__version__)",
    },
}

LENGTHS = [16, 32, 64, 128, 512, 1024, 2048]
WIDTHS = [64, 128]
HEADS = 8
# The names of qkv bench; the peers have the same. bias is a float mask and keep a bool mask, both shared by all heads.
CASES = ["plain", "causal", "bias", "keep"]
# Forward and backward together: through qkv's tape, and through PyTorch's. Of additive attention, as the textbook's module
# has it, T queries and 4 T keys, D wide; gru and linear have one size, which both sides know.
TRAINING_LENGTHS = [64, 128, 256, 512, 1024, 2048]
TRAINING = [
    ("additive_forward", {"H": 4, "T": 64, "D": 128}),
    ("additive", {"H": 4, "T": 64, "D": 128}),
    ("gru", {"H": 1, "T": 1, "D": 1}),
    ("linear", {"H": 1, "T": 1, "D": 1}),
]
# Self-attention as a layer: B sequences of T tokens, D wide, with H heads.
LAYERS = [
    {"B": 16, "H": 8, "T": 128, "D": 512},
    {"B": 64, "H": 8, "T": 16, "D": 512},
    {"B": 8, "H": 8, "T": 512, "D": 512},
    {"B": 32, "H": 12, "T": 128, "D": 384},
]
# One query for each head, and 128 MB of keys and values.
DECODE = [{"H": 16, "T": 16384, "D": 64}, {"H": 8, "T": 16384, "D": 128}]


class Failure(Exception):
    pass


class Side:
    """A process that answers requests, one JSON line for each line that it reads."""

    def __init__(self, name: str, command: list[str]):
        self.name = name
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "QKV_THREADS": "1"}
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment, cwd=ROOT
        )

    def ask(self, request: str) -> dict:
        try:
            self.process.stdin.write(request + "\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        except BrokenPipeError:
            line = ""
        answer = json.loads(line) if line else {"error": "it ended without an answer"}
        if "error" in answer:
            raise Failure(f"{self.name}: {request}: {answer['error']}")
        return answer

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def version_of(python: Path, peer: str) -> str | None:
    """The peer's version, or None where it is not installed, or not as wanted."""
    if not python.exists():
        return None
    asked = subprocess.run([python, "-c", PEERS[peer]["version"]], capture_output=True, text=True)
    return asked.stdout.strip() if asked.returncode == 0 else None


def set_up(peer: str) -> tuple[Path, str]:
    """The python of the peer's virtual environment, and the peer's version."""
    environment = ROOT / "build" / f"venv-{peer}"
    python = environment / "bin" / "python"
    version = version_of(python, peer)
    if version is None:
        print(f"versus: installing {peer} into {environment.relative_to(ROOT)}", file=sys.stderr)
        commands = [[sys.executable, "-m", "venv", environment]]
        commands += [[python, "-m", "pip", "install", "--quiet", *words] for words in PEERS[peer]["install"]]
        for command in commands:
            if subprocess.run(command, stdout=sys.stderr).returncode != 0:
                raise Failure(
                    f"`{' '.join(map(str, command))}` failed"
                    " (on Debian, making a virtual environment needs: apt install python3-venv)"
                )
        version = version_of(python, peer)
    if version is None:
        raise Failure(f"{peer} was installed into {environment} but cannot be imported there")
    return python, version


def processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(": ", 1)[1]
    return "unknown"


def sizes(peer: str) -> list[tuple[str, str, str, dict]]:
    """What is compared: the bench and the case to ask for, the name to print, and the extents."""
    rows = []
    for case in CASES:
        for D in WIDTHS:
            rows += [("attend", case, case, {"H": HEADS, "T": T, "D": D}) for T in LENGTHS]
    rows += [("decode", "float32", "decode", extents) for extents in DECODE]
    if peer != "torch":
        return rows
    for case in ("plain", "causal"):
        for D in WIDTHS:
            rows += [("training", case, f"{case}+backward", {"H": HEADS, "T": T, "D": D}) for T in TRAINING_LENGTHS]
    rows += [("training", case, case, extents) for case, extents in TRAINING]
    rows += [("layers", case, case, extents) for case in ("mha_forward", "mha_train") for extents in LAYERS]
    return [*rows, ("layers", "mha_additive", "mha_additive", {"B": 4, "H": 4, "T": 128, "D": 256})]


def compare(sides: list[Side], request: str, rounds: int) -> tuple[dict, dict]:
    """The best answers of peer and qkv. The order changes from round to round."""
    best = [{"ms": float("inf")}, {"ms": float("inf")}]
    for turn in range(rounds):
        for i in (0, 1) if turn % 2 == 0 else (1, 0):
            answer = sides[i].ask(request)
            if answer["ms"] < best[i]["ms"]:
                best[i] = answer
    return best[0], best[1]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("peer", choices=sorted(PEERS))
    parser.add_argument("--json", action="store_true", help="print JSON lines instead of a table")
    parser.add_argument("--qkv", type=Path, default=ROOT / "build" / "release" / "qkv", help="the command to measure")
    parser.add_argument("--quick", action="store_true", help="fewer and shorter rounds")
    parser.add_argument("--case", choices=[*CASES, "decode", "backward", "layers"], help="only this case")
    arguments = parser.parse_args()

    if not arguments.qkv.exists():
        raise Failure(f"{arguments.qkv} is not there; `./dev build` makes it, --qkv names another")
    python, version = set_up(arguments.peer)
    rounds, seconds = (3, 0.04) if arguments.quick else (6, 0.15)
    sides = [
        Side(arguments.peer, [str(python), str(ROOT / "bench" / "peers" / f"{arguments.peer}_peer.py")]),
        Side("qkv", [str(arguments.qkv.resolve()), "bench", "--serve", "--threads", "1"]),
    ]
    if not arguments.json:
        print(f"{processor()}, {arguments.peer} {version}, one thread each, best CPU time\n")
        print(f"{'case':18}{'shape':24}{arguments.peer + ' ms':>16}{'qkv ms':>12}{'ratio':>8}  way of {arguments.peer}")
    for bench, case, name, extents in sizes(arguments.peer):
        if arguments.case not in (None, name, {"training": "backward", "layers": "layers"}.get(bench)):
            continue
        words = [f"{letter}={extent}" for letter, extent in extents.items()]
        peer, qkv = compare(sides, " ".join([bench, case, *words, f"seconds={seconds}"]), rounds)
        ratio = peer["ms"] / qkv["ms"]
        if arguments.json:
            H, T, D = extents["H"], extents["T"], extents["D"]
            Tq = 1 if bench == "decode" else T
            shape = {"B": 1, "H": H, "Hk": H, "Tq": Tq, "Tk": T, "D": D, "Dv": D}
            if bench == "layers":
                shape = {"B": extents["B"], "T": T, "width": D, "heads": H}
            row = {
                "versus": arguments.peer,
                "version": version,
                "case": name,
                "shape": shape,
                "threads": 1,
                "peer_ms": float(f"{peer['ms']:.5g}"),
                "qkv_ms": float(f"{qkv['ms']:.5g}"),
                "ratio": float(f"{ratio:.4g}"),
                "way": peer["way"],
                "cpu": processor(),
                "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
            }
            print(json.dumps(row), flush=True)
        else:
            shape = " ".join(words)
            print(f"{name:18}{shape:24}{peer['ms']:16.4f}{qkv['ms']:12.4f}{ratio:8.2f}  {peer['way']}", flush=True)
    for side in sides:
        side.close()
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Failure as failure:
        print(f"versus: {failure}", file=sys.stderr)
        sys.exit(1)
