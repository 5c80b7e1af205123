# Compiler settings shared by every target; ccache and mold when present.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib)
set(CMAKE_CXX_FLAGS_RELEASE "-O2")
set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O2 -g1")
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()
option(MEGATRON_WERROR "Warnings are errors" OFF)
set(MEGATRON_SANITIZE "" CACHE STRING "Sanitizers, as -fsanitize takes them")

add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-Wall> $<$<COMPILE_LANGUAGE:CXX>:-Wextra> $<$<COMPILE_LANGUAGE:CXX>:-Wno-unused-parameter>
  $<$<COMPILE_LANGUAGE:CXX>:-Wno-missing-field-initializers> $<$<COMPILE_LANGUAGE:CXX>:-fno-math-errno>)  # nobody reads errno after sqrt: it becomes one instruction
if(NOT CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-ffp-contract=off>)  # plain x86-64 has no fused multiply-add: the same bits everywhere
endif()
if(MEGATRON_WERROR)  # GCC 12 finds operator+ of its own std::string out of bounds (its bug 105651)
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-Werror> $<$<COMPILE_LANGUAGE:CXX>:-Wno-error=array-bounds>
    $<$<COMPILE_LANGUAGE:CXX>:-Wno-error=restrict>)
endif()
if(MEGATRON_SANITIZE)  # tests/sanitizers/README.md
  set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O1 -g1")
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${MEGATRON_SANITIZE}> $<$<COMPILE_LANGUAGE:CXX>:-fno-omit-frame-pointer>
    $<$<COMPILE_LANGUAGE:CXX>:-fno-sanitize-recover=all>)
  add_link_options(-fsanitize=${MEGATRON_SANITIZE})
  if(MEGATRON_SANITIZE STREQUAL "address,undefined")
    # These two checks, at each use of a pointer, take half of the time of a build. AddressSanitizer sees null
    # pointers that are read, and the fuzz targets are built with both.
    add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fno-sanitize=null$<COMMA>alignment>)
  endif()
endif()

find_program(CCACHE ccache)
if(CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1
      CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime ${CCACHE})
  add_compile_options($<$<COMPILE_LANG_AND_ID:CXX,GNU>:-fpch-preprocess>)  # ccache must see which precompiled headers a source uses
endif()
# The fastest linker there is: mold, or lld. mold before 2.0 (Debian 12 has 1.10) loops for ever on some
# programs, depending on the texts in them, and lets others begin with a page that is not mapped, so that
# they do not start.
find_program(MOLD mold)
find_program(LLD ld.lld)
set(MOLD_VERSION "")
if(MOLD)
  execute_process(COMMAND ${MOLD} --version OUTPUT_VARIABLE MOLD_VERSION)
endif()
if(MOLD_VERSION MATCHES "mold ([2-9]|[1-9][0-9]+)\\.")
  add_link_options(-fuse-ld=mold)
elseif(LLD)
  add_link_options(-fuse-ld=lld)
endif()
