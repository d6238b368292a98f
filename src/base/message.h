// base/message.h: the texts of errors.
#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <variant>

namespace qkv {

// Foreign text in a message, as printable() writes it, cut after 200 bytes.
struct Quoted {
  std::string_view text;
};

// What a message is made of. One type for everything, so that the many calls of message share one function: a template
// that prints each list of types for itself took 150 kB of the library.
class MessagePart {
 public:
  MessagePart(char character) : value_(character) {}
  MessagePart(double number) : value_(number) {}
  template <std::signed_integral T>
  MessagePart(T number) : value_(static_cast<std::int64_t>(number)) {}
  template <std::unsigned_integral T>
  MessagePart(T number) : value_(static_cast<std::uint64_t>(number)) {}
  MessagePart(const char* text) : value_(std::string_view(text)) {}
  MessagePart(std::string_view text) : value_(text) {}
  MessagePart(const std::string& text) : value_(std::string_view(text)) {}
  MessagePart(Quoted text) : value_(text) {}

 private:
  friend std::string joined(std::initializer_list<MessagePart> parts);
  std::variant<char, double, std::int64_t, std::uint64_t, std::string_view, Quoted> value_;
};

std::string joined(std::initializer_list<MessagePart> parts);

// All arguments, printed one after another: message("attend: H = ", 6, " is no multiple of Hk = ", 4).
template <class... Parts>
std::string message(const Parts&... parts) {
  return joined({MessagePart(parts)...});
}

}  // namespace qkv
