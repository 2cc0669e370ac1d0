/* A driver for tests: memory is the host's, launches are written to the file that STUB_CUDA_LOG names.

   STUB_CUDA_PARAMS has the sizes of the kernel's parameters in bytes ("8,8,4,4"). With STUB_CUDA_SCALE=1 a launch does
   what scale_kernel(x, y, n, factor) does. STUB_CUDA_FAIL names a function that fails with 1. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct { int id; char pad[4]; uint32_t value[16]; } Attribute;
typedef struct {
  unsigned gx, gy, gz, bx, by, bz, shared;
  void *stream;
  Attribute *attributes;
  unsigned count;
} Config;

static void say(const char *format, const char *text, long a, long b) {
  const char *path = getenv("STUB_CUDA_LOG");
  FILE *file = path ? fopen(path, "a") : NULL;
  if (file == NULL) return;
  fprintf(file, format, text, a, b);
  fclose(file);
}

static int fails(const char *name) {
  const char *wanted = getenv("STUB_CUDA_FAIL");
  return wanted != NULL && strcmp(wanted, name) == 0;
}

int cuInit(unsigned flags) { (void)flags; return fails("cuInit"); }
int cuDeviceGet(int *device, int ordinal) { *device = ordinal; return 0; }
int cuDevicePrimaryCtxRetain(void **context, int device) { (void)device; *context = (void *)1; return 0; }
int cuCtxSetCurrent(void *context) { (void)context; return 0; }
int cuCtxGetCurrent(void **context) { *context = (void *)1; return 0; }
int cuCtxGetDevice(int *device) { *device = 0; return 0; }
int cuCtxSynchronize(void) { return 0; }
int cuDeviceGetAttribute(int *value, int number, int device) {
  (void)device;
  *value = number == 97 ? 232448 : 1 << 20;
  return 0;
}
int cuGetErrorName(int code, const char **text) { *text = code == 1 ? "CUDA_ERROR_INVALID_VALUE" : "CUDA_ERROR"; return 0; }
int cuMemAlloc_v2(uint64_t *address, size_t size) {
  *address = (uint64_t)(uintptr_t)aligned_alloc(256, (size + 255) / 256 * 256);
  return 0;
}
int cuMemFree_v2(uint64_t address) { free((void *)(uintptr_t)address); return 0; }
int cuMemcpyHtoD_v2(uint64_t to, const void *from, size_t size) { memcpy((void *)(uintptr_t)to, from, size); return 0; }
int cuMemcpyDtoH_v2(void *to, uint64_t from, size_t size) { memcpy(to, (void *)(uintptr_t)from, size); return 0; }
int cuMemsetD8Async(uint64_t to, unsigned char byte, size_t size, void *stream) {
  (void)stream;
  memset((void *)(uintptr_t)to, byte, size);
  return 0;
}
int cuModuleLoadData(void **module, const void *data) {
  if (fails("cuModuleLoadData")) return 1;
  *module = (void *)2;
  say("load %s %ld %ld\n", memcmp(data, "\177ELF", 4) == 0 ? "elf" : "other", 0, 0);
  return 0;
}
int cuModuleUnload(void *module) { (void)module; say("unload %s\n", "", 0, 0); return 0; }
int cuModuleGetFunction(void **function, void *module, const char *name) {
  (void)module;
  *function = (void *)3;
  say("function %s\n", name, 0, 0);
  return 0;
}
int cuFuncGetAttribute(int *value, int number, void *function) { (void)number, (void)function; *value = 1024; return 0; }
int cuFuncSetAttribute(void *function, int number, int value) {
  (void)function;
  say("set%s %ld %ld\n", "", number, value);
  return 0;
}
int cuFuncSetCacheConfig(void *function, int config) { (void)function; say("prefer%s %ld\n", "", config, 0); return 0; }
int cuEventCreate(void **event, unsigned flags) { (void)flags; *event = malloc(1); return 0; }
int cuEventRecord(void *event, void *stream) { (void)event, (void)stream; return 0; }
int cuEventSynchronize(void *event) { (void)event; return 0; }
int cuEventElapsedTime(float *ms, void *a, void *b) { (void)a, (void)b; *ms = 0.0125f; return 0; }
int cuEventElapsedTime_v2(float *ms, void *a, void *b) { return cuEventElapsedTime(ms, a, b); }
int cuEventDestroy_v2(void *event) { free(event); return 0; }
int cuTensorMapEncodeTiled(void *map, int type, uint32_t rank, void *address, const uint64_t *dims,
                           const uint64_t *strides, const uint32_t *box, const uint32_t *steps, int interleave,
                           int swizzle, int promotion, int fill) {
  (void)strides, (void)steps, (void)interleave, (void)swizzle, (void)promotion, (void)fill, (void)address, (void)dims;
  memset(map, 0, 128);
  memcpy(map, box, 4 * rank);
  say("map %s %ld %ld\n", "", type, rank);
  return 0;
}

int cuLaunchKernelEx(const Config *c, void *function, void **params, void **extra) {
  (void)function, (void)extra;
  if (fails("cuLaunchKernelEx")) return 1;
  const char *path = getenv("STUB_CUDA_LOG"), *sizes = getenv("STUB_CUDA_PARAMS");
  FILE *file = path ? fopen(path, "a") : NULL;
  if (file != NULL) {
    fprintf(file, "launch %u %u %u %u %u %u shared %u stream %ld", c->gx, c->gy, c->gz, c->bx, c->by, c->bz, c->shared,
            (long)(intptr_t)c->stream);
    for (unsigned i = 0; i < c->count; i++)
      fprintf(file, " attribute %d:%u,%u,%u", c->attributes[i].id, c->attributes[i].value[0],
              c->attributes[i].value[1], c->attributes[i].value[2]);
    for (int i = 0; sizes != NULL && *sizes; i++) {
      long size = strtol(sizes, (char **)&sizes, 10);
      fprintf(file, " ");
      for (long j = 0; j < size; j++) fprintf(file, "%02x", ((unsigned char *)params[i])[j]);
      if (*sizes == ',') sizes++;
    }
    fprintf(file, "\n");
    fclose(file);
  }
  if (getenv("STUB_CUDA_SCALE")) {
    float *x = *(float **)params[0], *y = *(float **)params[1], factor = *(float *)params[3];
    for (int i = 0; i < *(int *)params[2]; i++) y[i] = x[i] * factor;
  }
  return 0;
}
