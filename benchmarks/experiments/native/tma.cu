// out = 2 * x for float32 matrices whose sides are multiples of 32: one warp a tile, which comes by the tensor
// memory accelerator through a descriptor that is a grid constant.
#include <cuda.h>
#include <stdint.h>

extern "C" __global__ void doubled(const __grid_constant__ CUtensorMap map, float *out, int width) {
  __shared__ alignas(128) float tile[32 * 32];
  __shared__ alignas(8) uint64_t barrier;
  uint32_t b = (uint32_t)__cvta_generic_to_shared(&barrier), t = (uint32_t)__cvta_generic_to_shared(tile);
  int column = blockIdx.x * 32, row = blockIdx.y * 32;
  if (threadIdx.x == 0) {
    asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(b));
    asm volatile("fence.proxy.async.shared::cta;");
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(b), "r"(32 * 32 * 4) : "memory");
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(t),
        "l"(&map), "r"(column), "r"(row), "r"(b)
        : "memory");
  }
  __syncwarp();
  int done = 0;
  for (int tries = 0; tries < 1000000 && !done; tries++) /* bounded: a wrong descriptor must not hang the GPU */
    asm volatile(
        "{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], 0; selp.b32 %0, 1, 0, p; }" : "=r"(done)
        : "r"(b)
        : "memory");
  if (!done) return;
  for (int i = 0; i < 32; i++) out[(size_t)(row + i) * width + column + threadIdx.x] = 2 * tile[i * 32 + threadIdx.x];
}
