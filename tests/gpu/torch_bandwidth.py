"""torch_bandwidth.py RANK FILE: the same tensors with torch.distributed.rpc and device maps."""

import sys
import time

import torch
import torch.distributed.rpc as rpc


def take(tensor):
    return None


def main() -> None:
    rank, file = int(sys.argv[1]), sys.argv[2]
    options = rpc.TensorPipeRpcBackendOptions(init_method=f"file://{file}", device_maps={"gpu1": {0: 0}} if rank == 0 else {})
    rpc.init_rpc(f"gpu{rank}", rank=rank, world_size=2, rpc_backend_options=options)
    if rank == 0:
        for size in (64 << 10, 1 << 20, 16 << 20, 256 << 20):
            tensor = torch.zeros(size, dtype=torch.uint8, device="cuda:0")
            for _ in range(5):
                rpc.rpc_sync("gpu1", take, args=(tensor,))
            rounds = 200 if size < 16 << 20 else 20
            torch.cuda.synchronize()
            start = time.perf_counter()
            for _ in range(rounds):
                rpc.rpc_sync("gpu1", take, args=(tensor,))
            seconds = time.perf_counter() - start
            print(f"torch {size:10d} bytes {size * rounds / seconds / 1e9:8.3f} GB/s", flush=True)
    rpc.shutdown()


if __name__ == "__main__":
    main()
