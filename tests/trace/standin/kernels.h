/* The kernels of programs that use `saxpy` and `triple`, and how calls are checked. */
#define CHECK(call) do { int r_ = (call); if (r_) { fprintf (stderr, "%s: %d\n", #call, r_); exit (1); } } while (0)

static char ptx[] =
  ".version 8.0\n.target sm_90\n.address_size 64\n"
  ".visible .entry saxpy(.param .u32 n, .param .f32 a, .param .u64 x, .param .u64 y)\n{\n"
  "\t.reg .pred %q; .reg .b32 %i, %n, %d; .reg .f32 %a, %u, %v; .reg .b64 %x, %y, %o;\n"
  "\tld.param.u32 %n, [n];\n\tld.param.f32 %a, [a];\n\tld.param.u64 %x, [x];\n\tld.param.u64 %y, [y];\n"
  "\tmov.u32 %i, %ctaid.x;\n\tmov.u32 %d, %ntid.x;\n\tmul.lo.u32 %i, %i, %d;\n\tmov.u32 %d, %tid.x;\n"
  "\tadd.u32 %i, %i, %d;\n\tsetp.ge.u32 %q, %i, %n;\n\t@%q ret;\n\tmul.wide.u32 %o, %i, 4;\n"
  "\tadd.u64 %x, %x, %o;\n\tadd.u64 %y, %y, %o;\n\tld.global.f32 %u, [%x];\n\tld.global.f32 %v, [%y];\n"
  "\tmul.rn.f32 %u, %a, %u;\n\tadd.rn.f32 %v, %v, %u;\n\tst.global.f32 [%y], %v;\n\tret;\n}\n"
  ".visible .entry triple(.param .u64 p, .param .u32 n)\n{\n"
  "\t.reg .pred %q; .reg .b32 %i, %n, %d; .reg .b64 %p, %o;\n"
  "\tld.param.u64 %p, [p];\n\tld.param.u32 %n, [n];\n"
  "\tmov.u32 %i, %ctaid.x;\n\tmov.u32 %d, %ntid.x;\n\tmul.lo.u32 %i, %i, %d;\n\tmov.u32 %d, %tid.x;\n"
  "\tadd.u32 %i, %i, %d;\n\tsetp.ge.u32 %q, %i, %n;\n\t@%q ret;\n\tmul.wide.u32 %o, %i, 4;\n"
  "\tadd.u64 %p, %p, %o;\n\tld.global.u32 %d, [%p];\n\tmad.lo.u32 %d, %d, 3, 1;\n"
  "\tst.global.u32 [%p], %d;\n\tret;\n}\n";
