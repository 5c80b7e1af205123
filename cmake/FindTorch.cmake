# Finds the CPU half of a PyTorch wheel (TORCH_DIR: the folder `torch/` with include/ and lib/) and defines Torch::cpu.
# The wheel's own TorchConfig.cmake demands a CUDA toolkit; we link torch_cpu and c10 only.
if(TARGET Torch::cpu)
  return()
endif()
if(NOT TORCH_DIR)
  if(DEFINED ENV{TORCH_DIR})
    set(TORCH_DIR "$ENV{TORCH_DIR}")
  else()
    set(TORCH_DIR ${CMAKE_SOURCE_DIR}/.deps/torch)
  endif()
endif()
file(REAL_PATH ${TORCH_DIR} TORCH_DIR)
set(TORCH_DIR ${TORCH_DIR} CACHE PATH "Folder of LibTorch, or the torch folder of an installed wheel" FORCE)
if(NOT EXISTS ${TORCH_DIR}/lib/libtorch_cpu.so OR NOT EXISTS ${TORCH_DIR}/include/ATen/core/Tensor.h)
  message(FATAL_ERROR "TORCH_DIR=${TORCH_DIR} has no lib/libtorch_cpu.so or no include/ATen. "
    "Run `make deps`, or give TORCH_DIR=<the torch folder of a LibTorch 2.11 or of a Python environment with torch 2.11>.")
endif()
add_library(torch_c10 SHARED IMPORTED)
set_target_properties(torch_c10 PROPERTIES IMPORTED_LOCATION ${TORCH_DIR}/lib/libc10.so)
add_library(Torch::cpu SHARED IMPORTED)
# libtorch_cpu.so of the CUDA wheel needs libcudart and libcupti from the nvidia wheels: present at run time, not linked by us.
file(GLOB TORCH_CUDA_STUB_DIRS ${TORCH_DIR}/../nvidia/*/lib)
set_target_properties(Torch::cpu PROPERTIES
  IMPORTED_LOCATION ${TORCH_DIR}/lib/libtorch_cpu.so
  INTERFACE_LINK_LIBRARIES torch_c10
  INTERFACE_COMPILE_DEFINITIONS AT_PER_OPERATOR_HEADERS
  INTERFACE_INCLUDE_DIRECTORIES "${TORCH_DIR}/include;${TORCH_DIR}/include/torch/csrc/api/include"
  INTERFACE_COMPILE_OPTIONS "-fopenmp"  # at::parallel_for is serial without it; the wheel's libgomp.so.1 is the one loaded
  INTERFACE_LINK_OPTIONS "-fopenmp;-Wl,--unresolved-symbols=ignore-in-shared-libs")
set(TORCH_RPATH ${TORCH_DIR}/lib ${TORCH_CUDA_STUB_DIRS})
set(Torch_FOUND TRUE)
