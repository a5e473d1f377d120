"""How processes of PyTorch end: one rank is through and ends without destroy_process_group, as scripts and workers do, and the
others destroy theirs later.
Usage: LD_PRELOAD=.../libnccl.so.2 python3 pytorch_ends.py [RANKS [GPUS]] (ranks may share a GPU; default: a rank for each GPU,
at least two). Exits with 77, for "skipped", where PyTorch or a GPU is missing."""
import functools
import os
import time

from pytorch_ranks import run, values  # first: it skips where PyTorch is missing
import torch
import torch.distributed as dist


def returns():
    """What Python does at the end of a process follows."""


def exits_at_once():
    os._exit(0)


def abort():
    dist.distributed_c10d._abort_process_group(dist.group.WORLD)


def end(leave, rank, world, gpus, folder):
    torch.cuda.set_device(rank % gpus)
    dist.init_process_group('nccl', init_method=f'file://{os.path.join(folder, "store")}', rank=rank, world_size=world,
                            device_id=torch.device('cuda', torch.cuda.current_device()))
    pair = dist.new_group([0, 1])
    x = values(4097, rank)
    dist.all_reduce(x)
    assert torch.equal(x, sum(values(4097, r) for r in range(world)))
    if rank < 2:
        dist.all_reduce(x, group=pair)
    torch.cuda.synchronize()
    if rank == 0:
        return leave()
    time.sleep(2)
    dist.destroy_process_group()
    print(f'rank {rank} of {world}: all right though rank 0 {leave.__name__}', flush=True)


if __name__ == '__main__':
    for way in (returns, exits_at_once, abort):
        run(functools.partial(end, way))
