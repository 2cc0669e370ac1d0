/* One subscriber to CUPTI's callbacks, and a loop of launches that is timed in C. */
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

typedef unsigned U;
static void *cupti, *subscriber;
static volatile long seen;

static void callback(void *data, int domain, unsigned id, const void *info) {
  (void)data; (void)domain; (void)id; (void)info;
  seen++;
}

#define EXPORT __attribute__((visibility("default")))
#define SYMBOL(name) dlsym(cupti, name)

/* Domains: 1 driver API, 2 runtime API, 3 resource. */
EXPORT int subscribe(const char *library, int driver_api, int resource) {
  if (!cupti) cupti = dlopen(library, RTLD_NOW | RTLD_GLOBAL);
  if (!cupti) return -1;
  int (*make)(void **, void *, void *) = (int (*)(void **, void *, void *))SYMBOL("cuptiSubscribe");
  int (*enable)(unsigned, void *, int) = (int (*)(unsigned, void *, int))SYMBOL("cuptiEnableDomain");
  int r = make(&subscriber, (void *)callback, NULL);
  if (!r && driver_api) r = enable(1, subscriber, 1);
  if (!r && resource) r = enable(1, subscriber, 3);
  return r;
}
EXPORT int let_go(int finalize) {
  int (*drop)(void *) = (int (*)(void *))SYMBOL("cuptiUnsubscribe");
  int (*end)(void) = (int (*)(void))SYMBOL("cuptiFinalize");
  int r = drop(subscriber);
  return r || !finalize ? r : end();
}
EXPORT long callbacks(void) { return seen; }

EXPORT double launch_ns(void *function, long n) { /* nanoseconds of a launch without parameters; it waits every 500 */
  void *driver = dlopen("libcuda.so.1", RTLD_NOW);
  int (*launch)(void *, U, U, U, U, U, U, U, void *, void **, void **) =
      (int (*)(void *, U, U, U, U, U, U, U, void *, void **, void **))dlsym(driver, "cuLaunchKernel");
  int (*wait)(void) = (int (*)(void))dlsym(driver, "cuCtxSynchronize");
  struct timespec a, b;
  double total = 0;
  for (long done = 0; done < n; done += 500) {
    wait();
    clock_gettime(CLOCK_MONOTONIC, &a);
    for (int i = 0; i < 500; i++)
      if (launch(function, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL)) return -1;
    clock_gettime(CLOCK_MONOTONIC, &b);
    total += (b.tv_sec - a.tv_sec) * 1e9 + (b.tv_nsec - a.tv_nsec);
  }
  wait();
  return total / n;
}
