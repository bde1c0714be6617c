/* A program that tells all that there is to tell by NVTX. It prints whether anybody listens. */
#include <stdio.h>
#include <stdlib.h>
#include "cuda_api.h"
#include "kernels.h"
#include "nvtx.h"

static const nvtxEventAttributes_t *
attributes (int type, const void * message)
{
  static nvtxEventAttributes_t told;

  told = (nvtxEventAttributes_t) { .version = 3, .size = sizeof told, .message_type = type, .message = message };
  return &told;
}

int
main (void)
{
  void * domain, * wide_domain, * name, * wide_name;
  nvtxRangeId_t first, second, third, other;
  char message[] = "gone";
  int depth;

  CHECK (cuInit (0));
  depth = NVTX (push_a, "outer");
  NVTX (push_ex, attributes (1, message));
  message[0] = 'G';                    /* what was told is not told again */
  NVTX (push_w, L"gr\u00f6\u00dfe \u20ac \U0001d11e");
  NVTX_TELL (mark_a, "mark");
  NVTX_TELL (mark_ex, attributes (2, L"wide"));
  NVTX_TELL (mark_w, L"");
  NVTX_TELL (mark_ex, attributes (0, NULL));
  for (int i = 0; i < 3; i++)
    NVTX (pop);
  first = NVTX (start_a, "first");
  second = NVTX (start_ex, attributes (1, "second"));
  third = NVTX (start_w, L"third");
  NVTX_TELL (end, second);
  NVTX_TELL (end, first);
  NVTX_TELL (end, third);
  domain = NVTX (create_a, "library");
  wide_domain = NVTX (create_w, L"bibliotek\u00e5");
  name = NVTX (register_a, domain, "registered");
  wide_name = NVTX (register_w, wide_domain, L"regis\u2014tered");
  NVTX (domain_push, domain, attributes (3, name));
  NVTX_TELL (domain_mark, wide_domain, attributes (3, wide_name));
  other = NVTX (domain_start, wide_domain, attributes (1, "fourth"));
  NVTX (domain_pop, domain);
  NVTX_TELL (domain_end, wide_domain, other);
  CHECK (cuInit (0));
  printf ("%d\n", depth);
  return 0;
}
