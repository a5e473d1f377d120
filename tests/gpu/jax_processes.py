"""JAX on this library, one process a rank, as on several machines: psum, all_gather, ppermute and all_to_all between them.
Usage: LD_PRELOAD=.../libnccl.so.2 python3 jax_processes.py [RANKS] (default: a rank for each GPU, at least two; ranks may share
a GPU). Exits with 77, for "skipped", where JAX or a GPU is missing."""
from jax_ranks import join, run, start_ranks


def run_rank(rank, ranks, port):
    import jax
    import jax.numpy as jnp
    import numpy as np
    join(rank, ranks, port)

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
    run(run_rank, start_ranks)
