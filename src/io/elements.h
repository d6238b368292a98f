// io/elements.h: the elements of arrays on their way between files and memory, where they are the same bytes.
#pragma once

#include <qkv/tensor.h>

#include "io/file_writer.h"

namespace qkv {

// Of a dense view of booleans: throws FileError with the reason only where a byte is neither 0 nor 1.
void require_booleans(const View& view);

std::int64_t bytes_of(const View& array);  // its elements, wherever they are

// Row-major, whatever the strides.
void write_elements(FileWriter& file, const View& array);

}  // namespace qkv
