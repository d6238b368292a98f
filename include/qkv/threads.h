// qkv/threads.h: how many threads qkv uses.
#pragma once

#include <qkv/export.h>

namespace qkv {

// How many threads a call may use where its options do not say: at first as many as the machine has processors for
// this process, or QKV_THREADS from the environment. Throws OptionError if that is not a number of threads.
QKV_API int thread_count();
QKV_API void set_thread_count(int threads);  // throws OptionError below 1

}  // namespace qkv
