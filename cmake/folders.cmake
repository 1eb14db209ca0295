# Seconds for a test program: of hundreds of tests, or of more ranks than cores.
set(cleave_test_timeout 300)
if(CLEAVE_SANITIZE)
  set(cleave_test_timeout 1200)
endif()

# cleave_folder(NAME [TORCH] SOURCES … [USES …] [PRIVATE_USES …])
# One library per folder of cleave/. USES names what its headers need,
# PRIVATE_USES header-only libraries that its sources need. TORCH: it moves
# tensors, so it links libtorch and compiles with the precompiled header.
function(cleave_folder name)
  cmake_parse_arguments(ARG "TORCH" "" "SOURCES;USES;PRIVATE_USES" ${ARGN})
  add_library(cleave_${name} STATIC ${ARG_SOURCES})
  add_library(cleave::${name} ALIAS cleave_${name})
  set_target_properties(cleave_${name} PROPERTIES EXPORT_NAME ${name})
  target_include_directories(cleave_${name} PUBLIC
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}> $<INSTALL_INTERFACE:include>)
  target_link_libraries(cleave_${name} PUBLIC ${ARG_USES})
  foreach(dependency ${ARG_PRIVATE_USES})
    target_link_libraries(cleave_${name} PRIVATE
                          $<BUILD_INTERFACE:${dependency}>)
  endforeach()
  if(ARG_TORCH)
    target_link_libraries(cleave_${name} PUBLIC ${TORCH_LIBRARIES})
    target_precompile_headers(cleave_${name} REUSE_FROM cleave_tensor_header)
  endif()
  install(TARGETS cleave_${name} EXPORT cleave-targets ARCHIVE DESTINATION lib)
endfunction()

# cleave_test(FOLDER [TENSORS|TORCH] [PARTS N] SOURCES … USES …): one gtest program
# per folder. TENSORS and TORCH choose the precompiled header: without or with
# torch's modules. Every TEST becomes a ctest case named FOLDER.Suite.name; but
# where each of them would load libtorch, which takes longer than most tests, the
# program runs in PARTS (1 unless told), as FOLDER.part_1 and so on.
function(cleave_test folder)
  cmake_parse_arguments(ARG "TENSORS;TORCH" "PARTS" "SOURCES;USES" ${ARGN})
  add_executable(test_${folder} ${ARG_SOURCES})
  target_link_libraries(test_${folder} PRIVATE ${ARG_USES} GTest::gtest_main)
  if(ARG_TORCH)
    target_precompile_headers(test_${folder} REUSE_FROM cleave_torch_header)
  elseif(ARG_TENSORS)
    target_precompile_headers(test_${folder} REUSE_FROM cleave_tensor_header)
  endif()
  target_compile_definitions(test_${folder} PRIVATE
    CLEAVE_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  if(ARG_TORCH OR ARG_TENSORS)
    cleave_test_parts(${folder} "${ARG_PARTS}")
  else()
    gtest_discover_tests(test_${folder} TEST_PREFIX ${folder}.
                         DISCOVERY_TIMEOUT 60 PROPERTIES TIMEOUT 300)
  endif()
endfunction()

function(cleave_test_parts folder parts)
  if(NOT parts)
    set(parts 1)
  endif()
  foreach(part RANGE 1 ${parts})
    math(EXPR index "${part} - 1")
    add_test(NAME ${folder}.part_${part} COMMAND test_${folder} --gtest_brief=1)
    set_tests_properties(${folder}.part_${part} PROPERTIES
      TIMEOUT ${cleave_test_timeout}
      ENVIRONMENT "GTEST_TOTAL_SHARDS=${parts};GTEST_SHARD_INDEX=${index}")
  endforeach()
endfunction()

# cleave_mpi_test(NAME RANKS PROGRAM …): a test program with its arguments, started
# as so many ranks on this machine, however few cores it has.
function(cleave_mpi_test name ranks program)
  add_test(NAME ${name}
    COMMAND ${MPIEXEC_EXECUTABLE} ${MPIEXEC_NUMPROC_FLAG} ${ranks}
            $<TARGET_FILE:${program}> ${ARGN})
  set_tests_properties(${name} PROPERTIES
    TIMEOUT ${cleave_test_timeout} PROCESSORS 2
    ENVIRONMENT
    "OMPI_ALLOW_RUN_AS_ROOT=1;OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1;\
OMPI_MCA_rmaps_base_oversubscribe=1;OMPI_MCA_hwloc_base_binding_policy=none")
endfunction()

# cleave_without_torch(SOURCES …): files of a TORCH folder that need no tensors
# and compile faster without the precompiled header.
function(cleave_without_torch)
  set_source_files_properties(${ARGN} PROPERTIES
    SKIP_PRECOMPILE_HEADERS ON SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()
