// Executables: code objects are loaded by the service, which also knows their symbols.

#include "standin.h"

typedef struct {
  const void* code_object;
  size_t size;
} reader_t;

typedef struct loaded_s {
  uint64_t handle;  // the service's
  struct loaded_s* next;
} loaded_t;

typedef struct {
  loaded_t* loaded;
} executable_t;

typedef struct {
  symbol_t symbol;
  char name[];
} named_symbol_t;

hsa_status_t hsa_code_object_reader_create_from_memory(const void* code_object, size_t size,
                                                       hsa_code_object_reader_t* out) {
  reader_t* reader = malloc(sizeof *reader);
  if (!reader) return HSA_STATUS_ERROR_OUT_OF_RESOURCES;
  *reader = (reader_t){code_object, size};
  out->handle = (uint64_t)reader;
  return HSA_STATUS_SUCCESS;
}

hsa_status_t hsa_code_object_reader_destroy(hsa_code_object_reader_t reader) {
  free((reader_t*)reader.handle);
  return HSA_STATUS_SUCCESS;
}

hsa_status_t hsa_executable_create_alt(hsa_profile_t profile, hsa_default_float_rounding_mode_t rounding,
                                       const char* options, hsa_executable_t* out) {
  executable_t* executable = calloc(1, sizeof *executable);
  if (!executable) return HSA_STATUS_ERROR_OUT_OF_RESOURCES;
  out->handle = (uint64_t)executable;
  return HSA_STATUS_SUCCESS;
}

hsa_status_t hsa_executable_load_agent_code_object(hsa_executable_t handle, hsa_agent_t agent,
                                                   hsa_code_object_reader_t reader, const char* options,
                                                   hsa_loaded_code_object_t* out) {
  executable_t* executable = (executable_t*)handle.handle;
  reader_t* source = (reader_t*)reader.handle;
  loaded_t* loaded = malloc(sizeof *loaded);
  if (!loaded || service.load(source->code_object, source->size, &loaded->handle)) {
    free(loaded);
    return HSA_STATUS_ERROR_INVALID_CODE_OBJECT;
  }
  loaded->next = executable->loaded;
  executable->loaded = loaded;
  if (out) out->handle = loaded->handle;
  return HSA_STATUS_SUCCESS;
}

hsa_status_t hsa_executable_freeze(hsa_executable_t executable, const char* options) { return HSA_STATUS_SUCCESS; }

hsa_status_t hsa_executable_destroy(hsa_executable_t handle) {
  executable_t* executable = (executable_t*)handle.handle;
  while (executable->loaded) {
    loaded_t* next = executable->loaded->next;
    service.unload(executable->loaded->handle);
    free(executable->loaded);
    executable->loaded = next;
  }
  free(executable);
  return HSA_STATUS_SUCCESS;
}

hsa_status_t hsa_executable_get_symbol_by_name(hsa_executable_t handle, const char* name, const hsa_agent_t* agent,
                                               hsa_executable_symbol_t* out) {
  symbol_t found;
  for (loaded_t* loaded = ((executable_t*)handle.handle)->loaded; loaded; loaded = loaded->next) {
    if (service.symbol(loaded->handle, name, &found)) continue;
    named_symbol_t* symbol = malloc(sizeof *symbol + strlen(name) + 1);
    if (!symbol) return HSA_STATUS_ERROR_OUT_OF_RESOURCES;
    symbol->symbol = found;
    strcpy(symbol->name, name);
    out->handle = (uint64_t)symbol;  // ROCr keeps symbols until the executable goes; these stay
    return HSA_STATUS_SUCCESS;
  }
  return HSA_STATUS_ERROR_INVALID_SYMBOL_NAME;
}

hsa_status_t hsa_executable_symbol_get_info(hsa_executable_symbol_t handle, hsa_executable_symbol_info_t what,
                                            void* out) {
  named_symbol_t* found = (named_symbol_t*)handle.handle;
  symbol_t* s = &found->symbol;
  switch ((int)what) {
    case HSA_EXECUTABLE_SYMBOL_INFO_TYPE:
      *(uint32_t*)out = s->kernel ? HSA_SYMBOL_KIND_KERNEL : HSA_SYMBOL_KIND_VARIABLE;
      break;
    case HSA_EXECUTABLE_SYMBOL_INFO_KERNEL_OBJECT:
    case HSA_EXECUTABLE_SYMBOL_INFO_VARIABLE_ADDRESS: *(uint64_t*)out = s->address; break;
    case HSA_EXECUTABLE_SYMBOL_INFO_VARIABLE_SIZE: *(uint32_t*)out = s->size; break;
    case HSA_EXECUTABLE_SYMBOL_INFO_KERNEL_KERNARG_SEGMENT_SIZE: *(uint32_t*)out = s->kernarg_bytes; break;
    case HSA_EXECUTABLE_SYMBOL_INFO_KERNEL_KERNARG_SEGMENT_ALIGNMENT: *(uint32_t*)out = 16; break;
    case HSA_EXECUTABLE_SYMBOL_INFO_KERNEL_GROUP_SEGMENT_SIZE: *(uint32_t*)out = s->group_bytes; break;
    case HSA_EXECUTABLE_SYMBOL_INFO_KERNEL_PRIVATE_SEGMENT_SIZE: *(uint32_t*)out = s->private_bytes; break;
    case HSA_EXECUTABLE_SYMBOL_INFO_KERNEL_DYNAMIC_CALLSTACK: *(bool*)out = s->dynamic_stack; break;
    case HSA_EXECUTABLE_SYMBOL_INFO_NAME_LENGTH: *(uint32_t*)out = strlen(found->name); break;
    case HSA_EXECUTABLE_SYMBOL_INFO_NAME: memcpy(out, found->name, strlen(found->name)); break;
    default: return HSA_STATUS_ERROR_INVALID_ARGUMENT;
  }
  return HSA_STATUS_SUCCESS;
}
