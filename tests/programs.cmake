# tests/programs.cmake: every folder of tests/ that has a *_test.cpp becomes one program. Fuzzers live in tests/fuzz.

file(GLOB sources CONFIGURE_DEPENDS support/*.cpp)
list(FILTER sources EXCLUDE REGEX "_test\\.cpp$")
add_library(qkv_test_support STATIC ${sources})
qkv_single_threaded(${sources})
target_include_directories(qkv_test_support PUBLIC ${CMAKE_CURRENT_SOURCE_DIR})
target_link_libraries(
  qkv_test_support
  PRIVATE qkv_settings
  PUBLIC qkv_inside qkv_reference GTest::gtest)

# The folder that takes longest is run in parts, so that several processors share it.
set(shards_of_attention 4)

file(GLOB_RECURSE sources RELATIVE ${CMAKE_CURRENT_SOURCE_DIR} CONFIGURE_DEPENDS *_test.cpp)
set(folders ${sources})
list(TRANSFORM folders REPLACE "/[^/]*$" "")
list(REMOVE_DUPLICATES folders)
foreach(folder IN LISTS folders)
  string(REPLACE "/" "_" program ${folder}_tests)
  # A folder's other files are helpers of its tests; those of reference/ and support/ are in the libraries above.
  file(GLOB sources CONFIGURE_DEPENDS ${folder}/*.cpp)
  if(folder MATCHES "^(reference|support)$")
    list(FILTER sources INCLUDE REGEX "_test\\.cpp$")
  endif()
  add_executable(${program} ${sources})
  target_link_libraries(${program} PRIVATE qkv_settings qkv_test_support GTest::gtest_main)
  # What tests compute with is in the libraries; they themselves are many and need not be fast. With headers that are
  # read once for all of them, this is half of the time that the tests take to build.
  qkv_quick_to_build(${program})
  if(NOT with_headers)
    set(with_headers ${program})
    target_precompile_headers(${program} PRIVATE <gtest/gtest.h> <algorithm> <cmath> <string> <vector> <qkv/qkv.h>)
  else()
    target_precompile_headers(${program} REUSE_FROM ${with_headers})
  endif()
  if(DEFINED shards_of_${folder})
    foreach(shard RANGE 1 ${shards_of_${folder}})
      math(EXPR index "${shard} - 1")
      qkv_add_test(${folder}.${shard} ${program})
      set_tests_properties(${folder}.${shard} PROPERTIES ENVIRONMENT
                           "GTEST_TOTAL_SHARDS=${shards_of_${folder}};GTEST_SHARD_INDEX=${index}")
    endforeach()
  else()
    qkv_add_test(${folder} ${program})
  endif()
endforeach()
