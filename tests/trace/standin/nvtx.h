/* The program's side of NVTX, written by its documented interface, so that what programs tell is tested where CUDA's headers are not.
 *
 * A program's calls go through pointers. Before the first of them the library that NVTX_INJECTION64_PATH names is loaded, and its
 * InitializeInjectionNvtx2 is given a function that hands out tables; by number 1 it finds one that hands out, for each module (1: core,
 * 5: domains), where those pointers are, by the callbacks' numbers. What it put in is called from then on; without it nothing is.
 */
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <wchar.h>

typedef uint64_t nvtxRangeId_t;
typedef struct
{
  uint16_t version, size;
  uint32_t category;
  int32_t color_type;
  uint32_t color;
  int32_t payload_type, reserved;
  uint64_t payload;
  int32_t message_type;              /* 1: text; 2: wide; 3: a registered string */
  const void * message;
} nvtxEventAttributes_t;

static struct
{
  void (* mark_ex) (const nvtxEventAttributes_t *), (* mark_a) (const char *), (* mark_w) (const wchar_t *);
  nvtxRangeId_t (* start_ex) (const nvtxEventAttributes_t *), (* start_a) (const char *), (* start_w) (const wchar_t *);
  void (* end) (nvtxRangeId_t);
  int (* push_ex) (const nvtxEventAttributes_t *), (* push_a) (const char *), (* push_w) (const wchar_t *), (* pop) (void);
  void (* domain_mark) (void *, const nvtxEventAttributes_t *);
  nvtxRangeId_t (* domain_start) (void *, const nvtxEventAttributes_t *);
  void (* domain_end) (void *, nvtxRangeId_t);
  int (* domain_push) (void *, const nvtxEventAttributes_t *), (* domain_pop) (void *);
  void * (* register_a) (void *, const char *), * (* register_w) (void *, const wchar_t *);
  void * (* create_a) (const char *), * (* create_w) (const wchar_t *);
} nvtx;

/* By number; there are others, which this program does not call, and none has the number 0. */
static void * nvtx_unused;
static void * nvtx_core[] = {
  NULL, &nvtx.mark_ex, &nvtx.mark_a, &nvtx.mark_w, &nvtx.start_ex, &nvtx.start_a, &nvtx.start_w, &nvtx.end, &nvtx.push_ex,
  &nvtx.push_a, &nvtx.push_w, &nvtx.pop, &nvtx_unused, &nvtx_unused, &nvtx_unused, &nvtx_unused, NULL };
static void * nvtx_core2[] = {
  NULL, &nvtx.domain_mark, &nvtx.domain_start, &nvtx.domain_end, &nvtx.domain_push, &nvtx.domain_pop, &nvtx_unused, &nvtx_unused,
  &nvtx_unused, &nvtx_unused, &nvtx.register_a, &nvtx.register_w, &nvtx.create_a, &nvtx.create_w, &nvtx_unused, &nvtx_unused, NULL };

static int
nvtx_table (uint32_t module, void *** table, uint32_t * count)
{
  if (module != 1 && module != 5)
    return 0;
  *table = module == 1 ? nvtx_core : nvtx_core2;
  *count = (module == 1 ? sizeof nvtx_core : sizeof nvtx_core2) / sizeof (void *) - 1;
  return 1;
}

static const void *
nvtx_export_table (uint32_t number)
{
  static const struct { size_t size; int (* table) (uint32_t, void ***, uint32_t *); } callbacks = {
    sizeof callbacks, nvtx_table };

  return number == 1 ? &callbacks : NULL;
}

/* Once; afterwards what nobody put anything in stays NULL. */
static void
nvtx_initialize (void)
{
  static int done;
  const char * path = getenv ("NVTX_INJECTION64_PATH");
  void * library;
  int (* initialize) (const void * (*) (uint32_t));

  if (done++ || path == NULL || (library = dlopen (path, RTLD_LAZY)) == NULL)
    return;
  initialize = (int (*) (const void * (*) (uint32_t))) dlsym (library, "InitializeInjectionNvtx2");
  if (initialize != NULL)
    initialize (nvtx_export_table);
}

#define NVTX(name, ...) (nvtx_initialize (), nvtx.name != NULL ? nvtx.name (__VA_ARGS__) : 0)
#define NVTX_TELL(name, ...) (nvtx_initialize (), nvtx.name != NULL ? nvtx.name (__VA_ARGS__) : (void) 0)
