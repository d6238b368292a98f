// attention/distance_gradients.h: the way back through distances between queries and keys.
#pragma once

#include "attention/gradient_forms.h"

namespace qkv {

// Gives a way by distance its product width, and queries and keys about a centre; see prepare_products.
void prepare_distances(const Problem& problem, Scoring& scoring, ScoreWay& way);

// Gradients of queries, keys and bandwidths of a kernel.
void finish_distances(const ProductsToFinish& products);

}  // namespace qkv
