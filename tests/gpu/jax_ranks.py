"""What the scripts with JAX have in common: a process for each rank, as on several machines, and the GPUs that they share."""
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


def start_ranks(ranks, devices, **variables):
    """Runs the script's ranks, with these environment variables besides. Returns what each has said."""
    port = free_port()
    processes = []
    for rank in range(ranks):
        environment = {**os.environ, 'CUDA_VISIBLE_DEVICES': str(rank % devices), 'XLA_PYTHON_CLIENT_PREALLOCATE': 'false',
                       'NCCL_DEBUG': 'INFO', **variables}
        command = [sys.executable, sys.argv[0], '--rank', str(rank), str(ranks), str(port)]
        processes.append(subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
    said = [process.communicate()[0] for process in processes]
    for rank, process in enumerate(processes):
        assert process.returncode == 0, f'rank {rank} ended with {process.returncode}:\n{said[rank]}'
        # The library's own log tells which library made the communicators: XLA loads one of its choice.
        assert '(Nitinol)' in said[rank] and f'nranks {ranks} ' in said[rank], f'another library made them:\n{said[rank]}'
    return said


def join(rank, ranks, port):
    import jax
    jax.distributed.initialize(f'127.0.0.1:{port}', num_processes=ranks, process_id=rank, local_device_ids=[0])


def run(run_rank, start):
    """Calls start(ranks, GPUs), whose ranks call run_rank(rank, ranks, port) in a process each: as many as the script's
    argument says, default: a rank for each GPU, at least two. Exits with 77 without JAX or a GPU."""
    if sys.argv[1:2] == ['--rank']:
        run_rank(*map(int, sys.argv[2:]))
        sys.exit()
    devices = gpus()
    if devices == 0:
        sys.exit(77)
    ranks = int(sys.argv[1]) if len(sys.argv) > 1 else max(2, devices)
    start(ranks, devices)
    print(f'{ranks} ranks on {devices} GPUs: all right, through Nitinol')
