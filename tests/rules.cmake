# tests/rules.cmake: rules as tests, the examples, and the tests of the command; all in Python without packages.

set(rules ${CMAKE_CURRENT_SOURCE_DIR}/rules)
set(python Python3::Interpreter -B)

qkv_add_test(rules.layers ${python} ${rules}/layers_test.py)
qkv_add_test(rules.ops ${python} ${rules}/ops_test.py)

# Debian's name for the version that .clang-format is written for; another version formats differently.
find_program(QKV_CLANG_FORMAT clang-format-14)
if(QKV_CLANG_FORMAT)
  qkv_add_test(rules.formatting ${python} ${rules}/formatting_test.py ${QKV_CLANG_FORMAT})
else()
  message(NOTICE "qkv: formatting is not tested, because clang-format-14 was not found (Debian: apt install clang-format-14)")
endif()

if(TARGET qkv_command)
  file(GLOB scripts CONFIGURE_DEPENDS apps/*_test.py)
  foreach(script IN LISTS scripts)
    get_filename_component(name ${script} NAME_WE)
    string(REGEX REPLACE "_test$" "" name ${name})
    qkv_add_test(apps.${name} ${python} ${script} $<TARGET_FILE:qkv_command>)
  endforeach()
endif()

# Examples see what users see: the public headers and the shared library.
set(arguments_of_load_from_pytorch tests/nn/golden/tagger_state.safetensors)
file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/examples/*.cpp)
foreach(source IN LISTS sources)
  get_filename_component(name ${source} NAME_WE)
  add_executable(example_${name} ${source})
  target_link_libraries(example_${name} PRIVATE qkv_settings qkv::qkv)
  qkv_add_test(examples.${name} ${python} ${rules}/example_test.py ${source} $<TARGET_FILE:example_${name}>
               ${arguments_of_${name}})
endforeach()

# Files that another program wrote, or reads.
add_executable(safetensors_copy interop/safetensors_copy.cpp)
target_link_libraries(safetensors_copy PRIVATE qkv_settings qkv::qkv)
qkv_add_test(interop.safetensors ${python} ${CMAKE_CURRENT_SOURCE_DIR}/interop/safetensors_test.py
             $<TARGET_FILE:safetensors_copy>)

# What follows is about the library as it is shipped; sanitizers change what it needs and how it is linked.
if(QKV_SANITIZE)
  return()
endif()

string(TOUPPER "CMAKE_CXX_FLAGS_${CMAKE_BUILD_TYPE}" flags)
if("${CMAKE_CXX_FLAGS} ${${flags}}" MATCHES "NDEBUG")
  set(asserts no_asserts)
else()
  set(asserts asserts)
endif()
qkv_add_test(rules.library ${python} ${rules}/library_test.py $<TARGET_FILE:qkv_shared> ${CMAKE_CXX_COMPILER} ${asserts})
qkv_add_test(rules.headers_alone ${python} ${rules}/headers_alone_test.py ${CMAKE_CXX_COMPILER} clang++-14)

# The package as it is installed.
set(installed ${PROJECT_BINARY_DIR}/installed)
qkv_add_test(package.install ${CMAKE_COMMAND} --install ${PROJECT_BINARY_DIR} --prefix ${installed})
qkv_add_test(package.consumer ${python} ${rules}/consumer_test.py ${installed} ${CMAKE_COMMAND} ${CMAKE_MAKE_PROGRAM}
             ${CMAKE_CXX_COMPILER} ${PROJECT_VERSION})
qkv_add_test(package.readme ${python} ${rules}/readme_test.py ${installed} ${CMAKE_CXX_COMPILER})
set_tests_properties(package.install PROPERTIES FIXTURES_SETUP installed)
set_tests_properties(package.consumer package.readme PROPERTIES FIXTURES_REQUIRED installed)
