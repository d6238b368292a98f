# cmake/install.cmake: what `cmake --install` puts where, and how others find it.

include(CMakePackageConfigHelpers)

install(
  TARGETS qkv_shared
  EXPORT qkv
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
  INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/qkv DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
if(TARGET qkv_command)
  install(TARGETS qkv_command RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()

# find_package(qkv): the exported target is all there is to say, for Highway stays inside.
set(package ${CMAKE_INSTALL_LIBDIR}/cmake/qkv)
install(EXPORT qkv FILE qkvConfig.cmake NAMESPACE qkv:: DESTINATION ${package})
# Before 1.0 a new minor version may break what was there.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/qkvConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/qkvConfigVersion.cmake DESTINATION ${package})

# pkg-config qkv: found relative to the file itself, so the installed tree may be moved.
file(RELATIVE_PATH prefix_from_pc /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
configure_file(${PROJECT_SOURCE_DIR}/cmake/qkv.pc.in ${PROJECT_BINARY_DIR}/qkv.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/qkv.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
