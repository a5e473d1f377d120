"""PyTorch on this library: collectives, all-to-all, batched sends and receives and DistributedDataParallel, one process a
rank. Usage: LD_PRELOAD=.../libnccl.so.2 python3 pytorch_processes.py RANKS GPUS (ranks may share a GPU). Exits with 77, for
"skipped", where PyTorch or a GPU is missing."""
import os
import sys
import time

try:
    import torch
    import torch.distributed as dist
    import torch.multiprocessing as mp
except ImportError:
    sys.exit(77)


def main(rank, world, gpus):
    os.environ.update(MASTER_ADDR='127.0.0.1', MASTER_PORT='29511')
    torch.cuda.set_device(rank % gpus)
    t0 = time.time()
    dist.init_process_group('nccl', rank=rank, world_size=world)
    for dt in (torch.float32, torch.bfloat16, torch.int32):
        for n in (1, 1000, 100003, 5000000):
            x = (torch.arange(n, device='cuda') % 7 + rank).to(dt)
            dist.all_reduce(x)
            want = ((torch.arange(n, device='cuda') % 7) * world + world * (world - 1) // 2).to(dt)
            assert torch.equal(x, want), (rank, dt, n)
    y = [torch.empty(777, device='cuda') for _ in range(world)]
    dist.all_gather(y, torch.full((777,), float(rank), device='cuda'))
    assert all((t == i).all() for i, t in enumerate(y))
    a = torch.arange(world * 5000, device='cuda', dtype=torch.float32) + rank * 1e6
    b = torch.empty_like(a)
    dist.all_to_all_single(b, a)
    for i in range(world):
        assert torch.equal(b[i*5000:(i+1)*5000], torch.arange(rank*5000, (rank+1)*5000, device='cuda', dtype=torch.float32) + i * 1e6)
    ops = [dist.P2POp(dist.isend, a, (rank + 1) % world), dist.P2POp(dist.irecv, b, (rank - 1) % world)]
    for r in dist.batch_isend_irecv(ops): r.wait()
    assert torch.equal(b, torch.arange(world * 5000, device='cuda', dtype=torch.float32) + ((rank - 1) % world) * 1e6)
    dist.barrier(); torch.cuda.synchronize()
    m = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1000, 1000).cuda())
    o = torch.optim.SGD(m.parameters(), lr=0.01)
    for i in range(20):
        o.zero_grad(); l = m(torch.ones(8, 1000, device='cuda')).square().mean(); l.backward(); o.step()
    torch.cuda.synchronize()
    print(f'rank {rank} of {world}: all right, loss {l.item():.6f}, {time.time() - t0:.1f} s', flush=True)
    dist.destroy_process_group()


if __name__ == '__main__':
    if not torch.cuda.is_available():
        sys.exit(77)
    w, g = int(sys.argv[1]), int(sys.argv[2])
    mp.spawn(main, args=(w, g), nprocs=w)
