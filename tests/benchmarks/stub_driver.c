/* A CUDA driver that has no GPU: memory lies at the host addresses that are asked for, two kernels run on the CPU.

   doubled(const float *x, float *y, int n)     y = 2 x
   by_table(const float *const *table, int n)   the same, with both addresses read from a table in memory
   A module's image is text; every function is found in every module.  */
#define _GNU_SOURCE
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <dlfcn.h>

typedef unsigned U;
typedef unsigned long long U64;
typedef void *H;
typedef struct { U grid[3], block[3], smem; H stream; void *attrs; U num_attrs; } Config;
typedef struct { H func; U grid[3], block[3], smem; void **params; void **extra; H kern, ctx; } NodeParams;

static char modules[8], functions[2], graph, executable;
static int loaded, capturing, nodes;
static NodeParams node;
static void *kept[3];
static U64 values[3];
static const char *names[] = {"doubled", "by_table"};
static const size_t sizes[2][3] = {{8, 8, 4}, {8, 4, 0}};

int cuInit(U f) { (void)f; return 0; }
int cuDevicePrimaryCtxRetain(H *c, int d) { (void)d; *c = modules; return 0; }
int cuCtxSetCurrent(H c) { (void)c; return 0; }
int cuCtxSynchronize(void) { return 0; }
int cuGetErrorName(int code, const char **text) { (void)code; *text = "STUB_ERROR"; return 0; }
int cuMemAddressReserve(U64 *at, size_t n, size_t a, U64 hint, U64 f) {
  (void)a; (void)f;
  void *p = mmap((void *)hint, n, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  *at = (U64)p;
  return p == MAP_FAILED ? 2 : 0;
}
int cuMemCreate(U64 *h, size_t n, const void *p, U64 f) { (void)p; (void)f; *h = n; return 0; }
int cuMemMap(U64 at, size_t n, size_t o, U64 h, U64 f) {
  (void)o; (void)h; (void)f;
  return mprotect((void *)at, n, PROT_READ | PROT_WRITE) ? 2 : 0;
}
int cuMemSetAccess(U64 at, size_t n, const void *d, size_t c) { (void)at; (void)n; (void)d; (void)c; return 0; }
int cuMemsetD8_v2(U64 at, unsigned char v, size_t n) { memset((void *)at, v, n); return 0; }
int cuMemcpyHtoD_v2(U64 to, const void *from, size_t n) { memcpy((void *)to, from, n); return 0; }
int cuMemcpyDtoH_v2(void *to, U64 from, size_t n) { memcpy(to, (void *)from, n); return 0; }
int cuModuleLoadData(H *m, const void *image) { (void)image; *m = &modules[loaded++ % 8]; return 0; }
int cuModuleGetFunction(H *f, H m, const char *name) { (void)m; *f = &functions[!strcmp(name, "by_table")]; return 0; }
int cuFuncGetName(const char **name, H f) { *name = names[(char *)f - functions]; return 0; }
int cuFuncGetModule(H *m, H f) { (void)f; *m = &modules[(loaded - 1) % 8]; return 0; }
int cuFuncGetParamInfo(H f, size_t i, size_t *offset, size_t *size) {
  size_t kind = (size_t)((char *)f - functions);
  if (i > 2 || !sizes[kind][i]) return 1;
  *offset = 8 * i;
  *size = sizes[kind][i];
  return 0;
}
static int execute(H f, void **p) {
  int table = (char *)f - functions == 1;
  const float *const *rows = table ? *(const float *const **)p[0] : NULL;
  const float *x = table ? rows[0] : *(const float **)p[0];
  float *y = table ? (float *)rows[1] : *(float **)p[1];
  int n = *(int *)p[table ? 1 : 2];
  for (int i = 0; i < n; i++) y[i] = 2 * x[i];
  return 0;
}
static int launch(H f, void **p) {
  if (!capturing) return execute(f, p);
  int count = (char *)f - functions == 1 ? 2 : 3;
  for (int i = 0; i < count; i++) {
    memcpy(&values[i], p[i], sizes[(char *)f - functions][i]);
    kept[i] = &values[i];
  }
  node = (NodeParams){f, {1, 1, 1}, {1, 1, 1}, 0, kept, NULL, NULL, NULL};
  nodes = 1;
  return 0;
}
int cuLaunchKernel(H f, U a, U b, U c, U d, U e, U g, U s, H stream, void **p, void **extra) {
  (void)a; (void)b; (void)c; (void)d; (void)e; (void)g; (void)s; (void)stream; (void)extra;
  return launch(f, p);
}
int cuLaunchKernelEx(const Config *c, H f, void **p, void **extra) { (void)c; (void)extra; return launch(f, p); }
int cuStreamIsCapturing(H s, int *status) { (void)s; *status = capturing; return 0; }
int cuStreamBeginCapture_v2(H s, int mode) { (void)s; (void)mode; capturing = 1; return 0; }
int cuStreamEndCapture(H s, H *g) { (void)s; capturing = 0; *g = &graph; return 0; }
int cuGraphGetNodes(H g, H *to, size_t *n) { (void)g; if (to) to[0] = &node; *n = nodes; return 0; }
int cuGraphNodeGetType(H n, int *type) { (void)n; *type = 0; return 0; }
int cuGraphKernelNodeGetParams_v2(H n, NodeParams *p) { (void)n; *p = node; return 0; }
int cuGraphInstantiateWithFlags(H *e, H g, U64 f) { (void)g; (void)f; *e = &executable; return 0; }
int cuGraphLaunch(H e, H s) { (void)e; (void)s; return execute(node.func, node.params); }
int cuGetProcAddress_v2(const char *name, void **at, int version, U64 flags, int *status) {
  (void)version; (void)flags; (void)status;
  *at = dlsym(dlopen("libcuda.so.1", RTLD_NOW), name);
  return *at ? 0 : 500;
}
