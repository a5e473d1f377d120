"""PyTorch in one process with all GPUs: torch.cuda.nccl, and DataParallel where there are several.
Usage: LD_PRELOAD=.../libnccl.so.2 python3 pytorch_devices.py. Exits with 77, for "skipped", where PyTorch or a GPU is missing."""
import sys

try:
    import torch
    import torch.cuda.nccl as nccl
except ImportError:
    sys.exit(77)


def on_each(ranks, count, shift=0):
    return [(torch.arange(count) % 5 + r + shift).float().to(f'cuda:{r}') for r in range(ranks)]


def same(got, want):
    return torch.equal(got.cpu(), want.cpu())


def check_collectives(ranks):
    for count in (7, 1 << 12, 1 << 20):
        inputs = on_each(ranks, count)
        total = sum(x.cpu() for x in inputs)
        outputs = [torch.empty_like(x) for x in inputs]
        nccl.all_reduce(inputs, outputs)
        assert all(same(y, total) for y in outputs), 'all_reduce'
        root = ranks - 1
        nccl.reduce(inputs, outputs[root], root=root)
        assert same(outputs[root], total), 'reduce'
        nccl.broadcast(outputs, root=root)
        assert all(same(y, total) for y in outputs), 'broadcast'
        wholes = [torch.empty(ranks * count, device=x.device) for x in inputs]
        nccl.all_gather(inputs, wholes)
        assert all(same(y, torch.cat([x.cpu() for x in inputs])) for y in wholes), 'all_gather'
        wide = on_each(ranks, ranks * count)
        nccl.reduce_scatter(wide, outputs)
        total = sum(x.cpu() for x in wide)
        assert all(same(y, total[r * count:(r + 1) * count]) for r, y in enumerate(outputs)), 'reduce_scatter'


def check_data_parallel():
    torch.manual_seed(3)
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.GELU(), torch.nn.Linear(64, 8)).cuda()
    x = torch.randn(48, 64, device='cuda')
    wanted = model(x)
    wanted.square().sum().backward()
    gradients = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    got = torch.nn.DataParallel(model)(x)
    got.square().sum().backward()
    assert torch.allclose(got, wanted, atol=1e-5), 'DataParallel'
    assert all(torch.allclose(p.grad, g, atol=1e-3) for p, g in zip(model.parameters(), gradients)), 'gradients of DataParallel'


if __name__ == '__main__':
    if not torch.cuda.is_available():
        sys.exit(77)
    check_collectives(torch.cuda.device_count())
    if torch.cuda.device_count() > 1:
        check_data_parallel()
    print(f'{torch.cuda.device_count()} devices: all right, PyTorch {torch.__version__}')
