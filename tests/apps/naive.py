"""tests/apps/naive.py: attention as the formulas have it, one pair at a time, in Python's float64."""
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
    entropy: Array
    effective: Array
    mass: Array

    def rows(self, chosen):
        """The weights of some queries."""
        (B, H, Tq, Tk) = self.weights.shape
        values = [self.weights.at(b, h, i, j) for b, h, i, j in product(range(B), range(H), chosen, range(Tk))]
        return Array((B, H, len(chosen), Tk), values)

    def top(self, count):
        """The weights and the places of each query's best keys."""
        (B, H, Tq, Tk) = self.weights.shape
        weights, places = Array((B, H, Tq, count), []), Array((B, H, Tq, count), [], "<i8")
        for b, h, i in product(range(B), range(H), range(Tq)):
            seen = [j for j in best_first([self.scores.at(b, h, i, j) for j in range(Tk)])
                    if self.scores.at(b, h, i, j) > -math.inf][:count]
            missing = count - len(seen)
            weights.values += [self.weights.at(b, h, i, j) for j in seen] + [0.0] * missing
            places.values += seen + [-1] * missing
        return weights, places


# Scores: what a key k is to a query q of head h.

def dot(scale=1.0):
    return lambda h, q, k: scale * inner(q, k)


def scaled_dot(h, q, k):
    return inner(q, k) / math.sqrt(len(q))


def cosine(h, q, k):
    lengths = math.sqrt(inner(q, q) * inner(k, k))
    return inner(q, k) / lengths if lengths else 0.0


def bilinear(M):
    """M [Dq, Dk] or [H, Dq, Dk]."""
    return lambda h, q, k: sum(q[a] * M.at(h, a, b) * k[b] for a in range(len(q)) for b in range(len(k)))


def additive(Wq, Wk, w):
    """Wq [E, Dq], Wk [E, Dk], w [E], any of them with a leading H."""
    def score(h, q, k):
        return sum(w.at(h, e) * math.tanh(sum(Wq.at(h, e, d) * q[d] for d in range(len(q))) +
                                          sum(Wk.at(h, e, d) * k[d] for d in range(len(k))))
                   for e in range(w.shape[-1]))
    return score


# Kernels of the distance u.
KERNELS = {
    "gaussian": lambda u: math.exp(-u * u / 2),
    "laplace": lambda u: math.exp(-u),
    "boxcar": lambda u: 1.0 if u <= 1 else 0.0,
    "triangular": lambda u: max(0.0, 1 - u),
    "epanechnikov": lambda u: 0.75 * max(0.0, 1 - u * u),
    "constant": lambda u: 1.0,
}


def kernel(name, bandwidth=1.0):
    """bandwidth: a number, or an Array [D], [1], [H, D] or [H, 1]. The score is the logarithm."""
    sigma = bandwidth.at if isinstance(bandwidth, Array) else lambda h, d: bandwidth

    def score(h, q, k):
        u = math.sqrt(sum(((q[d] - k[d]) / sigma(h, d)) ** 2 for d in range(len(q))))
        value = KERNELS[name](u)
        return math.log(value) if value > 0 else -math.inf
    score.is_kernel = True
    return score


def inner(a, b):
    return sum(x * y for x, y in zip(a, b))


def best_first(scores):
    return sorted(range(len(scores)), key=lambda j: -scores[j])  # sorting is stable: the first among equals comes first


# Weighings: the weights of the keys that are seen, from their scores; and the log-sum-exp, where there is one.
# None is a query that finds nothing.

def softmax(scores, is_kernel):
    largest = max(scores)
    lse = largest + math.log(sum(math.exp(s - largest) for s in scores))
    return [math.exp(s - lse) for s in scores], lse


def normalize(scores, is_kernel):
    if is_kernel:
        return softmax(scores, is_kernel)
    total = sum(scores)
    return ([s / total for s in scores], math.log(total) if total > 0 else math.nan) if total else (None, -math.inf)


def raw(scores, is_kernel):
    return [math.exp(s) for s in scores] if is_kernel else scores, math.nan


def hard(minimum=-math.inf):
    def weigh(scores, is_kernel):
        best = best_first(scores)[0]
        return [float(j == best) for j in range(len(scores))] if scores[best] >= minimum else None, math.nan
    return weigh


def uniform(scores, is_kernel):
    return [1 / len(scores)] * len(scores), math.nan


def top_k(k):
    def weigh(scores, is_kernel):
        chosen = best_first(scores)[:k]
        weights, lse = softmax([scores[j] for j in chosen], is_kernel)
        return [weights[chosen.index(j)] if j in chosen else 0.0 for j in range(len(scores))], lse
    return weigh


def attend(q, k, v, sees=lambda b, h, i, j: True, added=lambda b, h, i, j: 0.0, score=scaled_dot, softcap=0.0,
           temperature=1.0, weigh=softmax, on_empty="zero"):
    """q [B, H, Tq, Dq], k [B, Hk, Tk, Dk], v [B, Hk, Tk, Dv]."""
    (B, H, Tq, Dq), (_, Hk, Tk, Dk), Dv = q.shape, k.shape, v.shape[3]
    is_kernel = hasattr(score, "is_kernel")
    rows, pairs = (B, H, Tq), (B, H, Tq, Tk)
    answers = Answers(*(Array(shape, []) for shape in [(B, H, Tq, Dv), rows, pairs, pairs, rows, rows, (B, H, Tk)]))
    for b, h, i in product(range(B), range(H), range(Tq)):
        hk = h // (H // Hk)
        query, scores = [q.at(b, h, i, d) for d in range(Dq)], []
        for j in range(Tk):
            s = score(h, query, [k.at(b, hk, j, d) for d in range(Dk)])
            if softcap:
                s = softcap * math.tanh(s / softcap)
            scores.append((s + added(b, h, i, j)) / temperature if sees(b, h, i, j) else -math.inf)
        # Without weight, a key outside a compact kernel is as good as excluded: raw gives it 0 as well.
        seen = [j for j in range(Tk) if sees(b, h, i, j) and scores[j] > -math.inf]
        found, lse = weigh([scores[j] for j in seen], is_kernel) if seen else (None, -math.inf)
        if found is None:
            lse = -math.inf
            weights = [{"zero": 0.0, "uniform": 1 / Tk, "nan": math.nan}[on_empty]] * Tk
        else:
            weights = [found[seen.index(j)] if j in seen else 0.0 for j in range(Tk)]
        entropy = -sum(w * math.log(w) for w in weights if w > 0) if found is not None else 0.0
        answers.scores.values += scores
        answers.weights.values += weights
        answers.lse.values.append(lse)
        answers.entropy.values.append(entropy)
        answers.effective.values.append(math.exp(entropy) if found is not None else 0.0)
        answers.out.values += [sum(weights[j] * v.at(b, hk, j, d) for j in range(Tk)) for d in range(Dv)]
    answers.mass.values = [sum(answers.weights.at(b, h, i, j) for i in range(Tq))
                           for b, h, j in product(range(B), range(H), range(Tk))]
    return answers
