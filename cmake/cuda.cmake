# The CUDA plugin lib/libmegatron_cuda.so (make build CUDA=1): our .cu kernels, and what needs torch_cuda. The engine opens it at run time, so
# everything else is built without knowing CUDA. Linking needs libtorch_cuda.so and libc10_cuda.so of the wheel, not the wheels they need to run.
option(MEGATRON_CUDA "Build the CUDA plugin (needs nvcc 13)" OFF)
set(MEGATRON_CUDA_ARCHITECTURES "80-real;90-real;90-virtual" CACHE STRING "As CMAKE_CUDA_ARCHITECTURES: machine code of each, PTX of the newest")

if(MEGATRON_CUDA)
  set(CMAKE_CUDA_ARCHITECTURES ${MEGATRON_CUDA_ARCHITECTURES})
  find_program(CMAKE_CUDA_COMPILER nvcc HINTS ENV CUDACXX ENV CUDA_HOME PATHS /usr/local/cuda PATH_SUFFIXES bin)
  if(NOT CMAKE_CUDA_COMPILER)
    message(FATAL_ERROR "The CUDA plugin needs nvcc 13: install the CUDA toolkit, or give its folder in CUDA_HOME.")
  endif()
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${CMAKE_CXX_COMPILER_LAUNCHER})
  enable_language(CUDA)
  find_package(CUDAToolkit 13.0 REQUIRED)
endif()

function(megatron_cuda_plugin)
  if(NOT MEGATRON_CUDA)
    return()
  endif()
  foreach(LIBRARY torch_cuda c10_cuda)
    if(NOT EXISTS ${TORCH_DIR}/lib/lib${LIBRARY}.so)
      message(FATAL_ERROR "${TORCH_DIR}/lib has no lib${LIBRARY}.so. Run `make deps CUDA=1`, or give TORCH_DIR of a LibTorch 2.11 built for CUDA 13.")
    endif()
  endforeach()

  file(GLOB KERNELS CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/kernels/cuda/*.cu)
  add_library(megatron_cuda_kernels OBJECT ${KERNELS})
  target_include_directories(megatron_cuda_kernels PRIVATE ${CMAKE_SOURCE_DIR}/src)
  # Without contraction a kernel rounds as its body does on the host, where the tests run it; all of them wait for memory, not for arithmetic.
  target_compile_options(megatron_cuda_kernels PRIVATE --fmad=false -std=c++20)  # CMake 3.25 does not know nvcc 13's dialects
  set_target_properties(megatron_cuda_kernels PROPERTIES CUDA_STANDARD_REQUIRED OFF)

  set(PLUGIN ${CMAKE_SOURCE_DIR}/src/cuda_plugin)
  set(SOURCES ${PLUGIN}/plugin.cpp ${PLUGIN}/row_operations.cpp ${PLUGIN}/optimizer_operations.cpp)
  # ProcessGroupNCCL's options contain NCCL's own structures: only the header that torch was built with has them right.
  find_path(NCCL_INCLUDE_DIR nccl.h PATHS ${CUDAToolkit_INCLUDE_DIRS} ${TORCH_DIR}/../nvidia/nccl/include)
  set(NCCL_MINOR "")
  if(NCCL_INCLUDE_DIR)
    file(STRINGS ${NCCL_INCLUDE_DIR}/nccl.h NCCL_MINOR REGEX "#define NCCL_MINOR +28")
  endif()
  if(NCCL_MINOR)
    list(APPEND SOURCES ${PLUGIN}/nccl.cpp)
    set_source_files_properties(${PLUGIN}/nccl.cpp PROPERTIES COMPILE_DEFINITIONS USE_C10D_NCCL INCLUDE_DIRECTORIES ${NCCL_INCLUDE_DIR})
  else()
    message(WARNING "nccl.h of NCCL 2.28 was not found: the CUDA plugin is built without NCCL")
    list(APPEND SOURCES ${PLUGIN}/no_nccl.cpp)
  endif()

  add_library(megatron_cuda SHARED ${SOURCES})
  set_target_properties(megatron_cuda PROPERTIES BUILD_RPATH "${TORCH_RPATH}" CUDA_RESOLVE_DEVICE_SYMBOLS OFF LINKER_LANGUAGE CXX)
  target_include_directories(megatron_cuda PRIVATE ${CMAKE_SOURCE_DIR}/src ${CUDAToolkit_INCLUDE_DIRS})
  target_link_libraries(megatron_cuda PRIVATE megatron_cuda_kernels Torch::cpu ${TORCH_DIR}/lib/libtorch_cuda.so ${TORCH_DIR}/lib/libc10_cuda.so
    CUDA::cudart)
  # torch_cuda registers itself when it is loaded; nothing of ours need name a symbol of it.
  target_link_options(megatron_cuda PRIVATE -Wl,--no-as-needed)
  add_dependencies(megatron_all megatron_cuda)
endfunction()
