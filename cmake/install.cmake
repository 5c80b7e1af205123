# What `make install` puts under a prefix: bin/megatron, the libraries and headers, and the CMake
# package that defines Megatron::megatron for find_package(Megatron). examples/embed uses it.
include(CMakePackageConfigHelpers)

function(megatron_install)
  get_property(ROOMS GLOBAL PROPERTY MEGATRON_ROOMS)
  set(LIBRARIES megatron_kernels)
  foreach(ROOM ${ROOMS})
    list(APPEND LIBRARIES megatron_${ROOM})
    set_target_properties(megatron_${ROOM} PROPERTIES EXPORT_NAME ${ROOM})
  endforeach()
  set_target_properties(megatron_kernels PROPERTIES EXPORT_NAME kernels)
  list(APPEND LIBRARIES megatron_commands)
  set_target_properties(megatron_commands PROPERTIES EXPORT_NAME commands)
  # Headers say "megatron/…", and a few of them "kernels/…".
  set_target_properties(${LIBRARIES} PROPERTIES INTERFACE_INCLUDE_DIRECTORIES
    "$<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}/src>;$<INSTALL_INTERFACE:include;include/megatron>")

  add_library(megatron_library INTERFACE)
  target_link_libraries(megatron_library INTERFACE ${LIBRARIES})
  target_compile_features(megatron_library INTERFACE cxx_std_20)
  set_target_properties(megatron_library PROPERTIES EXPORT_NAME megatron)
  install(TARGETS megatron_library ${LIBRARIES} EXPORT Megatron ARCHIVE DESTINATION lib)
  install(DIRECTORY ${CMAKE_SOURCE_DIR}/src/megatron DESTINATION include
          FILES_MATCHING PATTERN "*.h" PATTERN cli EXCLUDE)
  install(FILES ${CMAKE_SOURCE_DIR}/src/megatron/cli/engine/run_megatron.h
          DESTINATION include/megatron/cli/engine)
  install(DIRECTORY ${CMAKE_SOURCE_DIR}/src/kernels DESTINATION include/megatron
          FILES_MATCHING PATTERN "*.h" PATTERN "*_impl.h" EXCLUDE)

  # The program finds lib/libmegatron_engine.so beside its own folder, as in the build.
  set_target_properties(megatron_engine PROPERTIES INSTALL_RPATH "${TORCH_RPATH}")
  install(TARGETS megatron RUNTIME DESTINATION bin)
  install(TARGETS megatron_engine LIBRARY DESTINATION lib)
  if(TARGET megatron_cuda)
    set_target_properties(megatron_cuda PROPERTIES INSTALL_RPATH "${TORCH_RPATH}")
    install(TARGETS megatron_cuda LIBRARY DESTINATION lib)
  endif()

  if(TARGET megatron_arrow)
    install(TARGETS megatron_arrow LIBRARY DESTINATION lib)
  endif()

  set(PACKAGE lib/cmake/Megatron)
  install(EXPORT Megatron NAMESPACE Megatron:: FILE MegatronTargets.cmake DESTINATION ${PACKAGE})
  configure_package_config_file(${CMAKE_SOURCE_DIR}/cmake/MegatronConfig.cmake.in
    ${CMAKE_BINARY_DIR}/generated/MegatronConfig.cmake INSTALL_DESTINATION ${PACKAGE})
  write_basic_package_version_file(${CMAKE_BINARY_DIR}/generated/MegatronConfigVersion.cmake
    COMPATIBILITY SameMinorVersion)
  install(FILES ${CMAKE_BINARY_DIR}/generated/MegatronConfig.cmake
                ${CMAKE_BINARY_DIR}/generated/MegatronConfigVersion.cmake
                ${CMAKE_SOURCE_DIR}/cmake/FindTorch.cmake
                ${CMAKE_SOURCE_DIR}/cmake/dependencies.cmake
          DESTINATION ${PACKAGE})
endfunction()
