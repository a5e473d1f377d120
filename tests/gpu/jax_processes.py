"""JAX on this library, one process a rank, as on several machines: psum, all_gather, ppermute and all_to_all between them.
Usage: LD_PRELOAD=.../libnccl.so.2 python3 jax_processes.py [RANKS] (default: a rank for each GPU, at least two; ranks may share
a GPU). Exits with 77, for "skipped", where JAX or a GPU is missing."""
import os
import socket
import subprocess
import sys


def gpus():
    """How many there are: asked in a process that ends, since XLA keeps to what it saw first."""
    question = "import jax; print(len(jax.devices('gpu')))"
    answer = subprocess.run([sys.executable, '-c', question], capture_output=True, text=True)
    return int(answer.stdout.split()[-1]) if answer.returncode == 0 else 0


def free_port():
    with socket.socket() as probe:
        probe.bind(('127.0.0.1', 0))
        return probe.getsockname()[1]


def start_ranks(ranks, devices):
    port = free_port()
    processes = []
    for rank in range(ranks):
        environment = dict(os.environ, CUDA_VISIBLE_DEVICES=str(rank % devices), XLA_PYTHON_CLIENT_PREALLOCATE='false',
                           NCCL_DEBUG='INFO')
        command = [sys.executable, __file__, '--rank', str(rank), str(ranks), str(port)]
        processes.append(subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
    said = [process.communicate()[0] for process in processes]
    for rank, process in enumerate(processes):
        assert process.returncode == 0, f'rank {rank} ended with {process.returncode}:\n{said[rank]}'
        # The library's own log tells which library made the communicators: XLA loads one of its choice.
        assert '(Nitinol)' in said[rank] and f'nranks {ranks} ' in said[rank], f'another library made them:\n{said[rank]}'


def run_rank(rank, ranks, port):
    import jax
    import jax.numpy as jnp
    import numpy as np
    jax.distributed.initialize(f'127.0.0.1:{port}', num_processes=ranks, process_id=rank, local_device_ids=[0])

    def values(count, of):
        return np.arange(of * count, (of + 1) * count, dtype=np.float32) % 17

    def across(function, mine):
        """What `function` gives this rank, as all ranks call it."""
        return np.asarray(jax.pmap(function, axis_name='i')(jnp.asarray(mine)[None]))[0]

    for count in (4, 1000, 3_000_000):
        mine = values(count, rank)
        everyone = np.stack([values(count, r) for r in range(ranks)])
        assert (across(lambda v: jax.lax.psum(v, 'i'), mine) == everyone.sum(0)).all(), ('psum', count)
        assert (across(lambda v: jax.lax.pmax(v, 'i'), mine) == everyone.max(0)).all(), ('pmax', count)
        assert (across(lambda v: jax.lax.all_gather(v, 'i'), mine) == everyone).all(), ('all_gather', count)
        ring = [(r, (r + 1) % ranks) for r in range(ranks)]
        moved = across(lambda v: jax.lax.ppermute(v, 'i', ring), mine)
        assert (moved == everyone[rank - 1]).all(), ('ppermute', count)
    rows = np.arange(ranks * ranks * 100, dtype=np.float32).reshape(ranks, ranks, 100)
    turned = across(lambda v: jax.lax.all_to_all(v, 'i', 0, 0), rows[rank])
    assert (turned == rows[:, rank]).all(), 'all_to_all'


if __name__ == '__main__':
    if sys.argv[1:2] == ['--rank']:
        run_rank(*map(int, sys.argv[2:]))
        sys.exit()
    devices = gpus()
    if devices == 0:
        sys.exit(77)
    ranks = int(sys.argv[1]) if len(sys.argv) > 1 else max(2, devices)
    start_ranks(ranks, devices)
    print(f'{ranks} ranks on {devices} GPUs: all right, through Nitinol')
