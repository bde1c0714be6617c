// Starting: the process is a Python interpreter, whose emulator the service makes available to this library.

#include "standin.h"

service_t service;
char target_id[64] = "gfx1030", target_name[16] = "gfx1030";
uint32_t wave_size = 32;

// Of the interpreter that this library is loaded into.
extern int PyGILState_Ensure(void);
extern void PyGILState_Release(int state);
extern int PyRun_SimpleString(const char* source);

static int started;

// Called by the service.
void standin_serve(const service_t* functions, const char* id, uint32_t lanes) {
  service = *functions;
  wave_size = lanes;
  snprintf(target_id, sizeof target_id, "%s", id);
  snprintf(target_name, sizeof target_name, "%.*s", (int)strcspn(id, ":"), id);
  started = 1;
}

hsa_status_t hsa_init(void) {
  if (!started) {
    int state = PyGILState_Ensure();
    PyRun_SimpleString("import standin_hsa_service; standin_hsa_service.serve()");
    PyGILState_Release(state);
  }
  return started ? HSA_STATUS_SUCCESS : HSA_STATUS_ERROR_OUT_OF_RESOURCES;
}

hsa_status_t hsa_shut_down(void) { return HSA_STATUS_SUCCESS; }
