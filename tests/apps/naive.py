"""tests/apps/naive.py: attention as the formula has it, one pair at a time, in Python's float64."""
import math
from dataclasses import dataclass
from itertools import product

from npy import Array


@dataclass
class Answers:
    out: Array
    lse: Array
    weights: Array
    scores: Array  # after bias and exclusion


def attend(q, k, v, sees=lambda b, h, i, j: True, added=lambda b, h, i, j: 0.0, scale=None, softcap=0.0,
           on_empty="zero"):
    """q [B, H, Tq, D], k [B, Hk, Tk, D], v [B, Hk, Tk, Dv]."""
    (B, H, Tq, D), (_, Hk, Tk, _), Dv = q.shape, k.shape, v.shape[3]
    scale = 1 / math.sqrt(D) if scale is None else scale
    answers = Answers(*(Array(shape, []) for shape in [(B, H, Tq, Dv), (B, H, Tq), (B, H, Tq, Tk), (B, H, Tq, Tk)]))
    for b, h, i in product(range(B), range(H), range(Tq)):
        hk = h // (H // Hk)
        scores = []
        for j in range(Tk):
            score = scale * sum(q.at(b, h, i, d) * k.at(b, hk, j, d) for d in range(D))
            if softcap:
                score = softcap * math.tanh(score / softcap)
            scores.append(score + added(b, h, i, j) if sees(b, h, i, j) else -math.inf)
        largest = max(scores)
        if largest == -math.inf:
            lse = -math.inf
            weights = [{"zero": 0.0, "uniform": 1 / Tk, "nan": math.nan}[on_empty]] * Tk
        else:
            lse = largest + math.log(sum(math.exp(s - largest) for s in scores))
            weights = [math.exp(s - lse) for s in scores]
        answers.scores.values += scores
        answers.weights.values += weights
        answers.lse.values.append(lse)
        answers.out.values += [sum(weights[j] * v.at(b, hk, j, d) for j in range(Tk)) for d in range(Dv)]
    return answers
