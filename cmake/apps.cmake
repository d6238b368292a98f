# cmake/apps.cmake: the command `qkv`, at the top of the build folder, and the library of its benchmarks.

find_package(CLI11)
find_package(nlohmann_json)
if(NOT CLI11_FOUND OR NOT nlohmann_json_FOUND)
  message(NOTICE "qkv: the command is left out, because CLI11 or nlohmann-json was not found "
                 "(Debian: apt install libcli11-dev nlohmann-json3-dev)")
  return()
endif()

# The benchmarks look inside src/; the command sees them only by their header.
file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/bench/*.cpp)
add_library(qkv_bench STATIC ${sources})
target_include_directories(qkv_bench PUBLIC ${PROJECT_SOURCE_DIR})
target_link_libraries(qkv_bench PRIVATE qkv_settings qkv_reference nlohmann_json::nlohmann_json)

file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/apps/*.cpp)
add_executable(qkv_command ${sources})
target_link_libraries(qkv_command PRIVATE qkv_settings qkv_static qkv_bench CLI11::CLI11 nlohmann_json::nlohmann_json)
qkv_quick_to_build(qkv_command)
target_precompile_headers(qkv_command PRIVATE <CLI/CLI.hpp> <nlohmann/json.hpp>)
set_target_properties(qkv_command PROPERTIES OUTPUT_NAME qkv RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR})
