// attention/edit_derivatives.h: what edits of scores make of small changes of them, and of gradients by them: a factor.
#pragma once

#include <cstddef>

#include "attention/block_loop.h"

namespace qkv {

// For the part of a block that a loop has in hand. The scores on which the factors depend are computed again.
template <class T>
class EditDerivatives {
 public:
  // `unedited` holds a block.
  EditDerivatives(const Problem& problem, const Strategy<T>& strategy, Workspace<T>& workspace, BlockLoop<T>& loop,
                  T* unedited)
      : problem_(problem), s_(strategy), w_(workspace), loop_(loop), unedited_(unedited) {}

  // c tanh(s / c). With `sum`, the gradient by c is added to it.
  void through_softcap(int p, T* changes, double* sum);
  // Edit `index` of those given to edit_by. A change of 0 stays 0, whatever the score is.
  void through_your_edit(int p, std::size_t index, T* changes);

 private:
  const Problem& problem_;
  const Strategy<T>& s_;
  Workspace<T>& w_;
  BlockLoop<T>& loop_;
  T* unedited_;
};

}  // namespace qkv
