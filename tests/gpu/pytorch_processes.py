"""PyTorch on this library, one process a rank: every collective of torch.distributed, batched and coalesced operations, and
training with DistributedDataParallel, whose losses must be the same bits in two runs.
Usage: LD_PRELOAD=.../libnccl.so.2 python3 pytorch_processes.py [RANKS [GPUS]] (ranks may share a GPU; default: a rank for
each GPU, at least two). LOSSES=file gets rank 0's losses, to be compared with another library's. Exits with 77, for
"skipped", where PyTorch or a GPU is missing."""
import os
import time

from pytorch_ranks import run, values  # first: it skips where PyTorch is missing
import torch
import torch.distributed as dist


def check_reductions(rank, world):
    for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.int32, torch.int64, torch.uint8):
        for count in (1, 1000, 100003):
            x = values(count, rank, dtype)
            dist.all_reduce(x)
            assert torch.equal(x, sum(values(count, r, dtype) for r in range(world))), ('all_reduce', dtype, count)
    for op, combine in ((dist.ReduceOp.MAX, torch.maximum), (dist.ReduceOp.MIN, torch.minimum)):
        x = values(777, rank)
        want = values(777, 0)
        for r in range(1, world):
            want = combine(want, values(777, r))
        dist.all_reduce(x, op=op)
        assert torch.equal(x, want), op
    x = values(5000000, rank)
    dist.all_reduce(x, op=dist.ReduceOp.AVG)
    assert torch.allclose(x, sum(values(5000000, r) for r in range(world)) / world), 'average'
    x = values(1000, rank)
    dist.reduce(x, dst=world - 1)
    if rank == world - 1:
        assert torch.equal(x, sum(values(1000, r) for r in range(world))), 'reduce'
    whole = values(world * 1001, rank)
    part = torch.empty(1001, device='cuda')
    dist.reduce_scatter_tensor(part, whole)
    want = sum(values(world * 1001, r) for r in range(world))[rank * 1001:(rank + 1) * 1001]
    assert torch.equal(part, want), 'reduce_scatter'


def check_moves(rank, world):
    x = values(3333, rank)
    dist.broadcast(x, src=1 % world)
    assert torch.equal(x, values(3333, 1 % world)), 'broadcast'
    parts = [torch.empty(777, device='cuda') for _ in range(world)]
    dist.all_gather(parts, values(777, rank))
    assert all(torch.equal(part, values(777, r)) for r, part in enumerate(parts)), 'all_gather'
    kinds = [torch.bfloat16] + [getattr(torch, name) for name in ('float8_e4m3fn', 'float8_e5m2') if hasattr(torch, name)]
    for dtype in kinds:
        whole = torch.empty(world * 640, device='cuda', dtype=dtype)
        dist.all_gather_into_tensor(whole, values(640, rank).to(dtype))
        want = torch.cat([values(640, r).to(dtype) for r in range(world)])
        assert torch.equal(whole.view(torch.uint8), want.view(torch.uint8)), ('all_gather', dtype)
    gathered = [torch.empty(50, device='cuda') for _ in range(world)] if rank == 0 else None
    dist.gather(values(50, rank), gathered, dst=0)
    assert rank != 0 or all(torch.equal(part, values(50, r)) for r, part in enumerate(gathered)), 'gather'
    mine = torch.empty(60, device='cuda')
    dist.scatter(mine, [values(60, 10 * r) for r in range(world)] if rank == 0 else None, src=0)
    assert torch.equal(mine, values(60, 10 * rank)), 'scatter'


def check_all_to_all(rank, world):
    sent = [values(1000 + 10 * rank + to, 7 * rank + to) for to in range(world)]
    got = [torch.empty(1000 + 10 * r + rank, device='cuda') for r in range(world)]
    dist.all_to_all(got, sent)
    assert all(torch.equal(got[r], values(1000 + 10 * r + rank, 7 * r + rank)) for r in range(world)), 'all_to_all'
    x = torch.cat([values(5000, 7 * rank + to) for to in range(world)])
    y = torch.empty_like(x)
    dist.all_to_all_single(y, x)
    assert torch.equal(y, torch.cat([values(5000, 7 * r + rank) for r in range(world)])), 'all_to_all_single'


def check_messages(rank, world):
    sent = values(100001, rank)
    got = torch.empty_like(sent)
    operations = [dist.P2POp(dist.isend, sent, (rank + 1) % world), dist.P2POp(dist.irecv, got, (rank - 1) % world)]
    for request in dist.batch_isend_irecv(operations):
        request.wait()
    assert torch.equal(got, values(100001, (rank - 1) % world)), 'batch_isend_irecv'
    if rank == 0:
        dist.send(sent, 1)
    elif rank == 1:
        dist.recv(got, 0)
        assert torch.equal(got, values(100001, 0)), 'recv'


def check_coalesced(rank, world):
    tensors = [values(100 * (i + 1), rank + i) for i in range(10)]
    with dist._coalescing_manager(device=torch.device('cuda'), async_ops=True) as manager:
        for tensor in tensors:
            dist.all_reduce(tensor)
    manager.wait()
    for i, tensor in enumerate(tensors):
        assert torch.equal(tensor, sum(values(100 * (i + 1), r + i) for r in range(world))), 'coalesced'
    half = dist.new_group(list(range(world // 2 or 1)))
    if rank < (world // 2 or 1):
        x = values(99, rank)
        dist.all_reduce(x, group=half)
        assert torch.equal(x, sum(values(99, r) for r in range(world // 2 or 1))), 'group'
    dist.barrier()


def train(rank):
    """The losses of a few steps, as bits."""
    torch.manual_seed(1234)
    model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 64)).cuda()
    model = torch.nn.parallel.DistributedDataParallel(model, bucket_cap_mb=1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    generator = torch.Generator().manual_seed(100 + rank)
    losses = []
    for _ in range(30):
        x = torch.randn(64, 256, generator=generator).cuda()
        loss = (model(x) - x[:, :64]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        dist.all_reduce(loss, op=dist.ReduceOp.AVG)
        losses.append(loss.item())
    return losses


def check_pairs(rank, world):
    """Messages outside of a batch have a communicator for each pair, which PyTorch ends in any order."""
    for distance in (1, 2):
        for first in range(world - distance):
            second = first + distance
            if rank == first:
                dist.send(values(500, rank), second)
            if rank == second:
                got = torch.empty(500, device='cuda')
                dist.recv(got, first)
                assert torch.equal(got, values(500, first)), ('pair', first, second)


def main(rank, world, gpus, folder):
    torch.cuda.set_device(rank % gpus)
    start = time.time()
    dist.init_process_group('nccl', init_method=f'file://{folder}/store', rank=rank, world_size=world)
    check_reductions(rank, world)
    check_moves(rank, world)
    check_all_to_all(rank, world)
    check_messages(rank, world)
    check_coalesced(rank, world)
    first = train(rank)
    again = train(rank)
    assert first == again, 'two runs differ'
    assert first[-1] < first[0], 'it does not learn'
    if rank == 0 and os.environ.get('LOSSES'):
        with open(os.environ['LOSSES'], 'w') as file:
            file.writelines(f'{loss.hex()} {loss}\n' for loss in first)
    check_pairs(rank, world)
    torch.cuda.synchronize()
    leaving = time.time()
    dist.destroy_process_group()
    assert time.time() - leaving < 60, 'ranks waited for each other'
    print(f'rank {rank} of {world}: all right, loss {first[0]:.6f} to {first[-1]:.6f}, {time.time() - start:.1f} s', flush=True)


if __name__ == '__main__':
    run(main)
