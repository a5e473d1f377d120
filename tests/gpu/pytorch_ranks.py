"""What the scripts with PyTorch have in common: a process for each rank, the GPUs that they share, and what they send. A script
that imports this exits with 77, for "skipped", where PyTorch is missing."""
import os
import sys
import tempfile

os.environ.setdefault('CUBLAS_WORKSPACE_CONFIG', ':4096:8')  # matrix products whose bits do not vary
try:
    import torch
    import torch.multiprocessing as mp
except ImportError:
    sys.exit(77)


def values(count, rank, dtype=torch.float32):
    return (torch.arange(count, device='cuda') % 5 + rank).to(dtype)


def run(main):
    """Calls main(rank, ranks, GPUs, folder that the ranks share) in a process for each rank: as many as the first argument
    of the script says, on so many GPUs as the second says; default: a rank for each GPU, at least two. Exits with 77 without
    a GPU."""
    if not torch.cuda.is_available():
        sys.exit(77)
    gpus = int(sys.argv[2]) if len(sys.argv) > 2 else torch.cuda.device_count()
    world = int(sys.argv[1]) if len(sys.argv) > 1 else max(2, gpus)
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(main, args=(world, gpus, folder), nprocs=world)
