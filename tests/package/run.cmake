# Installs this build into a folder of its own, builds the project beside this
# file against it, and runs the result.
# Takes BUILD, WORK, TORCH (where TorchConfig.cmake is) and SOURCE.
file(REMOVE_RECURSE ${WORK})

function(must_work)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE code OUTPUT_VARIABLE output
                  ERROR_VARIABLE output)
  if(NOT code EQUAL 0)
    message(FATAL_ERROR "${ARGN} failed:\n${output}")
  endif()
endfunction()

must_work(${CMAKE_COMMAND} --install ${BUILD} --prefix ${WORK}/installed)
must_work(${CMAKE_COMMAND} -S ${SOURCE} -B ${WORK}/build -G Ninja
          -DCMAKE_PREFIX_PATH=${WORK}/installed -DTorch_DIR=${TORCH})
must_work(${CMAKE_COMMAND} --build ${WORK}/build)
must_work(${WORK}/build/outside)
must_work(${WORK}/installed/bin/cleave --version)
if(NOT EXISTS ${WORK}/installed/share/doc/cleave/LICENSE)
  message(FATAL_ERROR "The licence was not installed.")
endif()
file(GLOB_RECURSE headers ${WORK}/installed/include/*)
list(LENGTH headers count)
if(count GREATER 30)
  message(FATAL_ERROR "${count} headers were installed: ${headers}")
endif()
