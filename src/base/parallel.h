// base/parallel.h: one lazy pool of threads for the whole process.
#pragma once

#include <cstdint>

#include "base/function_ref.h"

namespace qkv {

// Calls work(i) once for every i in 0 .. count - 1, on the caller's thread and up to threads - 1 others, and returns
// when all have returned. Indices are taken one by one in rising order, so a slow thread takes fewer; the caller always
// takes part, so a busy pool never blocks it. An exception thrown by work is rethrown here after the others stopped; of
// several, that of the lowest index, which is the same one for any number of threads.
// Concurrent and nested calls are fine. After fork the child starts a pool of its own.
void parallel_for(std::int64_t count, int threads, FunctionRef<void(std::int64_t)> work);

// How many threads a call gets that asked for `requested`: itself, or thread_count() for 0.
// Throws OptionError naming `operation` if negative.
int resolve_threads(int requested, const char* operation);

}  // namespace qkv
