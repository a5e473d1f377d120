"""What training with PyTorch asks of the library beyond plain collectives, one process a rank: communicators made at once and
split, sums with a factor, lists and coalesced tensors, objects, CUDA graphs, memory of the library's own and registered,
FullyShardedDataParallel and tensor parallelism, groups that are aborted and made anew.
Usage: LD_PRELOAD=.../libnccl.so.2 python3 pytorch_features.py [RANKS [GPUS]] (ranks may share a GPU; default: a rank for each
GPU, at least two). Exits with 77, for "skipped", where PyTorch or a GPU is missing."""
import datetime
import os

from pytorch_ranks import run, values  # first: it skips where PyTorch is missing
import torch
import torch.distributed as dist


def sum_of(count, ranks, dtype=torch.float32):
    return sum(values(count, r, dtype) for r in ranks)


def backend():
    return dist.group.WORLD._get_backend(torch.device('cuda'))


def check_groups(rank, world):
    """Groups of a communicator that exists are split from it."""
    for members in ([r for r in range(world) if r % 2 == 0], list(range(world)), [world - 1]):
        group = dist.new_group(members)
        if rank in members:
            x = values(4097, rank)
            dist.all_reduce(x, group=group)
            assert torch.equal(x, sum_of(4097, members)), ('group', members)
            dist.barrier(group=group)
            dist.destroy_process_group(group)
    dist.barrier()


def check_factor(rank, world):
    factor = torch.full((1,), 0.5, device='cuda')
    for scalar in (0.25, factor):
        x = values(1000, rank)
        dist.all_reduce(x, op=dist._make_nccl_premul_sum(scalar))
        assert torch.equal(x, sum_of(1000, range(world)) * float(scalar)), ('premul', scalar)


def check_lists(rank, world):
    part = torch.empty(501, device='cuda')
    dist.reduce_scatter(part, [values(501, rank + to) for to in range(world)])
    assert torch.equal(part, sum(values(501, r + rank) for r in range(world))), 'reduce_scatter'
    uneven = [torch.empty(100 + r, device='cuda') for r in range(world)]
    dist.all_gather(uneven, values(100 + rank, rank))
    assert all(torch.equal(got, values(100 + r, r)) for r, got in enumerate(uneven)), 'uneven all_gather'
    wholes = [torch.empty(world * count, device='cuda', dtype=torch.bfloat16) for count in (3, 70, 9000)]
    with dist._coalescing_manager(device=torch.device('cuda')):
        for whole in wholes:
            dist.all_gather_into_tensor(whole, values(len(whole) // world, rank, torch.bfloat16))
    for whole in wholes:
        want = torch.cat([values(len(whole) // world, r, torch.bfloat16) for r in range(world)])
        assert torch.equal(whole, want), 'coalesced all_gather'
    parts = [torch.empty(count, device='cuda') for count in (1, 77, 8192)]
    with dist._coalescing_manager(device=torch.device('cuda')):
        for mine in parts:
            dist.reduce_scatter_tensor(mine, values(len(mine) * world, rank))
    for mine in parts:
        count = len(mine)
        assert torch.equal(mine, sum_of(count * world, range(world))[rank * count:(rank + 1) * count]), 'coalesced reduce_scatter'


def check_objects(rank, world):
    got = [None] * world
    dist.all_gather_object(got, {'rank': rank, 'text': 'x' * (100 * rank)})
    assert got == [{'rank': r, 'text': 'x' * (100 * r)} for r in range(world)], 'all_gather_object'
    thing = [rank, 'from'] if rank == world - 1 else [None, None]
    dist.broadcast_object_list(thing, src=world - 1)
    assert thing == [world - 1, 'from'], 'broadcast_object_list'


def check_graphs(rank, world):
    x = values(30011, rank)
    gathered = torch.empty(world * 30011, device='cuda')
    dist.all_reduce(x.clone())
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode='thread_local'):
        y = x * 2
        dist.all_reduce(y)
        dist.all_gather_into_tensor(gathered, y)
    for replay in range(20):
        x.copy_(values(30011, rank + replay))
        graph.replay()
        want = sum(values(30011, r + replay) for r in range(world)) * 2
        assert torch.equal(y, want) and torch.equal(gathered, want.repeat(world)), ('graph', replay)
        if replay % 5 == 0:
            eager = values(100, rank)
            dist.all_reduce(eager)
            assert torch.equal(eager, sum_of(100, range(world))), 'between replays'


def check_memory(rank, world):
    """Tensors registered with the communicator, also as windows, in the library's memory where PyTorch takes that (it asks for
    NVLS)."""
    try:
        pool = torch.cuda.MemPool(backend().mem_allocator)
    except RuntimeError:
        pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        x = torch.empty(1 << 20, device='cuda')
    for symmetric in (False, True):
        x.copy_(values(1 << 20, rank))
        backend().register_mem_pool(pool, symmetric)
        dist.all_reduce(x)
        assert torch.equal(x, sum_of(1 << 20, range(world))), ('own memory', symmetric)
        backend().deregister_mem_pool(pool)


def losses_of(model, rank, steps=12):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(7 + rank)
    losses = []
    for _ in range(steps):
        x = torch.randn(32, 128, generator=generator).cuda()
        loss = (model(x) - x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total = loss.detach().clone()
        dist.all_reduce(total, op=dist.ReduceOp.AVG)
        losses.append(total.item())
    return losses


def new_model(width=512):
    torch.manual_seed(99)
    layers = [torch.nn.Sequential(torch.nn.Linear(128, width), torch.nn.GELU(), torch.nn.Linear(width, 128)) for _ in range(3)]
    return torch.nn.Sequential(*layers).cuda()


def check_sharded_training(rank, world):
    from torch.distributed.fsdp import fully_shard

    def sharded_losses():
        model = new_model()
        for layer in model:
            fully_shard(layer)
        return losses_of(fully_shard(model), rank)

    sharded = sharded_losses()
    assert sharded == sharded_losses(), 'two runs differ'
    replicated = losses_of(torch.nn.parallel.DistributedDataParallel(new_model()), rank)
    assert all(abs(a - b) < 1e-4 * b for a, b in zip(sharded, replicated)), (sharded, replicated)


def check_tensor_parallel(world):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
    mesh = init_device_mesh('cuda', (world,))
    width = 128 * world  # PyTorch takes no uneven parts here
    whole = new_model(width)[0]
    parts = parallelize_module(new_model(width)[0], mesh, {'0': ColwiseParallel(), '2': RowwiseParallel()})
    x = torch.randn(16, 128, generator=torch.Generator().manual_seed(5)).cuda()
    assert torch.allclose(whole(x), parts(x), atol=1e-5), 'tensor parallel'


def check_abort_and_anew(rank, world, store):
    """What follows a failure in practice: the group is aborted while an operation waits, and made anew in the same process."""
    words = dist.distributed_c10d._get_default_store()
    if rank == 0:
        dist.all_reduce(values(1 << 22, rank), async_op=True)  # the others never call it
    else:
        words.wait(['aborted'])  # whose communicator fails before it calls, or while it waits, is told so
    dist.distributed_c10d._abort_process_group()
    if rank == 0:
        words.set('aborted', 'yes')
    start(rank, world, store)
    x = values(1000, rank)
    dist.all_reduce(x)
    assert torch.equal(x, sum_of(1000, range(world))), 'made anew'


def start(rank, world, store):
    dist.init_process_group('nccl', init_method=f'file://{store}', rank=rank, world_size=world,
                            device_id=torch.device('cuda', torch.cuda.current_device()),
                            timeout=datetime.timedelta(seconds=60))


def main(rank, world, gpus, folder):
    torch.cuda.set_device(rank % gpus)
    start(rank, world, os.path.join(folder, 'first'))
    for check in (check_groups, check_factor, check_lists, check_objects, check_graphs, check_memory, check_sharded_training):
        check(rank, world)
        torch.cuda.synchronize()
        if rank == 0:
            print(check.__name__, flush=True)
    check_tensor_parallel(world)
    check_abort_and_anew(rank, world, os.path.join(folder, 'second'))
    torch.cuda.synchronize()
    print(f'rank {rank} of {world}: all right, PyTorch {torch.__version__}', flush=True)
    dist.destroy_process_group()


if __name__ == '__main__':
    run(main)
