/* A range of device addresses at a place that is asked for, and an allocator that goes through it from low to high.

   window_open(base, reserve, mapped, poison) reserves `reserve` bytes at `base`, maps the first `mapped` bytes and fills
   them with the byte `poison`; it gives 0, a CUresult, or -1 where the driver gave another place. window_alloc and
   window_free have the signatures of torch.cuda.memory.CUDAPluggableAllocator; nothing is used twice.  */
#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

typedef int CUresult;
typedef unsigned long long U64;
typedef struct { int type, id; } Location;
typedef struct {
  int type, handle_types; Location location; void *win32;
  struct { unsigned char compression, rdma; unsigned short usage; unsigned char reserved[4]; } flags;
} Properties;
typedef struct { Location location; int flags; } Access;

static U64 start, used, room;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void *symbol(const char *name) {
  static void *driver;
  if (!driver) driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
  return driver ? dlsym(driver, name) : NULL;
}
#define CALL(name, types, ...) ({ CUresult(*f_) types = (CUresult(*) types)symbol(#name); f_ ? f_(__VA_ARGS__) : 500; })
#define EXPORT __attribute__((visibility("default")))

EXPORT int window_reserve(U64 base, U64 bytes, U64 *given) {
  CUresult r = CALL(cuMemAddressReserve, (U64 *, size_t, size_t, U64, U64), given, bytes, 0, base, 0);
  return r ? r : *given == base ? 0 : -1;
}

EXPORT int window_map(U64 at, U64 bytes, int poison) {
  Properties p;
  Access a = {{1, 0}, 3}; /* a device's memory, read and written */
  U64 handle = 0;
  memset(&p, 0, sizeof p);
  p.type = 1; /* pinned */
  p.location = a.location;
  CUresult r = CALL(cuMemCreate, (U64 *, size_t, const Properties *, U64), &handle, bytes, &p, 0);
  if (!r) r = CALL(cuMemMap, (U64, size_t, size_t, U64, U64), at, bytes, 0, handle, 0);
  if (!r) r = CALL(cuMemSetAccess, (U64, size_t, const Access *, size_t), at, bytes, &a, 1);
  if (!r) r = CALL(cuMemsetD8_v2, (U64, unsigned char, size_t), at, (unsigned char)poison, bytes);
  return r;
}

EXPORT int window_open(U64 base, U64 reserve, U64 mapped, int poison) {
  U64 given = 0;
  int r = window_reserve(base, reserve, &given);
  if (!r) r = window_map(base, mapped, poison);
  if (!r) { start = base; room = mapped; used = 0; }
  return r;
}

EXPORT U64 window_used(void) { return used; }
EXPORT void window_seek(U64 at) { used = at; }

EXPORT void *window_alloc(size_t size, int device, void *stream) {
  (void)device; (void)stream;
  if (!size) return NULL;
  pthread_mutex_lock(&lock);
  U64 at = used, rounded = (size + 511) / 512 * 512;
  void *found = NULL;
  if (at + rounded <= room) { used += rounded; found = (void *)(uintptr_t)(start + at); }
  pthread_mutex_unlock(&lock);
  if (!found) fprintf(stderr, "the window is full: %zu bytes asked for, %llu of %llu used\n", size, at, room);
  return found;
}

EXPORT void window_free(void *pointer, size_t size, int device, void *stream) {
  (void)pointer; (void)size; (void)device; (void)stream;
}
