// The system and its two agents: a CPU and a GPU that says that it is emulated.

#include "standin.h"

typedef hsa_status_t (*agent_callback)(hsa_agent_t agent, void* data);

// An attribute that is a number: its width in bytes, and its value for the CPU and for the GPU.
typedef struct {
  int attribute, width;
  uint64_t cpu, gpu;
} number_t;

static const number_t NUMBERS[] = {
    {HSA_AGENT_INFO_FEATURE, 4, 0, HSA_AGENT_FEATURE_KERNEL_DISPATCH},
    {HSA_AGENT_INFO_MACHINE_MODEL, 4, HSA_MACHINE_MODEL_LARGE, HSA_MACHINE_MODEL_LARGE},
    {HSA_AGENT_INFO_PROFILE, 4, HSA_PROFILE_FULL, HSA_PROFILE_BASE},
    {HSA_AGENT_INFO_DEFAULT_FLOAT_ROUNDING_MODE, 4, HSA_DEFAULT_FLOAT_ROUNDING_MODE_NEAR,
     HSA_DEFAULT_FLOAT_ROUNDING_MODE_NEAR},
    {HSA_AGENT_INFO_FAST_F16_OPERATION, 1, 0, 1},
    {HSA_AGENT_INFO_WORKGROUP_MAX_SIZE, 4, 0, 1024},
    {HSA_AGENT_INFO_GRID_MAX_SIZE, 4, 0, UINT32_MAX},
    {HSA_AGENT_INFO_FBARRIER_MAX_SIZE, 4, 0, 32},
    {HSA_AGENT_INFO_QUEUES_MAX, 4, 0, 128},
    {HSA_AGENT_INFO_QUEUE_MIN_SIZE, 4, 0, 64},
    {HSA_AGENT_INFO_QUEUE_MAX_SIZE, 4, 0, 131072},
    {HSA_AGENT_INFO_QUEUE_TYPE, 4, HSA_QUEUE_TYPE_MULTI, HSA_QUEUE_TYPE_MULTI},
    {HSA_AGENT_INFO_NODE, 4, 0, 1},
    {HSA_AGENT_INFO_DEVICE, 4, HSA_DEVICE_TYPE_CPU, HSA_DEVICE_TYPE_GPU},
    {HSA_AGENT_INFO_VERSION_MAJOR, 2, 1, 1},
    {HSA_AGENT_INFO_VERSION_MINOR, 2, 1, 1},
    {HSA_AMD_AGENT_INFO_CACHELINE_SIZE, 4, 64, 64},
    {HSA_AMD_AGENT_INFO_COMPUTE_UNIT_COUNT, 4, 2, 4},
    {HSA_AMD_AGENT_INFO_COOPERATIVE_COMPUTE_UNIT_COUNT, 4, 2, 4},
    {HSA_AMD_AGENT_INFO_MAX_CLOCK_FREQUENCY, 4, 1000, 1000},
    {HSA_AMD_AGENT_INFO_DRIVER_NODE_ID, 4, 0, 1},
    {HSA_AMD_AGENT_INFO_MAX_ADDRESS_WATCH_POINTS, 4, 4, 4},
    {HSA_AMD_AGENT_INFO_BDFID, 4, 0, 0x300},
    {HSA_AMD_AGENT_INFO_MEMORY_WIDTH, 4, 64, 256},
    {HSA_AMD_AGENT_INFO_MEMORY_MAX_FREQUENCY, 4, 1000, 1000},
    {HSA_AMD_AGENT_INFO_MAX_WAVES_PER_CU, 4, 0, 40},
    {HSA_AMD_AGENT_INFO_NUM_SIMDS_PER_CU, 4, 0, 4},
    {HSA_AMD_AGENT_INFO_NUM_SHADER_ENGINES, 4, 0, 1},
    {HSA_AMD_AGENT_INFO_NUM_SHADER_ARRAYS_PER_SE, 4, 0, 1},
    {HSA_AMD_AGENT_INFO_COOPERATIVE_QUEUES, 1, 0, 0},
    {HSA_AMD_AGENT_INFO_SVM_DIRECT_HOST_ACCESS, 1, 1, 1},
    {HSA_AMD_AGENT_INFO_ASIC_REVISION, 4, 0, 0},
    {HSA_AMD_AGENT_INFO_CHIP_ID, 4, 0, 0},
    {HSA_AMD_AGENT_INFO_DOMAIN, 4, 0, 0},
};

static void text(void* out, size_t size, const char* value) {
  memset(out, 0, size);
  strncpy(out, value, size - 1);
}

hsa_status_t hsa_agent_get_info(hsa_agent_t agent, hsa_agent_info_t what, void* out) {
  bool gpu = agent.handle == GPU_AGENT.handle;
  char product[64];
  snprintf(product, sizeof product, "emulated %s", target_name);
  switch ((int)what) {
    case HSA_AGENT_INFO_NAME: text(out, 64, gpu ? target_name : "CPU"); return HSA_STATUS_SUCCESS;
    case HSA_AGENT_INFO_VENDOR_NAME: text(out, 64, "AMD"); return HSA_STATUS_SUCCESS;
    case HSA_AMD_AGENT_INFO_PRODUCT_NAME: text(out, 64, gpu ? product : "CPU"); return HSA_STATUS_SUCCESS;
    case HSA_AMD_AGENT_INFO_UUID: text(out, 21, gpu ? "GPU-EMULATED" : "CPU-XX"); return HSA_STATUS_SUCCESS;
    case HSA_AGENT_INFO_ISA: *(hsa_isa_t*)out = GPU_ISA; return HSA_STATUS_SUCCESS;
    case HSA_AGENT_INFO_WAVEFRONT_SIZE: *(uint32_t*)out = gpu ? wave_size : 0; return HSA_STATUS_SUCCESS;
    case HSA_AGENT_INFO_EXTENSIONS: memset(out, 0, 128); return HSA_STATUS_SUCCESS;
    case HSA_AMD_AGENT_INFO_HDP_FLUSH: memset(out, 0, sizeof(hsa_amd_hdp_flush_t)); return HSA_STATUS_SUCCESS;
    case HSA_AGENT_INFO_WORKGROUP_MAX_DIM:
      for (int i = 0; i < 3; i++) ((uint16_t*)out)[i] = gpu ? 1024 : 0;
      return HSA_STATUS_SUCCESS;
    case HSA_AGENT_INFO_GRID_MAX_DIM:
      for (int i = 0; i < 3; i++) ((uint32_t*)out)[i] = gpu ? UINT32_MAX : 0;
      return HSA_STATUS_SUCCESS;
    case HSA_AGENT_INFO_CACHE_SIZE:
      memcpy(out, (uint32_t[4]){16384, 4 << 20, 0, 0}, 16);
      return HSA_STATUS_SUCCESS;
  }
  for (size_t i = 0; i < sizeof NUMBERS / sizeof *NUMBERS; i++) {
    if (NUMBERS[i].attribute != (int)what) continue;
    memcpy(out, gpu ? &NUMBERS[i].gpu : &NUMBERS[i].cpu, NUMBERS[i].width);  // little-endian
    return HSA_STATUS_SUCCESS;
  }
  return HSA_STATUS_ERROR_INVALID_ARGUMENT;
}

hsa_status_t hsa_iterate_agents(agent_callback callback, void* data) {
  const hsa_agent_t agents[] = {CPU_AGENT, GPU_AGENT};
  for (int i = 0; i < 2; i++) {
    hsa_status_t status = callback(agents[i], data);
    if (status) return status == HSA_STATUS_INFO_BREAK ? HSA_STATUS_SUCCESS : status;
  }
  return HSA_STATUS_SUCCESS;
}

hsa_status_t hsa_agent_iterate_isas(hsa_agent_t agent, hsa_status_t (*callback)(hsa_isa_t, void*), void* data) {
  hsa_status_t status = callback(GPU_ISA, data);
  return status == HSA_STATUS_INFO_BREAK ? HSA_STATUS_SUCCESS : status;
}

hsa_status_t hsa_isa_get_info_alt(hsa_isa_t isa, hsa_isa_info_t what, void* out) {
  char name[96];
  snprintf(name, sizeof name, "amdgcn-amd-amdhsa--%s", target_id);
  if (what == HSA_ISA_INFO_NAME_LENGTH)
    *(uint32_t*)out = strlen(name) + 1;
  else if (what == HSA_ISA_INFO_NAME)
    strcpy(out, name);
  else
    return HSA_STATUS_ERROR_INVALID_ARGUMENT;
  return HSA_STATUS_SUCCESS;
}

hsa_status_t hsa_agent_extension_supported(uint16_t extension, hsa_agent_t agent, uint16_t major, uint16_t minor,
                                           bool* out) {
  *out = false;
  return HSA_STATUS_SUCCESS;
}

// --- the system ---------------------------------------------------------------------------------------------

hsa_status_t hsa_system_get_info(hsa_system_info_t what, void* out) {
  switch ((int)what) {
    case HSA_SYSTEM_INFO_VERSION_MAJOR:
    case HSA_SYSTEM_INFO_VERSION_MINOR: *(uint16_t*)out = 1; break;
    case HSA_SYSTEM_INFO_TIMESTAMP: *(uint64_t*)out = now_ns(); break;
    case HSA_SYSTEM_INFO_TIMESTAMP_FREQUENCY: *(uint64_t*)out = 1000000000; break;
    case HSA_SYSTEM_INFO_SIGNAL_MAX_WAIT: *(uint64_t*)out = UINT64_MAX; break;
    case HSA_SYSTEM_INFO_ENDIANNESS: *(uint32_t*)out = HSA_ENDIANNESS_LITTLE; break;
    case HSA_SYSTEM_INFO_MACHINE_MODEL: *(uint32_t*)out = HSA_MACHINE_MODEL_LARGE; break;
    case HSA_SYSTEM_INFO_EXTENSIONS: memset(out, 0, 128); break;
    case HSA_AMD_SYSTEM_INFO_SVM_SUPPORTED:
    case HSA_AMD_SYSTEM_INFO_SVM_ACCESSIBLE_BY_DEFAULT: *(bool*)out = false; break;
    default: return HSA_STATUS_ERROR_INVALID_ARGUMENT;
  }
  return HSA_STATUS_SUCCESS;
}

hsa_status_t hsa_system_extension_supported(uint16_t extension, uint16_t major, uint16_t minor, bool* out) {
  *out = extension == HSA_EXTENSION_AMD_LOADER;
  return HSA_STATUS_SUCCESS;
}

static hsa_status_t query_host_address(const void* device, const void** host) {
  *host = device;
  return HSA_STATUS_SUCCESS;
}

hsa_status_t hsa_system_get_major_extension_table(uint16_t extension, uint16_t version, size_t size, void* table) {
  memset(table, 0, size);
  if (extension != HSA_EXTENSION_AMD_LOADER) return HSA_STATUS_ERROR;
  ((hsa_ven_amd_loader_1_00_pfn_t*)table)->hsa_ven_amd_loader_query_host_address = query_host_address;
  return HSA_STATUS_SUCCESS;
}

hsa_status_t hsa_status_string(hsa_status_t status, const char** out) {
  *out = status == HSA_STATUS_ERROR_EXCEPTION ? "a wave trapped or faulted" : "an HSA error";
  return HSA_STATUS_SUCCESS;
}
