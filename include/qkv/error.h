// qkv/error.h: what qkv throws. Every message names the operation, the rule, and the shapes or values involved.
#pragma once

#include <stdexcept>

#include <qkv/export.h>

namespace qkv {

// The base of everything qkv throws on purpose (std::bad_alloc may also pass through).
class QKV_API Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Sizes that do not fit together, or that overflow.
class QKV_API ShapeError : public Error {
 public:
  using Error::Error;
};

// An option that is out of range, ambiguous, or contradicts another.
class QKV_API OptionError : public Error {
 public:
  using Error::Error;
};

// A dtype that the operation does not take.
class QKV_API DtypeError : public Error {
 public:
  using Error::Error;
};

// A file that cannot be read or written, or that is not what it claims to be.
class QKV_API FileError : public Error {
 public:
  using Error::Error;
};

}  // namespace qkv
