"""JAX with what XLA can be asked for, one process a rank: collectives in CUDA graphs, which XLA updates from new captures, in
loops of these, communicators made with several ids, and buffers in memory that is meant for collectives.
Usage: LD_PRELOAD=.../libnccl.so.2 python3 jax_flags.py [RANKS] (default: a rank for each GPU, at least two; ranks may share a
GPU). Exits with 77, for "skipped", where JAX or a GPU is missing."""
import glob
import os
import re
import signal
import tempfile
import time

from jax_ranks import join, run, start_ranks

GRAPHS = '--xla_gpu_graph_min_graph_size=1 --xla_gpu_enable_command_buffer=+COLLECTIVES,+FUSION'


def captured_calls():
    """How many of this process's calls went into graphs, by the library's flight recorders."""
    os.kill(os.getpid(), signal.SIGUSR1)
    for _ in range(100):
        time.sleep(0.1)
        files = [open(name).read() for name in glob.glob(os.path.join(os.environ['DUMPS'], f'{os.getpid()}.*'))]
        if files and all(text.rstrip().endswith('}') for text in files):
            return sum(int(re.search(r'"captured": (\d+)', text)[1]) for text in files)
    raise RuntimeError('no flight recorder was written')


def run_rank(rank, ranks, port):
    import jax
    import jax.numpy as jnp
    import numpy as np
    join(rank, ranks, port)

    def step(mine):
        total = jax.lax.psum(mine, 'i')
        most = jax.lax.pmax(jnp.sort(total * 2), 'i')
        return total, most, jax.lax.all_gather(most + mine, 'i')

    def loop(mine):
        return jax.lax.fori_loop(0, 5, lambda _, x: jax.lax.psum(x, 'i') / ranks + 1, mine)

    step = jax.pmap(step, axis_name='i')
    loop = jax.pmap(loop, axis_name='i')
    for call in range(12):
        everyone = np.stack([np.arange(1000, dtype=np.float32) % 16 + ranks * r + call for r in range(ranks)])
        mine = jnp.asarray(everyone[rank])[None]
        total, most, gathered = (np.asarray(x)[0] for x in step(mine))
        assert (total == everyone.sum(0)).all(), ('psum', call)
        assert (most == np.sort(everyone.sum(0) * 2)).all(), ('pmax', call)
        assert (gathered == most + everyone).all(), ('all_gather', call)
        looped = np.asarray(loop(mine))[0]
        assert np.allclose(looped, everyone.mean(0) + 5), ('loop', call)
    if 'COLLECTIVES' in os.environ['XLA_FLAGS']:
        assert captured_calls() > 0, 'XLA made no graphs of collectives'


def start(ranks, devices):
    with tempfile.TemporaryDirectory() as dumps:
        recorded = dict(DUMPS=dumps, NITINOL_DUMP_SIGNAL='USR1', NITINOL_DUMP_FILE=os.path.join(dumps, '%p.%c'))
        start_ranks(ranks, devices, XLA_FLAGS=GRAPHS, **recorded)
        start_ranks(ranks, devices, XLA_FLAGS=GRAPHS + ',+WHILE,+CONDITIONAL', NCCL_GRAPH_MIXING_SUPPORT='0', **recorded)
    start_ranks(ranks, devices, XLA_FLAGS='--xla_gpu_nccl_init_max_rank_per_root_ratio=1')
    start_ranks(ranks, devices, XLA_FLAGS='--xla_gpu_enable_nccl_user_buffers=true',
                XLA_PYTHON_CLIENT_COLLECTIVE_MEM_SIZE_MB='64')


if __name__ == '__main__':
    run(run_rank, start)
