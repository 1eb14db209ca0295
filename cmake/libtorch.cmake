# Finds libtorch: where CMAKE_PREFIX_PATH says, else in the project's .venv,
# else in the python3 on the PATH.
if(NOT Torch_DIR)
  find_path(cleave_torch_config TorchConfig.cmake
            PATH_SUFFIXES share/cmake/Torch Torch NO_CACHE)
  foreach(python "${PROJECT_SOURCE_DIR}/.venv/bin/python" python3)
    if(NOT cleave_torch_config)
      execute_process(
        COMMAND "${python}" -c
                "import torch; print(torch.utils.cmake_prefix_path)"
        OUTPUT_VARIABLE cleave_torch_prefix
        OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET
        RESULT_VARIABLE cleave_torch_missing)
      if(NOT cleave_torch_missing)
        set(cleave_torch_config "${cleave_torch_prefix}/Torch")
        list(APPEND CMAKE_PREFIX_PATH "${cleave_torch_prefix}")
      endif()
    endif()
  endforeach()
endif()
if(NOT Torch_DIR AND NOT cleave_torch_config)
  message(FATAL_ERROR
    "No libtorch found. Run ./setup.sh, or name one: "
    "cmake -DCMAKE_PREFIX_PATH=/path/to/libtorch")
endif()
find_package(Torch REQUIRED)
