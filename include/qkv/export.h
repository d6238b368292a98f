// qkv/export.h: marks what the shared library shows; everything else stays inside.
#pragma once

#define QKV_API __attribute__((visibility("default")))
