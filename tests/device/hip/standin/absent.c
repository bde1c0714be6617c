// What the stand-in does not have: images, graphics interoperation, sharing between processes. HIP links
// against these entries and asks for none of them where no program does.

enum { HSA_STATUS_ERROR = 0x1000 };  // hsa.h, which would want their arguments

#define ABSENT(name) \
  int name(void) { return HSA_STATUS_ERROR; }

ABSENT(hsa_amd_image_create)
ABSENT(hsa_amd_interop_map_buffer)
ABSENT(hsa_amd_interop_unmap_buffer)
ABSENT(hsa_amd_ipc_memory_attach)
ABSENT(hsa_amd_ipc_memory_create)
ABSENT(hsa_amd_ipc_memory_detach)
ABSENT(hsa_amd_svm_attributes_get)
ABSENT(hsa_executable_agent_global_variable_define)
ABSENT(hsa_ext_image_create)
ABSENT(hsa_ext_image_create_with_layout)
ABSENT(hsa_ext_image_data_get_info)
ABSENT(hsa_ext_image_destroy)
ABSENT(hsa_ext_image_export)
ABSENT(hsa_ext_image_import)
ABSENT(hsa_ext_sampler_create)
ABSENT(hsa_ext_sampler_destroy)
