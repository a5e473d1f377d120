# The CUDA toolkit of the flavour cuda: where nvcc is, which GPUs to build for, how device code is stored. Needs no GPU.
set(NITINOL_CUDA_ARCHITECTURES "90" CACHE STRING "GPU architectures to build for, as CMAKE_CUDA_ARCHITECTURES takes them")
set(CMAKE_CUDA_ARCHITECTURES ${NITINOL_CUDA_ARCHITECTURES})

if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
  find_program(NITINOL_NVCC nvcc HINTS ENV CUDA_PATH ENV CUDA_HOME PATH_SUFFIXES bin PATHS /usr/local/cuda)
  if(NOT NITINOL_NVCC)
    message(FATAL_ERROR "No nvcc in PATH, CUDA_PATH, CUDA_HOME or /usr/local/cuda: install the CUDA toolkit, "
                        "or build the flavour for virtual GPUs (cmake --preset vgpu)")
  endif()
  set(CMAKE_CUDA_COMPILER ${NITINOL_NVCC})
endif()
enable_language(CUDA)
if(CMAKE_CUDA_COMPILER_VERSION VERSION_LESS 13.0)
  message(FATAL_ERROR "${CMAKE_CUDA_COMPILER} is of CUDA ${CMAKE_CUDA_COMPILER_VERSION}: version 13.0 or later is needed, "
                      "or build the flavour for virtual GPUs (cmake --preset vgpu)")
endif()
if(NOT DEFINED CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake before 3.25.2 does not know that nvcc can
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
endif()
set(CMAKE_CUDA_STANDARD 20)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
set(CMAKE_CUDA_VISIBILITY_PRESET hidden)
find_package(CUDAToolkit REQUIRED)

# Kernels of many types and operations compress to a fraction; the driver unpacks what is loaded.
set(nitinol_compression -Xfatbin=-compress-all)
if(CMAKE_CUDA_COMPILER_VERSION VERSION_GREATER_EQUAL 12.9)
  set(nitinol_compression --compress-mode=size)
endif()
target_compile_options(nitinol_compile INTERFACE
  $<$<COMPILE_LANGUAGE:CUDA>:${nitinol_compression} -Xcompiler=-Wall,-Wextra,-Wshadow --expt-relaxed-constexpr>)
target_link_libraries(nitinol_cudart INTERFACE CUDA::cudart_static)
