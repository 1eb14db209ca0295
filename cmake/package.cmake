# What `cmake --install` puts beside the libraries, so that others can say
# find_package(cleave) and link cleave::cleave.
include(CMakePackageConfigHelpers)

add_library(cleave_all INTERFACE)
add_library(cleave::cleave ALIAS cleave_all)
set_target_properties(cleave_all PROPERTIES EXPORT_NAME cleave)
target_link_libraries(cleave_all INTERFACE
  cleave::plan_measure cleave::train cleave::evaluate cleave::report)
target_compile_features(cleave_all INTERFACE cxx_std_20)
install(TARGETS cleave_all EXPORT cleave-targets)

# What others may include: cleave/cleave.h, and what that includes.
set(public_headers cleave/cleave.h)
set(unread cleave/cleave.h)
while(unread)
  list(POP_FRONT unread header)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${header})
  file(STRINGS ${header} lines REGEX "^#include \"cleave/")
  foreach(line IN LISTS lines)
    string(REGEX REPLACE ".*\"(.*)\".*" "\\1" found "${line}")
    if(NOT found IN_LIST public_headers)
      list(APPEND public_headers ${found})
      list(APPEND unread ${found})
    endif()
  endforeach()
endwhile()
foreach(header IN LISTS public_headers)
  cmake_path(GET header PARENT_PATH folder)
  install(FILES ${header} DESTINATION include/${folder})
endforeach()
install(FILES LICENSE DESTINATION share/doc/cleave)
install(EXPORT cleave-targets NAMESPACE cleave:: DESTINATION lib/cmake/cleave)
configure_package_config_file(cmake/cleave-config.cmake.in
  ${PROJECT_BINARY_DIR}/cleave-config.cmake
  INSTALL_DESTINATION lib/cmake/cleave)
write_basic_package_version_file(
  ${PROJECT_BINARY_DIR}/cleave-config-version.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/cleave-config.cmake
              ${PROJECT_BINARY_DIR}/cleave-config-version.cmake
        DESTINATION lib/cmake/cleave)
