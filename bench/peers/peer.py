# bench/peers/peer.py: what the peers have in common: data, the check against float64, the clock, the loop of requests.
#
# A peer answers the same requests as `qkv bench --serve` (see bench/run.h), one JSON line each:
#   attend causal H=8 T=512 D=64 seconds=0.1      ->  {"ms": 1.234, "way": "scaled_dot_product_attention"}
import json
import sys
import time
from dataclasses import dataclass
from typing import Callable

import numpy as np

ROWS_CHECKED = 16
TOLERANCE = 1e-5  # for averages of numbers up to 1 in size, as in bench/check.cpp
LEAST_SECONDS = 1e-3  # of a timed piece, as in bench/timing.h


@dataclass
class Problem:
    """One shape of one case: q [1, H, Tq, D], k and v [1, H, Tk, D], and a mask [Tq, Tk] or none."""

    case: str
    q: np.ndarray
    k: np.ndarray
    v: np.ndarray
    bias: np.ndarray | None = None
    keep: np.ndarray | None = None

    @property
    def is_causal(self) -> bool:
        return self.case == "causal"


@dataclass
class Way:
    """One way in which the peer can compute a problem."""

    name: str
    call: Callable[[], None]
    output: Callable[[], np.ndarray]  # [1, H, Tq, D], of the last call
    best_ms: float = float("inf")


def make_problem(what: str, case: str, H: int, T: int, D: int) -> Problem:
    random = np.random.default_rng(1)

    def uniform(*shape, size=1.0):
        return ((random.random(shape, dtype=np.float32) * 2 - 1) * np.float32(size)).astype(np.float32)

    Tq = 1 if what == "decode" else T
    problem = Problem(case, uniform(1, H, Tq, D, size=3), uniform(1, H, T, D), uniform(1, H, T, D))
    if case == "bias":
        problem.bias = uniform(Tq, T)
    if case == "keep":
        problem.keep = random.random((Tq, T)) < 0.75
    return problem


def check(problem: Problem, way: Way) -> None:
    """Compares some rows with float64; a wrong output ends the program."""
    way.call()
    output = way.output()
    q, k, v = (x[0].astype(np.float64) for x in (problem.q, problem.k, problem.v))
    Tq, Tk = q.shape[1], k.shape[1]
    rows = np.unique(np.linspace(0, Tq - 1, ROWS_CHECKED).astype(int))
    scores = q[:, rows] @ k.swapaxes(1, 2) / np.sqrt(q.shape[2])
    if problem.bias is not None:
        scores += problem.bias[rows]
    if problem.keep is not None:
        scores[:, ~problem.keep[rows]] = -np.inf
    if problem.is_causal:
        scores[:, np.arange(Tk)[None, :] > rows[:, None]] = -np.inf
    weights = np.exp(scores - scores.max(axis=2, keepdims=True))
    expected = weights / weights.sum(axis=2, keepdims=True) @ v
    error = np.abs(output[0][:, rows] - expected).max()
    if not error <= TOLERANCE:
        raise RuntimeError(f"{way.name} is off by {error:.2g} for {problem.case} {problem.q.shape}")


def time_way(way: Way, seconds: float) -> None:
    """CPU time of the whole process, so that work on other threads would count."""
    repeats = 1
    end = time.monotonic() + seconds
    while True:
        start = time.process_time_ns()
        for _ in range(repeats):
            way.call()
        spent = (time.process_time_ns() - start) * 1e-9
        if spent < LEAST_SECONDS:
            repeats *= 2
            continue
        way.best_ms = min(way.best_ms, spent / repeats * 1e3)
        if time.monotonic() >= end:
            return


def serve(make_ways: Callable[[Problem], list[Way]], make_training: Callable | None = None) -> None:
    """Answers requests until the input ends. The last one stays prepared, with the ways that are worth timing.

    make_training(case, B, H, T, D) gives the ways of forward and backward together, and of layers, and checks them itself."""
    prepared, ways = None, []
    for line in sys.stdin:
        what, case, *numbers = line.split()
        given = dict(number.split("=") for number in numbers)
        B, H, T, D = (int(given.get(letter, 1)) for letter in "BHTD")
        request = (what, case, B, H, T, D)
        if request != prepared:
            if what in ("training", "layers"):
                ways = make_training(case, B, H, T, D)
            else:
                problem = make_problem(what, case, H, T, D)
                ways = make_ways(problem)
                for way in ways:
                    check(problem, way)
            prepared = request
        for way in ways:
            time_way(way, float(given["seconds"]))
        best = min(ways, key=lambda way: way.best_ms)
        ways = [way for way in ways if way.best_ms <= 1.5 * best.best_ms]
        print(json.dumps({"ms": best.best_ms, "way": best.name}), flush=True)
