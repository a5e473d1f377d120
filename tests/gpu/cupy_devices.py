"""CuPy's cupy.cuda.nccl on this library, one process with all GPUs; with one GPU two ranks share it.
Usage: LD_PRELOAD=.../libnccl.so.2 python3 cupy_devices.py. Exits with 77, for "skipped", where CuPy or a GPU is missing."""
import sys

try:
    import cupy
    from cupy.cuda import nccl
    gpus = cupy.cuda.runtime.getDeviceCount()
except Exception:  # CuPy's own errors exist only once it is there
    sys.exit(77)
if gpus == 0 or not getattr(nccl, 'available', True):
    sys.exit(77)

places = list(range(gpus)) if gpus > 1 else [0, 0]
ranks = len(places)
comms = nccl.NcclCommunicator.initAll(places)
streams, sent, got = [], [], []
for rank, device in enumerate(places):
    with cupy.cuda.Device(device):
        streams.append(cupy.cuda.Stream(non_blocking=True))
        sent.append(cupy.arange(100003, dtype=cupy.float32) % 7 + rank)
        got.append(cupy.zeros(100003 * ranks, dtype=cupy.float32))
        cupy.cuda.runtime.deviceSynchronize()


def on_all(call):
    nccl.groupStart()
    for rank, device in enumerate(places):
        with cupy.cuda.Device(device):
            call(rank)
    nccl.groupEnd()
    for rank, device in enumerate(places):
        with cupy.cuda.Device(device):
            streams[rank].synchronize()


count, kind = 100003, nccl.NCCL_FLOAT32
on_all(lambda r: comms[r].allReduce(sent[r].data.ptr, got[r].data.ptr, count, kind, nccl.NCCL_SUM, streams[r].ptr))
want = sum(cupy.asnumpy(x) for x in sent)
assert all((cupy.asnumpy(x)[:count] == want).all() for x in got), 'allReduce'
on_all(lambda r: comms[r].allGather(sent[r].data.ptr, got[r].data.ptr, count, kind, streams[r].ptr))
for r in range(ranks):
    whole = cupy.asnumpy(got[r]).reshape(ranks, count)
    assert all((whole[i] == cupy.asnumpy(sent[i])).all() for i in range(ranks)), 'allGather'
on_all(lambda r: comms[r].broadcast(sent[r].data.ptr, got[r].data.ptr, count, kind, ranks - 1, streams[r].ptr))
assert all((cupy.asnumpy(x)[:count] == cupy.asnumpy(sent[-1])).all() for x in got), 'broadcast'


def shift(r):
    comms[r].send(sent[r].data.ptr, count, kind, (r + 1) % ranks, streams[r].ptr)
    comms[r].recv(got[r].data.ptr, count, kind, (r - 1) % ranks, streams[r].ptr)


on_all(shift)
for r in range(ranks):
    assert (cupy.asnumpy(got[r])[:count] == cupy.asnumpy(sent[(r - 1) % ranks])).all(), 'send and recv'
print(f'{ranks} ranks on {gpus} GPUs: all right, version {nccl.get_version()}')
