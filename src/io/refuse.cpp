// io/refuse.cpp: what is wrong with a file.
#include "io/refuse.h"

#include <qkv/error.h>

namespace qkv {

void refuse_joined(std::initializer_list<MessagePart> reason) { throw FileError(joined(reason)); }

}  // namespace qkv
