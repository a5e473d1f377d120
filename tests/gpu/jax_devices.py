"""JAX on this library, one process with all GPUs: psum, all_gather, ppermute and all_to_all across them.
Usage: LD_PRELOAD=.../libnccl.so.2 python3 jax_devices.py. Exits with 77, for "skipped", where JAX or a second GPU is missing."""
import os
import sys
import tempfile

# The library's own log tells which library made the communicators: XLA loads one of its choice.
log = tempfile.NamedTemporaryFile(mode='r', prefix='nccl-log-')
os.environ.update(NCCL_DEBUG='INFO', NCCL_DEBUG_FILE=log.name)
os.environ.setdefault('XLA_PYTHON_CLIENT_PREALLOCATE', 'false')
try:
    import jax
    import jax.numpy as jnp
    import numpy as np
    devices = jax.devices('gpu')
except (ImportError, RuntimeError):
    sys.exit(77)
n = len(devices)
if n < 2:
    sys.exit(77)


def over_devices(function, x):
    return np.asarray(jax.pmap(function, axis_name='i', devices=devices)(x))


for count in (4, 1000, 3_000_000):
    x = jnp.asarray(np.arange(n * count, dtype=np.float32).reshape(n, count) % 17)
    host = np.asarray(x)
    assert (over_devices(lambda v: jax.lax.psum(v, 'i'), x) == host.sum(0)).all(), ('psum', count)
    assert (over_devices(lambda v: jax.lax.pmax(v, 'i'), x) == host.max(0)).all(), ('pmax', count)
    gathered = over_devices(lambda v: jax.lax.all_gather(v, 'i'), x)
    assert (gathered == host).all(), ('all_gather', count)
    ring = [(i, (i + 1) % n) for i in range(n)]
    moved = over_devices(lambda v: jax.lax.ppermute(v, 'i', ring), x)
    assert (moved == np.roll(host, 1, axis=0)).all(), ('ppermute', count)
x = jnp.asarray(np.arange(n * n * 100, dtype=np.float32).reshape(n, n, 100))
turned = over_devices(lambda v: jax.lax.all_to_all(v, 'i', 0, 0), x)
assert (turned == np.asarray(x).swapaxes(0, 1)).all(), 'all_to_all'
said = log.read()
assert '(Nitinol)' in said and f'nranks {n} ' in said, f'another library made the communicators; this one says: {said!r}'
print(f'{n} GPUs: all right, through Nitinol')
