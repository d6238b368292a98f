// support/errors.h: errors and their texts.
#pragma once

#include <initializer_list>
#include <string>

#include <gtest/gtest.h>

#include <qkv/error.h>

namespace qkv::test {

// The body throws an E, and its text has every one of these parts.
template <class E, class Body>
void expect_error(Body body, std::initializer_list<std::string> parts) {
  try {
    body();
  } catch (const E& error) {
    for (const std::string& part : parts) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos)
          << "\"" << part << "\" is not in: " << error.what();
    }
    return;
  } catch (const std::exception& error) {
    ADD_FAILURE() << "another type of error: " << error.what();
    return;
  }
  ADD_FAILURE() << "nothing was thrown";
}

}  // namespace qkv::test
