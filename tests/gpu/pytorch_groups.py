"""What PyTorch makes of communicators beside the one of all ranks, one process a rank: groups with options, groups that their
members alone make, groups split and shrunk, also while a rank never calls, a pipeline, and compiled programs whose
collectives stand in CUDA graphs.
Usage: LD_PRELOAD=.../libnccl.so.2 python3 pytorch_groups.py [RANKS [GPUS]] (ranks may share a GPU; default: a rank for each
GPU, at least two). Exits with 77, for "skipped", where PyTorch or a GPU is missing."""
import datetime
import os
import shutil

from pytorch_ranks import run, values  # first: it skips where PyTorch is missing
import torch
import torch.distributed as dist


def check_sum(group, members, rank, count=4097):
    x = values(count, rank)
    dist.all_reduce(x, group=group)
    assert torch.equal(x, sum(values(count, r) for r in members)), ('sum', members)


def check_options(rank, world):
    options = dist.ProcessGroupNCCL.Options(is_high_priority_stream=True)
    options.config.min_ctas = 1
    options.config.max_ctas = 4
    options.config.cga_cluster_size = 2
    options.config.split_share = 1
    group = dist.new_group(list(range(world)), pg_options=options)
    for count in (10, 1 << 14, 1 << 21):
        check_sum(group, range(world), rank, count)
    dist.destroy_process_group(group)


def check_members_alone(rank, world):
    """Ranks that are not members do not call."""
    members = [r for r in range(world) if r % 2 == rank % 2]
    group = dist.new_group(members, use_local_synchronization=True)
    check_sum(group, members, rank)
    dist.destroy_process_group(group)


def check_split(rank, world):
    halves = [list(range(world // 2)), list(range(world // 2, world))]
    for parts in ([list(range(world))], halves, [halves[1]]):
        group = dist.split_group(split_ranks=parts)
        mine = [part for part in parts if rank in part]
        if mine:
            check_sum(group, mine[0], rank)
            dist.destroy_process_group(group)
    dist.barrier()


def check_pipeline(rank, world):
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B
    torch.manual_seed(5)
    layers = [torch.nn.Linear(64, 64, device='cuda') for _ in range(world)]
    batch = torch.randn(32, 64, device='cuda')
    stage = PipelineStage(layers[rank], rank, world, torch.device('cuda'))
    schedule = Schedule1F1B(stage, n_microbatches=8, scale_grads=False,
                            loss_fn=lambda output, target: (output - target).square().sum())
    losses = []
    output = schedule.step(*([batch] if rank == 0 else []), target=batch if rank == world - 1 else None, losses=losses)
    gradient = layers[rank].weight.grad.clone()
    for layer in layers:
        layer.zero_grad()
    whole = torch.nn.Sequential(*layers)(batch)
    (whole - batch).square().sum().backward()
    if rank == world - 1:
        assert torch.allclose(output, whole, atol=1e-5), 'pipeline'
    assert torch.allclose(gradient, layers[rank].weight.grad, atol=1e-3), 'gradients of a pipeline'


def check_compiled(rank, world):
    """mode='reduce-overhead' replays CUDA graphs; functional collectives stand in them."""
    import torch.distributed._functional_collectives as functional

    @torch.compile(mode='reduce-overhead')
    def step(x):
        y = functional.all_reduce(x * 2, 'sum', dist.group.WORLD)
        return functional.all_gather_tensor(y + 1, 0, dist.group.WORLD)

    for replay in range(10):
        got = step(values(3001, rank + replay))
        want = sum(values(3001, r + replay) for r in range(world)) * 2 + 1
        assert torch.equal(got, want.repeat(world)), ('compiled', replay)
    check_sum(dist.group.WORLD, range(world), rank)


def check_shrunk(rank, world, store):
    """Ranks that stay make a smaller group, while the one that is left out leaves the old one, or others wait for it."""
    left_out = world - 1
    rest = list(range(world - 1))
    for flags in (dist.distributed_c10d.SHRINK_DEFAULT, dist.distributed_c10d.SHRINK_ABORT):
        never_calls = flags == dist.distributed_c10d.SHRINK_ABORT
        group = dist.new_group(list(range(world)))
        check_sum(group, range(world), rank)
        torch.cuda.synchronize()
        if rank == left_out:
            if never_calls:
                store.wait([f'shrunk {r}' for r in rest])
                dist.distributed_c10d._abort_process_group(group)
            else:
                dist.destroy_process_group(group)
            continue
        if never_calls:
            dist.all_reduce(values(1 << 20, rank), group=group, async_op=True)
        smaller = dist.shrink_group([left_out], group=group, shrink_flags=flags)
        check_sum(smaller, rest, rank)
        dist.destroy_process_group(smaller)
        if never_calls:
            store.set(f'shrunk {rank}', 'yes')
    dist.barrier()


def main(rank, world, gpus, folder):
    torch.cuda.set_device(rank % gpus)
    dist.init_process_group('nccl', init_method=f'file://{os.path.join(folder, "store")}', rank=rank, world_size=world,
                            device_id=torch.device('cuda', torch.cuda.current_device()),
                            timeout=datetime.timedelta(seconds=60))
    checks = [check_options, check_members_alone, check_split, check_pipeline]
    if shutil.which('cc') or shutil.which('gcc'):  # what PyTorch compiles needs a C compiler
        checks.append(check_compiled)
    for check in checks:
        check(rank, world)
        torch.cuda.synchronize()
        if rank == 0:
            print(check.__name__, flush=True)
    check_shrunk(rank, world, dist.distributed_c10d._get_default_store())
    torch.cuda.synchronize()
    print(f'rank {rank} of {world}: all right, PyTorch {torch.__version__}', flush=True)
    dist.destroy_process_group()


if __name__ == '__main__':
    run(main)
