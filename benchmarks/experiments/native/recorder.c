/* A recorder of the CUDA driver's calls, there from a process's first call on (LD_PRELOAD).

   It takes the place of dlsym, of cuGetProcAddress and of the driver's exported functions, and writes one JSON line for
   each module load, allocation, graph and launch into the file that RECORDER_OUT names. It needs no CUDA header:
   the types below are the driver's binary interface (cuda.h of CUDA 12.4 and later).

   RECORDER_OUT   file of JSON lines
   RECORDER_CODE  folder for the code of functions that were launched while the level is 2; none without it
   recorder_level(0) counts, (1) writes launches with their parameters, (2) writes their code as well.  */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef int CUresult;
typedef void *H;
typedef unsigned U;
typedef unsigned long long U64;

typedef struct { U grid[3], block[3], smem; H stream; void *attrs; U num_attrs; } LaunchConfig;
typedef struct { H func; U grid[3], block[3], smem; void **params; void **extra; H kern, ctx; } NodeParams;
enum { LAUNCH_ATTRIBUTE_BYTES = 72, MOST_PARAMS = 512, MOST_SLOTS = 4, COPIED_CODE = 16 << 20 };

/* Recursive: what the driver is asked under the lock may ask dlsym for a name that is watched. */
static pthread_mutex_t lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static FILE *out;
static pid_t writer; /* a fork has the buffer too, and must not write it again */
static int level;
static U64 counts[16];
enum { C_MODULES, C_LAUNCHES, C_CAPTURED, C_GRAPH_LAUNCHES, C_GRAPH_KERNELS, C_ALLOCATIONS, C_MEMORY_OPERATIONS,
       C_NO_PARAMETERS, C_NO_CODE, C_NO_NAME, C_GRAPHS, C_UNKNOWN_GRAPHS, C_KERNEL_HANDLES };

static void *(*real_dlsym)(void *, const char *);
static void *driver;

static void *(*find_dlsym(void))(void *, const char *) {
  if (!real_dlsym) {
    real_dlsym = (void *(*)(void *, const char *))dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
    if (!real_dlsym) real_dlsym = (void *(*)(void *, const char *))dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34");
  }
  return real_dlsym;
}

static void *driver_symbol(const char *name) {
  if (!driver) driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
  return driver ? find_dlsym()(driver, name) : NULL;
}

#define ASK(name, type, ...)                                                                          \
  ({ static type f_; if (!f_) f_ = (type)driver_symbol(#name); f_ ? f_(__VA_ARGS__) : 500; })

/* ---- small tables: address -> number, by linear search over open hashing ---- */
typedef struct { void *key; long value; } Pair;
typedef struct { Pair *pairs; size_t room, used; } Table;

static Pair *place(Table *t, void *key) {
  size_t i = ((uintptr_t)key >> 4) * 0x9E3779B97F4A7C15ull % t->room;
  while (t->pairs[i].key && t->pairs[i].key != key) i = (i + 1) % t->room;
  return &t->pairs[i];
}
static void put(Table *t, void *key, long value) {
  if (t->used * 2 >= t->room) {
    Table bigger = {calloc(t->room ? t->room * 4 : 4096, sizeof(Pair)), t->room ? t->room * 4 : 4096, 0};
    for (size_t i = 0; i < t->room; i++)
      if (t->pairs[i].key) { *place(&bigger, t->pairs[i].key) = t->pairs[i]; bigger.used++; }
    free(t->pairs);
    *t = bigger;
  }
  Pair *p = place(t, key);
  if (!p->key) t->used++;
  p->key = key;
  p->value = value;
}
static long get(Table *t, void *key) {
  if (!t->room) return -1;
  Pair *p = place(t, key);
  return p->key ? p->value : -1;
}

/* ---- code ---- */
typedef struct { const void *data; size_t size; U64 hash; char kind[10]; char file[256]; U64 offset; int written; } Code;
static Code *codes;
static long num_codes;
static Table code_of_module, kernels, functions;

static U64 hash_of(const void *data, size_t size) { /* FNV-1a, 64 bits */
  U64 h = 0xcbf29ce484222325ull;
  for (size_t i = 0; i < size; i++) h = (h ^ ((const unsigned char *)data)[i]) * 0x100000001b3ull;
  return h;
}

static size_t elf_size(const unsigned char *p) {
  uint64_t phoff, shoff; uint16_t phsize, phnum, shsize, shnum;
  memcpy(&phoff, p + 32, 8); memcpy(&shoff, p + 40, 8);
  memcpy(&phsize, p + 54, 2); memcpy(&phnum, p + 56, 2); memcpy(&shsize, p + 58, 2); memcpy(&shnum, p + 60, 2);
  size_t end = shoff + (size_t)shsize * shnum, other = phoff + (size_t)phsize * phnum;
  if (other > end) end = other;
  for (int i = 0; i < shnum; i++) {
    uint32_t type; uint64_t offset, size;
    memcpy(&type, p + shoff + (size_t)i * shsize + 4, 4);
    memcpy(&offset, p + shoff + (size_t)i * shsize + 24, 8);
    memcpy(&size, p + shoff + (size_t)i * shsize + 32, 8);
    if (type != 8 && offset + size > end) end = offset + size;
  }
  return end;
}

static long add_code(const void *image, const char *path) {
  codes = realloc(codes, sizeof(Code) * (num_codes + 1));
  Code *c = &codes[num_codes];
  memset(c, 0, sizeof *c);
  const unsigned char *p = image;
  if (path) { /* read now: the file may be gone when the function is launched */
    FILE *file = fopen(path, "rb");
    strcpy(c->kind, "file");
    snprintf(c->file, sizeof c->file, "%s", path);
    if (file && !fseek(file, 0, SEEK_END)) {
      void *copy = malloc(c->size = (size_t)ftell(file));
      rewind(file);
      if (fread(copy, 1, c->size, file) == c->size) { c->data = copy; c->hash = hash_of(copy, c->size); }
    }
    if (file) fclose(file);
    return num_codes++;
  }
  uint32_t magic;
  memcpy(&magic, p, 4);
  if (magic == 0x466243b1) { memcpy(&p, p + 8, 8); memcpy(&magic, p, 4); strcpy(c->kind, "wrapped"); }
  if (magic == 0xba55ed50) {
    uint16_t head; uint64_t fat;
    memcpy(&head, p + 6, 2); memcpy(&fat, p + 8, 8);
    c->size = head + fat;
    if (!c->kind[0]) strcpy(c->kind, "fatbin");
  } else if (magic == 0x464c457f) { c->size = elf_size(p); strcpy(c->kind, "cubin"); }
  else { c->size = strlen((const char *)p) + 1; strcpy(c->kind, "ptx"); }
  Dl_info info;
  if (dladdr(p, &info) && info.dli_fname) {
    snprintf(c->file, sizeof c->file, "%s", info.dli_fname);
    c->offset = (U64)((uintptr_t)p - (uintptr_t)info.dli_fbase);
  }
  if (c->file[0]) c->data = p; /* lies in a mapped library: stays where it is */
  else { void *copy = malloc(c->size); memcpy(copy, p, c->size); c->data = copy; }
  c->hash = hash_of(c->data, c->size > COPIED_CODE ? COPIED_CODE : c->size);
  return num_codes++;
}

static void line_begin(void) {
  if (out) return;
  const char *name = getenv("RECORDER_OUT");
  char path[512];
  snprintf(path, sizeof path, "%s.%d", name ? name : "/dev/null", (int)getpid());
  out = fopen(name ? path : "/dev/null", "w");
  if (!out) out = fopen("/dev/null", "w");
  setvbuf(out, NULL, _IOFBF, 1 << 20);
  writer = getpid();
}
static void string_out(const char *s) {
  fputc('"', out);
  for (; s && *s; s++)
    if (*s == '"' || *s == '\\') fprintf(out, "\\%c", *s);
    else if ((unsigned char)*s < 32) fprintf(out, "\\u%04x", *s);
    else fputc(*s, out);
  fputc('"', out);
}
static void hex_out(const void *data, size_t n) {
  fputc('"', out);
  for (size_t i = 0; i < n; i++) fprintf(out, "%02x", ((const unsigned char *)data)[i]);
  fputc('"', out);
}

static void loaded(H module, const void *image, const char *path, const char *by, int is_kernel_library) {
  pthread_mutex_lock(&lock);
  line_begin();
  counts[C_MODULES]++;
  long id = add_code(image, path);
  put(&code_of_module, module, id);
  Code *c = &codes[id];
  fprintf(out, "{\"what\":\"module\",\"by\":\"%s\",\"handle\":%llu,\"code\":%ld,\"kind\":\"%s\",\"size\":%zu,\"hash\":\"%016llx\","
          "\"file\":", by, (U64)(uintptr_t)module, id, c->kind, c->size, c->hash);
  string_out(c->file);
  fprintf(out, ",\"offset\":%llu,\"library\":%d}\n", c->offset, is_kernel_library);
  pthread_mutex_unlock(&lock);
}

/* ---- functions ---- */
typedef struct { char *name; long code; int known_params, num; size_t offset[MOST_PARAMS], size[MOST_PARAMS]; int said; } Fn;
static Fn **fns;
static long num_fns;

typedef CUresult (*NameF)(const char **, H);
typedef CUresult (*ParamF)(H, size_t, size_t *, size_t *);
typedef CUresult (*OfF)(H *, H);

static Fn *function_of(H handle) { /* called with the lock held */
  long at = get(&functions, handle);
  if (at >= 0) return fns[at];
  Fn *f = calloc(1, sizeof *f);
  fns = realloc(fns, sizeof(Fn *) * (num_fns + 1));
  fns[num_fns] = f;
  put(&functions, handle, num_fns++);
  f->code = -1;
  const char *name = NULL;
  H owner = NULL;
  int is_kernel = get(&kernels, handle) >= 0;
  if (!is_kernel && ASK(cuFuncGetName, NameF, &name, handle) != 0) is_kernel = 1;
  if (is_kernel) {
    counts[C_KERNEL_HANDLES]++;
    if (ASK(cuKernelGetName, NameF, &name, handle) != 0) name = NULL;
    if (ASK(cuKernelGetLibrary, OfF, &owner, handle) == 0) f->code = get(&code_of_module, owner);
  } else {
    if (ASK(cuFuncGetModule, OfF, &owner, handle) == 0) f->code = get(&code_of_module, owner);
  }
  f->name = name ? strdup(name) : NULL;
  f->known_params = 1;
  for (f->num = 0; f->num < MOST_PARAMS; f->num++) {
    CUresult r = is_kernel ? ASK(cuKernelGetParamInfo, ParamF, handle, f->num, &f->offset[f->num], &f->size[f->num])
                           : ASK(cuFuncGetParamInfo, ParamF, handle, f->num, &f->offset[f->num], &f->size[f->num]);
    if (r == 1) break; /* CUDA_ERROR_INVALID_VALUE: the index is past the last parameter */
    if (r != 0) { f->known_params = 0; break; }
  }
  return f;
}

static void code_out(Fn *f) {
  const char *folder = getenv("RECORDER_CODE");
  if (level < 2 || f->code < 0 || !folder || codes[f->code].written || !codes[f->code].data) return;
  Code *c = &codes[f->code];
  char path[512];
  snprintf(path, sizeof path, "%s/%016llx.%s", folder, c->hash, c->kind);
  FILE *file = fopen(path, "wb");
  if (file) { fwrite(c->data, 1, c->size, file); fclose(file); c->written = 1; }
}

static void launch_line(const char *what, H func, const U *grid, const U *block, U smem, H stream, void **params,
                        void **extra, const void *attrs, U num_attrs, int captured, const char *by) {
  Fn *f = function_of(func);
  unsigned char bytes[8192];
  size_t total = 0;
  int known = f->known_params;
  memset(bytes, 0, sizeof bytes);
  if (known && params)
    for (int i = 0; i < f->num; i++) {
      if (f->offset[i] + f->size[i] > sizeof bytes) { known = 0; break; }
      memcpy(bytes + f->offset[i], params[i], f->size[i]);
      if (f->offset[i] + f->size[i] > total) total = f->offset[i] + f->size[i];
    }
  else if (extra) {
    void *buffer = NULL;
    for (int i = 0; extra[i]; i += 2) {
      if (extra[i] == (void *)1) buffer = extra[i + 1];
      if (extra[i] == (void *)2) total = *(size_t *)extra[i + 1];
    }
    if (buffer && total <= sizeof bytes) memcpy(bytes, buffer, total); else known = 0;
  } else if (f->num) known = 0;
  if (!known) counts[C_NO_PARAMETERS]++;
  if (f->code < 0) counts[C_NO_CODE]++;
  if (!f->name) counts[C_NO_NAME]++;
  if (level < 1) return;
  line_begin();
  code_out(f);
  fprintf(out, "{\"what\":\"%s\",\"by\":\"%s\",\"name\":", what, by);
  string_out(f->name);
  fprintf(out, ",\"code\":%ld,\"hash\":\"%016llx\",\"kind\":\"%s\",\"grid\":[%u,%u,%u],\"block\":[%u,%u,%u],\"smem\":%u,"
          "\"stream\":%llu,\"captured\":%d,\"known\":%d,\"params\":", f->code, f->code < 0 ? 0 : codes[f->code].hash,
          f->code < 0 ? "" : codes[f->code].kind, grid[0], grid[1], grid[2], block[0], block[1], block[2], smem,
          (U64)(uintptr_t)stream, captured, known);
  hex_out(bytes, total);
  fprintf(out, ",\"layout\":[");
  for (int i = 0; i < f->num; i++) fprintf(out, "%s[%zu,%zu]", i ? "," : "", f->offset[i], f->size[i]);
  fprintf(out, "],\"attributes\":[");
  for (U i = 0; i < num_attrs; i++) {
    const unsigned char *a = (const unsigned char *)attrs + (size_t)i * LAUNCH_ATTRIBUTE_BYTES;
    int id;
    memcpy(&id, a, 4);
    fprintf(out, "%s[%d,", i ? "," : "", id);
    hex_out(a + 8, 64);
    fprintf(out, "]");
  }
  fprintf(out, "]}\n");
}

/* ---- graphs ---- */
static Table kernels_of_exec;

typedef CUresult (*NodesF)(H, H *, size_t *);
typedef CUresult (*TypeF)(H, int *);
typedef CUresult (*NodeF)(H, NodeParams *);

static long walk(H graph) {
  size_t n = 0;
  long found = 0;
  if (ASK(cuGraphGetNodes, NodesF, graph, NULL, &n) != 0) return -1;
  H *nodes = malloc(sizeof(H) * (n + 1));
  ASK(cuGraphGetNodes, NodesF, graph, nodes, &n);
  for (size_t i = 0; i < n; i++) {
    int type = -1;
    ASK(cuGraphNodeGetType, TypeF, nodes[i], &type);
    if (type == 0) {
      NodeParams p;
      memset(&p, 0, sizeof p);
      found++;
      if (ASK(cuGraphKernelNodeGetParams_v2, NodeF, nodes[i], &p) == 0)
        launch_line("node", p.kern ? p.kern : p.func, p.grid, p.block, p.smem, NULL, p.params, p.extra, NULL, 0, 0, "graph");
    } else if (type == 4) {
      typedef CUresult (*ChildF)(H, H *);
      H child = NULL;
      long k = ASK(cuGraphChildGraphNodeGetGraph, ChildF, nodes[i], &child) == 0 ? walk(child) : -1;
      if (k > 0) found += k;
    }
  }
  free(nodes);
  return found;
}

static void instantiated(H exec, H graph) {
  pthread_mutex_lock(&lock);
  line_begin();
  counts[C_GRAPHS]++;
  long n = walk(graph);
  put(&kernels_of_exec, exec, n);
  fprintf(out, "{\"what\":\"graph\",\"exec\":%llu,\"kernels\":%ld}\n", (U64)(uintptr_t)exec, n);
  pthread_mutex_unlock(&lock);
}

static int capturing(H stream, int per_thread) {
  typedef CUresult (*CapturingF)(H, int *);
  int status = 0;
  if (per_thread) ASK(cuStreamIsCapturing_ptsz, CapturingF, stream, &status);
  else ASK(cuStreamIsCapturing, CapturingF, stream, &status);
  return status == 1;
}

static void launched(const char *by, H f, const U *g, const U *b, U smem, H stream, void **params, void **extra,
                     const void *attrs, U n) {
  /* Asking the legacy stream whether it is captured fails while another one is; that is an answer too: it isn't. */
  int is_captured = capturing(stream, 0);
  pthread_mutex_lock(&lock);
  counts[is_captured ? C_CAPTURED : C_LAUNCHES]++;
  launch_line("launch", f, g, b, smem, stream, params, extra, attrs, n, is_captured, by);
  pthread_mutex_unlock(&lock);
}

static void allocated(const char *by, U64 at, size_t size) {
  pthread_mutex_lock(&lock);
  line_begin();
  counts[C_ALLOCATIONS]++;
  fprintf(out, "{\"what\":\"allocation\",\"by\":\"%s\",\"at\":%llu,\"size\":%zu}\n", by, at, size);
  pthread_mutex_unlock(&lock);
}

static void memory_operation(const char *by, U64 to, U64 from, U64 value, size_t n, H stream, int host_source) {
  pthread_mutex_lock(&lock);
  counts[C_MEMORY_OPERATIONS]++;
  if (level > 0) {
    line_begin();
    fprintf(out, "{\"what\":\"memory\",\"by\":\"%s\",\"to\":%llu,\"from\":%llu,\"value\":%llu,\"n\":%zu,\"stream\":%llu", by,
            to, from, value, n, (U64)(uintptr_t)stream);
    if (host_source && n <= 1 << 20) { fprintf(out, ",\"bytes\":"); hex_out((void *)(uintptr_t)from, n); }
    fprintf(out, "}\n");
  }
  pthread_mutex_unlock(&lock);
}

/* ---- hooks: each has MOST_SLOTS wrappers, one for each address that the driver gives for the name ---- */
typedef struct { const char *name; void *wrapper[MOST_SLOTS]; void **real; } Hook;

/* The wrappers are written out by name so that each knows its slot. P: parameters with types, A: arguments. */
#define WRAP(name, slot, P, A, before, after)                                                                   \
  static CUresult w##slot##_##name P {                                                                          \
    before;                                                                                                     \
    CUresult r_ = ((CUresult(*) P)real_##name[slot])A;                                                          \
    after;                                                                                                      \
    return r_;                                                                                                  \
  }
#define EXPORT(name, symbol, P, A)                                                                              \
  __attribute__((visibility("default"))) CUresult symbol P {                                                    \
    static CUresult(*f_) P;                                                                                     \
    if (!f_) f_ = (CUresult(*) P)hooked(#name, driver_symbol(#symbol));                                         \
    return f_ ? f_ A : 500;                                                                                     \
  }
static void *hooked(const char *name, void *real);
#define DEFINE(name, symbol, P, A, before, after)                                                               \
  static void *real_##name[MOST_SLOTS];                                                                         \
  WRAP(name, 0, P, A, before, after) WRAP(name, 1, P, A, before, after)                                         \
  WRAP(name, 2, P, A, before, after) WRAP(name, 3, P, A, before, after) EXPORT(name, symbol, P, A)
#define ROW(name) {#name, {(void *)w0_##name, (void *)w1_##name, (void *)w2_##name, (void *)w3_##name}, real_##name}
#define PLAIN (void)0
#define THREE(x, y, z) ((const U[3]){x, y, z})

DEFINE(cuLaunchKernel, cuLaunchKernel,
       (H f, U gx, U gy, U gz, U bx, U by, U bz, U smem, H stream, void **params, void **extra),
       (f, gx, gy, gz, bx, by, bz, smem, stream, params, extra),
       launched("cuLaunchKernel", f, THREE(gx, gy, gz), THREE(bx, by, bz), smem, stream, params, extra, NULL, 0), PLAIN)
DEFINE(cuLaunchCooperativeKernel, cuLaunchCooperativeKernel,
       (H f, U gx, U gy, U gz, U bx, U by, U bz, U smem, H stream, void **params),
       (f, gx, gy, gz, bx, by, bz, smem, stream, params),
       launched("cuLaunchCooperativeKernel", f, THREE(gx, gy, gz), THREE(bx, by, bz), smem, stream, params, NULL, NULL, 0),
       PLAIN)
DEFINE(cuLaunchKernelEx, cuLaunchKernelEx, (const LaunchConfig *c, H f, void **params, void **extra),
       (c, f, params, extra),
       launched("cuLaunchKernelEx", f, c->grid, c->block, c->smem, c->stream, params, extra, c->attrs, c->num_attrs), PLAIN)
DEFINE(cuGraphLaunch, cuGraphLaunch, (H exec, H stream), (exec, stream), {
  pthread_mutex_lock(&lock);
  line_begin();
  long n = get(&kernels_of_exec, exec);
  counts[C_GRAPH_LAUNCHES]++;
  if (n < 0) counts[C_UNKNOWN_GRAPHS]++; else counts[C_GRAPH_KERNELS] += n;
  if (level > 0) fprintf(out, "{\"what\":\"graph_launch\",\"exec\":%llu,\"kernels\":%ld}\n", (U64)(uintptr_t)exec, n);
  pthread_mutex_unlock(&lock); }, PLAIN)
/* Versions with three and with five parameters share registers; what a version doesn't have is ignored by it. */
DEFINE(cuGraphInstantiate, cuGraphInstantiate_v2, (H *exec, H graph, void *a, void *b, void *c), (exec, graph, a, b, c),
       PLAIN, if (!r_) instantiated(*exec, graph))
DEFINE(cuGraphInstantiateWithFlags, cuGraphInstantiateWithFlags, (H *exec, H graph, U64 flags), (exec, graph, flags),
       PLAIN, if (!r_) instantiated(*exec, graph))
DEFINE(cuGraphInstantiateWithParams, cuGraphInstantiateWithParams, (H *exec, H graph, void *p), (exec, graph, p),
       PLAIN, if (!r_) instantiated(*exec, graph))
DEFINE(cuGraphExecUpdate, cuGraphExecUpdate_v2, (H exec, H graph, void *result), (exec, graph, result),
       PLAIN, if (!r_) instantiated(exec, graph))
DEFINE(cuModuleLoad, cuModuleLoad, (H *m, const char *path), (m, path), PLAIN,
       if (!r_) loaded(*m, NULL, path, "cuModuleLoad", 0))
DEFINE(cuModuleLoadData, cuModuleLoadData, (H *m, const void *image), (m, image), PLAIN,
       if (!r_) loaded(*m, image, NULL, "cuModuleLoadData", 0))
DEFINE(cuModuleLoadDataEx, cuModuleLoadDataEx, (H *m, const void *image, U n, void *o, void *v), (m, image, n, o, v), PLAIN,
       if (!r_) loaded(*m, image, NULL, "cuModuleLoadDataEx", 0))
DEFINE(cuModuleLoadFatBinary, cuModuleLoadFatBinary, (H *m, const void *image), (m, image), PLAIN,
       if (!r_) loaded(*m, image, NULL, "cuModuleLoadFatBinary", 0))
DEFINE(cuLibraryLoadData, cuLibraryLoadData,
       (H *l, const void *code, void *o, void *v, U n, void *lo, void *lv, U ln), (l, code, o, v, n, lo, lv, ln), PLAIN,
       if (!r_) loaded(*l, code, NULL, "cuLibraryLoadData", 1))
DEFINE(cuLibraryLoadFromFile, cuLibraryLoadFromFile,
       (H *l, const char *path, void *o, void *v, U n, void *lo, void *lv, U ln), (l, path, o, v, n, lo, lv, ln), PLAIN,
       if (!r_) loaded(*l, NULL, path, "cuLibraryLoadFromFile", 1))
#define FORGET(handle)                                                                                          \
  { pthread_mutex_lock(&lock); memset(functions.pairs, 0, functions.room * sizeof(Pair)); functions.used = 0;   \
    pthread_mutex_unlock(&lock); }
DEFINE(cuModuleUnload, cuModuleUnload, (H m), (m), FORGET(m), PLAIN)
DEFINE(cuLibraryUnload, cuLibraryUnload, (H m), (m), FORGET(m), PLAIN)
DEFINE(cuLibraryGetModule, cuLibraryGetModule, (H *m, H l), (m, l), PLAIN, if (!r_) {
  pthread_mutex_lock(&lock);
  long id = get(&code_of_module, l);
  if (id >= 0) put(&code_of_module, *m, id);
  pthread_mutex_unlock(&lock); })
#define KERNEL(k) { pthread_mutex_lock(&lock); put(&kernels, k, 1); pthread_mutex_unlock(&lock); }
DEFINE(cuLibraryGetKernel, cuLibraryGetKernel, (H *k, H l, const char *name), (k, l, name), PLAIN, if (!r_) KERNEL(*k))
DEFINE(cuLibraryEnumerateKernels, cuLibraryEnumerateKernels, (H *k, U n, H l), (k, n, l), PLAIN,
       if (!r_) for (U i = 0; i < n; i++) KERNEL(k[i]))
static void function_given(H function, H kernel) { /* its module has the code of the kernel's library */
  H library = NULL, module = NULL;
  if (ASK(cuKernelGetLibrary, OfF, &library, kernel) != 0 || ASK(cuFuncGetModule, OfF, &module, function) != 0) return;
  pthread_mutex_lock(&lock);
  long id = get(&code_of_module, library);
  if (id >= 0) put(&code_of_module, module, id);
  pthread_mutex_unlock(&lock);
}
DEFINE(cuKernelGetFunction, cuKernelGetFunction, (H *f, H k), (f, k), PLAIN, if (!r_) function_given(*f, k))
DEFINE(cuMemAlloc, cuMemAlloc_v2, (U64 *p, size_t n), (p, n), PLAIN, if (!r_) allocated("cuMemAlloc", *p, n))
DEFINE(cuMemAllocPitch, cuMemAllocPitch_v2, (U64 *p, size_t *pitch, size_t w, size_t h, U e), (p, pitch, w, h, e), PLAIN,
       if (!r_) allocated("cuMemAllocPitch", *p, *pitch * h))
DEFINE(cuMemAllocManaged, cuMemAllocManaged, (U64 *p, size_t n, U f), (p, n, f), PLAIN,
       if (!r_) allocated("cuMemAllocManaged", *p, n))
DEFINE(cuMemAllocAsync, cuMemAllocAsync, (U64 *p, size_t n, H s), (p, n, s), PLAIN,
       if (!r_) allocated("cuMemAllocAsync", *p, n))
DEFINE(cuMemAllocFromPoolAsync, cuMemAllocFromPoolAsync, (U64 *p, size_t n, H pool, H s), (p, n, pool, s), PLAIN,
       if (!r_) allocated("cuMemAllocFromPoolAsync", *p, n))
DEFINE(cuMemMap, cuMemMap, (U64 p, size_t n, size_t o, U64 h, U64 f), (p, n, o, h, f), PLAIN,
       if (!r_) allocated("cuMemMap", p, n))
DEFINE(cuMemHostAlloc, cuMemHostAlloc, (void **p, size_t n, U f), (p, n, f), PLAIN,
       if (!r_) allocated("cuMemHostAlloc", (U64)(uintptr_t)*p, n))
DEFINE(cuMemAllocHost, cuMemAllocHost_v2, (void **p, size_t n), (p, n), PLAIN,
       if (!r_) allocated("cuMemAllocHost", (U64)(uintptr_t)*p, n))
DEFINE(cuMemHostRegister, cuMemHostRegister_v2, (void *p, size_t n, U f), (p, n, f), PLAIN,
       if (!r_) allocated("cuMemHostRegister", (U64)(uintptr_t)p, n))
DEFINE(cuMemsetD8Async, cuMemsetD8Async, (U64 to, unsigned char v, size_t n, H s), (to, v, n, s),
       memory_operation("cuMemsetD8Async", to, 0, v, n, s, 0), PLAIN)
DEFINE(cuMemsetD16Async, cuMemsetD16Async, (U64 to, unsigned short v, size_t n, H s), (to, v, n, s),
       memory_operation("cuMemsetD16Async", to, 0, v, n, s, 0), PLAIN)
DEFINE(cuMemsetD32Async, cuMemsetD32Async, (U64 to, U v, size_t n, H s), (to, v, n, s),
       memory_operation("cuMemsetD32Async", to, 0, v, n, s, 0), PLAIN)
DEFINE(cuMemcpyDtoDAsync, cuMemcpyDtoDAsync_v2, (U64 to, U64 from, size_t n, H s), (to, from, n, s),
       memory_operation("cuMemcpyDtoDAsync", to, from, 0, n, s, 0), PLAIN)
DEFINE(cuMemcpyHtoDAsync, cuMemcpyHtoDAsync_v2, (U64 to, const void *from, size_t n, H s), (to, from, n, s),
       memory_operation("cuMemcpyHtoDAsync", to, (U64)(uintptr_t)from, 0, n, s, 1), PLAIN)
DEFINE(cuMemcpyDtoHAsync, cuMemcpyDtoHAsync_v2, (void *to, U64 from, size_t n, H s), (to, from, n, s),
       memory_operation("cuMemcpyDtoHAsync", (U64)(uintptr_t)to, from, 0, n, s, 0), PLAIN)
DEFINE(cuMemcpyAsync, cuMemcpyAsync, (U64 to, U64 from, size_t n, H s), (to, from, n, s),
       memory_operation("cuMemcpyAsync", to, from, 0, n, s, 0), PLAIN)

static Hook hooks[] = {
    ROW(cuLaunchKernel), ROW(cuLaunchCooperativeKernel), ROW(cuLaunchKernelEx), ROW(cuGraphLaunch), ROW(cuGraphInstantiate),
    ROW(cuGraphInstantiateWithFlags), ROW(cuGraphInstantiateWithParams), ROW(cuGraphExecUpdate), ROW(cuModuleLoad),
    ROW(cuModuleLoadData), ROW(cuModuleLoadDataEx), ROW(cuModuleLoadFatBinary), ROW(cuLibraryLoadData),
    ROW(cuLibraryLoadFromFile), ROW(cuModuleUnload), ROW(cuLibraryUnload), ROW(cuLibraryGetModule), ROW(cuLibraryGetKernel),
    ROW(cuLibraryEnumerateKernels), ROW(cuKernelGetFunction), ROW(cuMemAlloc), ROW(cuMemAllocPitch), ROW(cuMemAllocManaged),
    ROW(cuMemAllocAsync), ROW(cuMemAllocFromPoolAsync), ROW(cuMemMap), ROW(cuMemHostAlloc), ROW(cuMemAllocHost),
    ROW(cuMemHostRegister), ROW(cuMemsetD8Async), ROW(cuMemsetD16Async), ROW(cuMemsetD32Async), ROW(cuMemcpyDtoDAsync),
    ROW(cuMemcpyHtoDAsync), ROW(cuMemcpyDtoHAsync), ROW(cuMemcpyAsync)};

/* The wrapper of NAME for the driver's address REAL; REAL itself where NAME isn't watched or no slot is free. */
static void *hooked(const char *name, void *real) {
  if (!real || !name) return real;
  char base[96];
  snprintf(base, sizeof base, "%s", name);
  char *tail = strstr(base, "_ptsz");
  if (!tail) tail = strstr(base, "_ptds");
  if (tail) *tail = 0;
  size_t n = strlen(base);
  if (n > 3 && base[n - 3] == '_' && base[n - 2] == 'v') base[n - 3] = 0;
  for (size_t i = 0; i < sizeof hooks / sizeof *hooks; i++) {
    if (strcmp(hooks[i].name, base)) continue;
    pthread_mutex_lock(&lock);
    void *found = real;
    for (int s = 0; s < MOST_SLOTS; s++) {
      if (real == hooks[i].wrapper[s]) break;
      if (!hooks[i].real[s] || hooks[i].real[s] == real) { hooks[i].real[s] = real; found = hooks[i].wrapper[s]; break; }
    }
    pthread_mutex_unlock(&lock);
    return found;
  }
  return real;
}

static CUresult (*real_address_v2)(const char *, void **, int, U64, int *);
static CUresult (*real_address_v1)(const char *, void **, int, U64);
static CUresult address_v2(const char *name, void **at, int version, U64 flags, int *status);
static CUresult address_v1(const char *name, void **at, int version, U64 flags);

static void replace(const char *name, void **at, int version) {
  if (!strcmp(name, "cuGetProcAddress")) *at = version >= 12000 ? (void *)address_v2 : (void *)address_v1;
  else *at = hooked(name, *at);
}
static CUresult address_v2(const char *name, void **at, int version, U64 flags, int *status) {
  if (!real_address_v2) *(void **)&real_address_v2 = driver_symbol("cuGetProcAddress_v2");
  CUresult r = real_address_v2(name, at, version, flags, status);
  if (!r && at && *at) replace(name, at, version);
  return r;
}
static CUresult address_v1(const char *name, void **at, int version, U64 flags) {
  if (!real_address_v1) *(void **)&real_address_v1 = driver_symbol("cuGetProcAddress");
  CUresult r = real_address_v1(name, at, version, flags);
  if (!r && at && *at) replace(name, at, version);
  return r;
}
__attribute__((visibility("default"))) CUresult cuGetProcAddress_v2(const char *n, void **a, int v, U64 f, int *s) {
  return address_v2(n, a, v, f, s);
}
__attribute__((visibility("default"))) CUresult cuGetProcAddress(const char *n, void **a, int v, U64 f) {
  return address_v1(n, a, v, f);
}

__attribute__((visibility("default"), optimize("O2"))) void *dlsym(void *handle, const char *name) {
  if (!real_dlsym) find_dlsym();
  /* Every other name goes on by a jump, so that RTLD_NEXT still means the caller's own place. */
  if (name[0] != 'c' || name[1] != 'u' || name[2] < 'A' || name[2] > 'Z') return real_dlsym(handle, name);
  void *real = real_dlsym(handle, name);
  if (!real) return real;
  if (!strcmp(name, "cuGetProcAddress_v2")) return (void *)address_v2;
  if (!strcmp(name, "cuGetProcAddress")) return (void *)address_v1;
  Dl_info info, own;
  if (dladdr(real, &info) && dladdr((void *)hooked, &own) && info.dli_fbase == own.dli_fbase) return real;
  return hooked(name, real);
}

__attribute__((visibility("default"))) void recorder_level(int n) { level = n; }
__attribute__((visibility("default"))) void recorder_counts(U64 *to) { memcpy(to, counts, sizeof counts); }
__attribute__((visibility("default"))) void recorder_mark(const char *text) {
  pthread_mutex_lock(&lock);
  line_begin();
  fprintf(out, "{\"what\":\"mark\",\"text\":");
  string_out(text);
  fprintf(out, "}\n");
  fflush(out);
  pthread_mutex_unlock(&lock);
}
__attribute__((destructor)) static void end(void) {
  if (!out) return;
  if (writer == getpid()) fflush(out);
  else {
    int nowhere = open("/dev/null", O_WRONLY);
    if (nowhere >= 0) dup2(nowhere, fileno(out));
  }
}
