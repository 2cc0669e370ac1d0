/* A range of device addresses at a place that is asked for, and an allocator that goes through it from low to high.

   window_open(base, reserve, mapped, poison) reserves `reserve` bytes at `base`, maps the first `mapped` bytes and fills
   them with the byte `poison`; it gives 0, a CUresult, or -1 where the driver gave another place. window_alloc and
   window_free have the signatures of torch.cuda.memory.CUDAPluggableAllocator: the same calls in the same order give the
   same layout in every window. Nothing waits for streams: a freed block may be given to work of another stream.  */
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

/* Blocks below the highest one in use that were freed, by address; neighbours are one block. */
typedef struct { U64 at, bytes; } Block;
enum { MOST_FREE = 65536, ALIGNED = 512 };
static Block gaps[MOST_FREE];
static size_t num_gaps;
static U64 lowest; /* what lies below isn't given again: the slots of earlier calls */

EXPORT void window_seek(U64 at) { used = lowest = at; num_gaps = 0; }

EXPORT int window_open(U64 base, U64 reserve, U64 mapped, int poison) {
  U64 given = 0;
  int r = window_reserve(base, reserve, &given);
  if (!r) r = window_map(base, mapped, poison);
  if (!r) { start = base; room = mapped; window_seek(0); }
  return r;
}

EXPORT U64 window_used(void) { return used; } /* up to the highest byte that was ever given */

static U64 rounded(size_t size) { return ((U64)size + ALIGNED - 1) / ALIGNED * ALIGNED; }

EXPORT void *window_alloc(size_t size, int device, void *stream) { /* the lowest gap that is large enough, or the end */
  (void)device; (void)stream;
  if (!size) return NULL;
  U64 bytes = rounded(size), at = 0;
  size_t i = 0;
  pthread_mutex_lock(&lock);
  while (i < num_gaps && gaps[i].bytes < bytes) i++;
  int full = 0;
  if (i < num_gaps) {
    at = gaps[i].at;
    gaps[i].at += bytes;
    gaps[i].bytes -= bytes;
    if (!gaps[i].bytes) memmove(&gaps[i], &gaps[i + 1], (--num_gaps - i) * sizeof *gaps);
  } else if (used + bytes <= room) {
    at = used;
    used += bytes;
  } else full = 1;
  pthread_mutex_unlock(&lock);
  if (full) fprintf(stderr, "the window is full: %zu bytes asked for, %llu of %llu used\n", size, used, room);
  return full ? NULL : (void *)(uintptr_t)(start + at);
}

EXPORT void window_free(void *pointer, size_t size, int device, void *stream) {
  (void)device; (void)stream;
  U64 at = (U64)(uintptr_t)pointer - start, bytes = rounded(size);
  if (!pointer || !size || at < lowest) return;
  pthread_mutex_lock(&lock);
  size_t i = 0;
  while (i < num_gaps && gaps[i].at < at) i++;
  if (i && gaps[i - 1].at + gaps[i - 1].bytes == at) gaps[--i].bytes += bytes;
  else if (num_gaps < MOST_FREE) {
    memmove(&gaps[i + 1], &gaps[i], (num_gaps++ - i) * sizeof *gaps);
    gaps[i] = (Block){at, bytes};
  } else { pthread_mutex_unlock(&lock); return; }
  if (i + 1 < num_gaps && gaps[i].at + gaps[i].bytes == gaps[i + 1].at) {
    gaps[i].bytes += gaps[i + 1].bytes;
    memmove(&gaps[i + 1], &gaps[i + 2], (--num_gaps - i - 1) * sizeof *gaps);
  }
  pthread_mutex_unlock(&lock);
}
