// tests/io/safetensors_bytes.h: safetensors files made byte by byte.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <string>

namespace qkv::test {

// A file with this header text and these elements; nothing is padded.
inline std::string safetensors(const std::string& text, const std::string& elements = "") {
  std::string file;
  for (std::size_t i = 0; i < 8; ++i) file += static_cast<char>(text.size() >> (8 * i) & 0xff);
  return file + text + elements;
}

// {member,member}
inline std::string object(std::initializer_list<std::string> members) {
  std::string text;
  for (const std::string& member : members) text.append(text.empty() ? "{" : ",").append(member);
  return text.append(text.empty() ? "{}" : "}");
}

// "name":{...}
inline std::string entry(const std::string& name, const std::string& dtype, const std::string& shape,
                         const std::string& offsets) {
  return "\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":" + shape + ",\"data_offsets\":" + offsets + "}";
}

// The same from byte 0 on.
inline std::string entry(const std::string& name, const std::string& dtype, const std::string& shape,
                         std::size_t bytes) {
  std::string offsets = "[0,";
  offsets += std::to_string(bytes);
  return entry(name, dtype, shape, offsets + "]");
}

}  // namespace qkv::test
