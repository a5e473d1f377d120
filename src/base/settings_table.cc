// The rows. To act on a variable that is listed as not acted on: give it a name in enum Setting and move its row up.
#include <algorithm>

#include "base/settings.h"

namespace nitinol {
namespace {

constexpr auto kText = SettingType::kText;
constexpr auto kInteger = SettingType::kInteger;
constexpr auto kSwitch = SettingType::kSwitch;
constexpr std::int64_t kMost = 1'000'000'000'000;
/// Of seconds, and of milliseconds: clocks count nanoseconds in 63 bits.
constexpr std::int64_t kMostTime = 1'000'000'000;

using enum Setting;

constexpr SettingRow empty_counts(SettingRow row) {
  row.empty_counts = true;
  return row;
}

constexpr SettingRow one_of(const char* words, SettingRow row) {
  row.words = words;
  return row;
}

// clang-format off
constexpr SettingRow kRows[] = {
    {kDebug, "NCCL_DEBUG", kText, "", "log level: VERSION, WARN, INFO, ABORT or TRACE, each with all before it; anything else is silent", "2.0"},
    empty_counts({kDebugSubsys, "NCCL_DEBUG_SUBSYS", kText, "INIT,BOOTSTRAP,ENV", "what is logged at INFO and TRACE: comma list of INIT, COLL, P2P, SHM, NET, GRAPH, TUNING, ENV, ALLOC, CALL, PROXY, NVLS, BOOTSTRAP, REG, PROFILE, RAS, ALLOC_HOST, DESTROY, ALL; a leading ^ means all but these; of NET, GRAPH, PROXY, NVLS and PROFILE this version has no lines", "2.3.4"}),
    {kDebugFile, "NCCL_DEBUG_FILE", kText, "", "file for the log instead of standard output; %h is the host, %p the process id, %% a percent sign", "2.2.12"},
    empty_counts({kDebugTimestampFormat, "NCCL_DEBUG_TIMESTAMP_FORMAT", kText, "[%F %T] ", "time format of log lines, as for strftime; %1f to %9f are digits of the second's fraction; an underscore is a space", "2.26"}),
    empty_counts({kDebugTimestampLevels, "NCCL_DEBUG_TIMESTAMP_LEVELS", kText, "WARN", "levels whose lines carry the time: comma list of VERSION, WARN, INFO, ABORT, TRACE, ALL; a leading ^ means all but these", "2.26"}),
    {kConfFile, "NCCL_CONF_FILE", kText, "", "configuration file to read instead of .nccl.conf in the home directory; lines NAME=VALUE", "2.23"},
    empty_counts({kCommId, "NCCL_COMM_ID", kText, "", "fixed rendezvous address for all ids: ipv4:port, [ipv6]:port or hostname:port; rank 0 listens there", "2.0"}),
    {kSocketIfname, "NCCL_SOCKET_IFNAME", kText, "", "network interfaces that may be used: comma list of prefixes; a leading = means exact names, a leading ^ all but these; not set: ib*, then others, then docker*, then lo", "2.0"},
    one_of("AF_INET, AF_INET6", {kSocketFamily, "NCCL_SOCKET_FAMILY", kText, "", "address family to insist on: AF_INET or AF_INET6; not set: both", "2.0"}),
    {kSocketRetryCnt, "NCCL_SOCKET_RETRY_CNT", kInteger, "34", "how often a connection that was refused or timed out is tried again", "2.24", 1, kMost},
    {kSocketRetrySleepMsec, "NCCL_SOCKET_RETRY_SLEEP_MSEC", kInteger, "100", "milliseconds before the first new try; the wait grows by as much with each failure", "2.24", 1, kMostTime},
    {kUidStaggerThreshold, "NCCL_UID_STAGGER_THRESHOLD", kInteger, "256", "with more ranks than this per id, ranks spread their first contact over time", "2.23", 1, kMost},
    {kUidStaggerRate, "NCCL_UID_STAGGER_RATE", kInteger, "7000", "first contacts per second that are then aimed at", "2.23", 1, kMost},
    {kInitTimeout, "NITINOL_INIT_TIMEOUT", kInteger, "300", "seconds after which a communicator that is being made fails and names the ranks that never came; where NITINOL_TIMEOUT is 0, split waits as long, and finalize and destroy for ranks that have not taken yet what this one has sent (for others a second)", "Nitinol", 1, kMostTime},
    {kTimeout, "NITINOL_TIMEOUT", kInteger, "0", "seconds after which an operation that makes no progress fails on every rank (once a rank is gone, on those that wait) and names the ranks that have not come, with what they do instead; finalize and destroy (in place of a second) and split wait as long and no longer, nor a shrink for ranks whose process is stopped (SIGSTOP); `nitinolCommSetTimeout` (nitinol.h) sets it for one communicator; 0: operations never fail so, and a shrink waits a minute for stopped ranks", "Nitinol", 0, kMostTime},
    {kWarnAfter, "NITINOL_WARN_AFTER", kInteger, "30", "seconds after which an operation that makes no progress, or a call that waits for other ranks (to join, split, finalize or destroy), is told of in the log (NCCL_DEBUG=WARN), once, with the ranks that have not come and what they do instead; 0: never", "Nitinol", 0, kMostTime},
    one_of("strict, off", {kCheck, "NITINOL_CHECK", kText, "", "strict: ranks compare calls on the host before they run, but for sends and receives of no bytes, or of ranks that have captured some into graphs; otherwise mismatches are noticed while operations run. NCCL_CHECK_MODE=DEBUG_GLOBAL means the same. off: GPUs do not compare calls, but take no data of another call; health monitoring does not say how far they have come, nor NITINOL_TIMEOUT what late ranks do, operations that wait are not in the log, and finalize and destroy wait for all ranks as for those that have not taken what was sent", "Nitinol"}),
    {kHostId, "NCCL_HOSTID", kText, "", "identity of the host in place of boot id and host name: ranks with equal identities count as being on one host", "2.0"},
    {kCommBlocking, "NCCL_COMM_BLOCKING", kInteger, "", "overrides `blocking` of every communicator: 1 blocking, 0 not", "2.14", 0, 1},
    {kAlgo, "NCCL_ALGO", kText, "", "algorithms that may be used: [function:][^]name,...[;...] with OneShot, TwoShot, Ring, Tree (others are known but not there), for AllReduce, AllGather, ReduceScatter, Broadcast, Reduce; calls for which none is left fail; not set: automatic", "2.5"},
    {kProto, "NCCL_PROTO", kText, "", "protocols that may be used (LL, LL128, Simple), in the form of NCCL_ALGO; without effect on virtual GPUs, which have Simple alone; not set: automatic", "2.5"},
    {kMinCtas, "NCCL_MIN_CTAS", kInteger, "", "fewest CTAs of an operation on GPUs (virtual ones always use one), but no more than NCCL_MAX_CTAS or `maxCTAs` says; more than 64 count as 64; overrides `minCTAs` of every communicator", "2.17", 1, kMost},
    {kMaxCtas, "NCCL_MAX_CTAS", kInteger, "", "most CTAs of an operation on GPUs, but that sends and receives of a group have one for each peer at least, by each of the two protocols that they may go by, and in streams of green contexts more; more than 64 count as 64; overrides `maxCTAs` of every communicator", "2.17", 1, kMost},
    {kMinNchannels, "NCCL_MIN_NCHANNELS", kInteger, "", "older form of NCCL_MIN_CTAS; the higher one counts, more than 64 as 64", "2.5", 1, kMost},
    {kMaxNchannels, "NCCL_MAX_NCHANNELS", kInteger, "", "older form of NCCL_MAX_CTAS; the lower one counts, more than 64 as 64", "2.5", 1, kMost},
    {kMinNrings, "NCCL_MIN_NRINGS", kInteger, "", "older form of NCCL_MIN_NCHANNELS, where that is not set", "2.2, renamed in 2.5", 1, kMost},
    {kMaxNrings, "NCCL_MAX_NRINGS", kInteger, "", "older form of NCCL_MAX_NCHANNELS, where that is not set", "2.0.5, renamed in 2.5", 1, kMost},
    {kCgaClusterSize, "NCCL_CGA_CLUSTER_SIZE", kInteger, "", "most CTAs of a collective that form a cluster, on GPUs of compute capability 9.0 and later where each rank has one of its own; 0: they form none; not set: 4 from 2 MB on with 8 to 32 CTAs, else none; rank 0's counts; more than 8 count as 8; overrides `cgaClusterSize` of every communicator", "2.16", 0, kMost},
    {kCtaPolicy, "NCCL_CTA_POLICY", kText, "", "how many CTAs operations use on GPUs: DEFAULT, as many as make them fast; EFFICIENCY, at most 32, unless NCCL_MAX_CTAS or `maxCTAs` says otherwise; ZERO, in this version the same; joined by a vertical bar; overrides `CTAPolicy` of every communicator", "2.27"},
    {kBuffSize, "NCCL_BUFFSIZE", kInteger, "", "bytes of the buffer between a pair of ranks, on GPUs for each CTA and at most, with the protocol Simple; not set: by the number of ranks", "2.0", 1024, kMost},
    {kReproducible, "NITINOL_REPRODUCIBLE", kSwitch, "1", "1: a reduction's bits depend on values and ranks alone, unless NCCL_ALGO names a ring or tree; 0: algorithms may add in another order where that is faster; of those that are chosen automatically none does in this version", "Nitinol"},
    {kLaunchAhead, "NITINOL_LAUNCH_AHEAD", kSwitch, "1", "1: a kernel of few CTAs may begin, and wait, before the kernel before it in its stream is done (programmatic dependent launch, from compute capability 9.0 on); 0: none does, and graphs that are captured have no edges but plain ones, unless the launches of several communicators are put in order there (NCCL_LAUNCH_ORDER_IMPLICIT=0: they are not)", "Nitinol"},
    {kLaunchOrderImplicit, "NCCL_LAUNCH_ORDER_IMPLICIT", kInteger, "", "kernels of different communicators of a process on a GPU begin in the order in which they were launched, the later ones once the earlier ones have begun (what a stream holds back then holds back what was launched after it): 1, all; 0, none; not set: those of more than 32 CTAs after all others, and all others after them, once the largest of all communicators have more CTAs together than the GPU has multiprocessors. Ranks that share a GPU, virtual GPUs, where none keeps another out, different graphs, and graphs and calls have no order, nor have small kernels in graphs", "2.26", 0, 1},
    {kLaunchRaceFatal, "NCCL_LAUNCH_RACE_FATAL", kSwitch, "1", "1: with NCCL_LAUNCH_ORDER_IMPLICIT=1 two threads that launch on a GPU at the same time are an error; 0: they are not, and either may come first", "2.26"},
    {kGraphMixingSupport, "NCCL_GRAPH_MIXING_SUPPORT", kSwitch, "1", "1: graphs with operations of a communicator run in the order in which they are launched, also with other graphs and calls in other streams; 0: that is left to the program, which launches none while another, or a call of the communicator, may still run, but in the same stream: then graphs hold no event nodes, as bodies of conditional nodes must not, and CUDA does not tell when they are done", "2.13"},
    {kP2pDisable, "NCCL_P2P_DISABLE", kSwitch, "0", "1: no direct access to another rank's device memory, but through the host's; on virtual GPUs without effect but for NCCL_SHM_DISABLE=1", "2.0"},
    one_of("LOC, NVL, PIX, PXB, PHB, SYS, 0, 1, 2, 3, 4", {kP2pLevel, "NCCL_P2P_LEVEL", kText, "", "greatest distance for direct access to another rank's device memory: LOC (or 0), none, as with NCCL_P2P_DISABLE=1; NVL, only where all GPUs are linked (NVLink); PIX (or 1), also where any two have at most one PCI switch between them; PXB (or 2), several, but not the CPU's host bridge; PHB (or 3), that, within one NUMA node; SYS (or 4 and more), wherever drivers allow it, as if it is not set; what is farther, or not known, goes through the host's memory, all ranks alike; on virtual GPUs without effect but for NCCL_SHM_DISABLE=1", "2.3.4"}),
    {kP2pTry, "NITINOL_P2P_TRY", kInteger, "", "1: when a communicator is made its ranks try whether they find in each other's device memory what they write there, and go through the host's, with a warning, if one does not; 0: what drivers say is relied on, and the first use fails then (where ranks share a GPU nothing is checked); not set: 1 where GPUs may reach each other over PCIe, 0 where all are linked (NVLink) or the same", "Nitinol", 0, 1},
    {kShmDisable, "NCCL_SHM_DISABLE", kSwitch, "0", "1: nothing goes through shared host memory: ranks of several processes need GPUs that reach each other's memory, as there is no network in this version; virtual GPUs do, unless NCCL_P2P_DISABLE or NCCL_P2P_LEVEL says otherwise", "2.0"},
    {kMultiRankGpuEnable, "NCCL_MULTI_RANK_GPU_ENABLE", kSwitch, "1", "0: a communicator is refused of which two ranks use one GPU; 1: they may", "2.30"},
    {kSpin, "NITINOL_SPIN", kInteger, "", "how often a rank that waits looks before it sleeps (flavour vgpu); not set: by the numbers of ranks and of cores", "Nitinol", 0, kMost},
    {kWinEnable, "NCCL_WIN_ENABLE", kSwitch, "1", "0: window registration succeeds but yields no window", "2.27"},
    {kRuntimeConnect, "NCCL_RUNTIME_CONNECT", kSwitch, "1", "1: memory for communication is allocated and mapped when operations first need it; 0: all that automatic choice may need when the communicator is made, so that no memory goes into that later", "2.22"},
    {kCheckPointers, "NCCL_CHECK_POINTERS", kSwitch, "0", "1: every call checks that its buffers are memory that CUDA knows, of no other GPU, and, but for host memory, as much as the call needs", "2.2.12"},
    one_of("DEFAULT, DEBUG_LOCAL, DEBUG_GLOBAL", {kCheckMode, "NCCL_CHECK_MODE", kText, "", "DEFAULT, DEBUG_LOCAL (buffers are checked in every call) or DEBUG_GLOBAL (that, and NITINOL_CHECK=strict)", "2.29.7"}),
    {kSetThreadName, "NCCL_SET_THREAD_NAME", kSwitch, "0", "1: all helper threads carry names, also those that have none otherwise", "2.12"},
    {kVgpus, "NITINOL_VGPUS", kInteger, "8", "number of virtual GPUs (flavour vgpu), up to 1024; counted at the first call of the CUDA runtime, so in a file it counts only if the first call of NCCL comes before", "Nitinol", 1, 1024},
    {kRasEnable, "NCCL_RAS_ENABLE", kSwitch, "1", "0: no health monitoring: nobody listens at NCCL_RAS_ADDR, and this process is missing in the answers of others", "2.24"},
    {kRasAddr, "NCCL_RAS_ADDR", kText, "localhost:28028", "where health monitoring listens for nitinol-ras and other clients: host:port or [ipv6]:port; the processes of a host share the port, jobs on one host need different ones; clients on other hosts are refused", "2.24"},
    {kRasTimeoutFactor, "NCCL_RAS_TIMEOUT_FACTOR", kInteger, "1", "multiplies all timeouts of health monitoring (5 to 60 seconds) but one that a client gives", "2.24", 1, 1000000},
    {kDumpFile, "NITINOL_DUMP_FILE", kText, "", "file to which a rank writes its flight recorder when its communicator (of several ranks) fails; %h is the host, %p the process id, %r the rank, %c the communicator, %% a percent sign; a name that ends in .txt makes it text instead of JSON; not set: nothing is written", "Nitinol"},
    {kDumpSignal, "NITINOL_DUMP_SIGNAL", kText, "", "signal, by name or number, on which a process writes the flight recorders of its ranks (of communicators of several) to NITINOL_DUMP_FILE, or to nitinol-%h-%p-%c-%r.json in the current folder; not if the program handles the signal itself; not set: none", "Nitinol"},
    {kRecordTimes, "NITINOL_RECORD_TIMES", kSwitch, "0", "1: on GPUs CUDA events around every launch, which cost it some microseconds, tell the flight recorder when operations began and ended, but for those in graphs; on virtual GPUs that is always known", "Nitinol"},

    {.name = "NCCL_ALLOC_P2P_NET_LL_BUFFERS", .type = kSwitch, .help = "low-latency buffers for every network connection", .since = "2.14"},
    {.name = "NCCL_CHECKS_DISABLE", .type = kSwitch, .help = "skip argument checks", .since = "2.0.5, gone since 2.2.12"},
    {.name = "NCCL_CHUNK_SIZE", .type = kInteger, .help = "size of network messages for send and receive", .since = "2.0"},
    {.name = "NCCL_COLLNET_ENABLE", .type = kSwitch, .help = "reduction inside the network", .since = "2.6"},
    {.name = "NCCL_COLLNET_NODE_THRESHOLD", .type = kInteger, .help = "fewest hosts for it", .since = "2.9.9"},
    {.name = "NCCL_CROSS_NIC", .type = kInteger, .help = "whether rings and trees may change rails", .since = "2.0"},
    {.name = "NCCL_CUMEM_ENABLE", .type = kSwitch, .help = "allocate with CUDA's virtual-memory calls", .since = "2.18"},
    {.name = "NCCL_CUMEM_HOST_ENABLE", .type = kSwitch, .help = "the same for shared host memory", .since = "2.23"},
    {.name = "NCCL_DMABUF_ENABLE", .type = kSwitch, .help = "register GPU memory with adapters through dma-buf", .since = "2.13"},
    {.name = "NCCL_ENV_PLUGIN", .help = "environment plugin", .since = "2.28"},
    {.name = "NCCL_GIN_PLUGIN", .help = "plugin for networking from kernels", .since = "2.30"},
    {.name = "NCCL_GIN_PLUGIN_REF_COUNT", .type = kInteger, .help = "keeps that plugin loaded", .since = "2.30"},
    {.name = "NCCL_GIN_TYPE", .type = kInteger, .help = "device type of that plugin", .since = "2.30"},
    {.name = "NCCL_GRAPH_REGISTER", .type = kSwitch, .help = "register buffers of captured operations", .since = "2.11"},
    {.name = "NCCL_GRAPH_STREAM_ORDERING", .type = kSwitch, .help = "order kernels at capture", .since = "2.30"},
    {.name = "NCCL_IB_ADAPTIVE_ROUTING", .type = kSwitch, .help = "InfiniBand: adaptive routing", .since = "2.16"},
    {.name = "NCCL_IB_ADDR_FAMILY", .help = "RoCE: address family of the GID", .since = "2.21"},
    {.name = "NCCL_IB_ADDR_RANGE", .help = "RoCE: range of the GID", .since = "2.21"},
    {.name = "NCCL_IB_AR_THRESHOLD", .type = kInteger, .help = "InfiniBand: size from which data travels in messages of its own", .since = "2.6"},
    {.name = "NCCL_IB_CUDA_SUPPORT", .type = kSwitch, .help = "GPU Direct RDMA", .since = "2.0, gone since 2.4"},
    {.name = "NCCL_IB_DISABLE", .type = kSwitch, .help = "no verbs", .since = "2.0"},
    {.name = "NCCL_IB_ECE_ENABLE", .type = kSwitch, .help = "InfiniBand: enhanced connection establishment", .since = "2.23"},
    {.name = "NCCL_IB_FIFO_TC", .type = kInteger, .help = "InfiniBand: traffic class of control messages", .since = "2.22.3"},
    {.name = "NCCL_IB_GDR_LEVEL", .help = "old name of NCCL_NET_GDR_LEVEL", .since = "2.3.4, renamed in 2.4"},
    {.name = "NCCL_IB_GID_INDEX", .type = kInteger, .help = "RoCE: index of the GID", .since = "2.1.4"},
    {.name = "NCCL_IB_HCA", .help = "adapters and ports to use", .since = "2.0"},
    {.name = "NCCL_IB_MERGE_NICS", .type = kSwitch, .help = "treat two ports as one device", .since = "2.20"},
    {.name = "NCCL_IB_OOO_RQ", .type = kSwitch, .help = "InfiniBand: receives out of order", .since = "2.30"},
    {.name = "NCCL_IB_PCI_RELAXED_ORDERING", .type = kInteger, .help = "InfiniBand: relaxed ordering on PCI", .since = "2.12"},
    {.name = "NCCL_IB_QPS_PER_CONNECTION", .type = kInteger, .help = "InfiniBand: queue pairs per connection", .since = "2.10"},
    {.name = "NCCL_IB_RETRY_CNT", .type = kInteger, .help = "InfiniBand: retries", .since = "2.1.15"},
    {.name = "NCCL_IB_RETURN_ASYNC_EVENTS", .type = kSwitch, .help = "InfiniBand: fatal device events end communication", .since = "2.23"},
    {.name = "NCCL_IB_ROCE_VERSION_NUM", .type = kInteger, .help = "RoCE version", .since = "2.21"},
    {.name = "NCCL_IB_SL", .type = kInteger, .help = "InfiniBand: service level", .since = "2.1.4"},
    {.name = "NCCL_IB_SPLIT_DATA_ON_QPS", .type = kSwitch, .help = "InfiniBand: split messages over queue pairs", .since = "2.18"},
    {.name = "NCCL_IB_TC", .type = kInteger, .help = "InfiniBand: traffic class", .since = "2.1.15"},
    {.name = "NCCL_IB_TIMEOUT", .type = kInteger, .help = "InfiniBand: acknowledge timeout", .since = "2.0"},
    {.name = "NCCL_IGNORE_COLLNET_MISMATCH", .type = kSwitch, .help = "accept different numbers of devices for reduction in the network", .since = "2.30"},
    {.name = "NCCL_IGNORE_CPU_AFFINITY", .type = kSwitch, .help = "bind helper threads by the GPU's affinity alone", .since = "2.4.6"},
    {.name = "NCCL_IGNORE_NET_MISMATCH", .type = kSwitch, .help = "accept different numbers of network devices", .since = "2.30"},
    {.name = "NCCL_IPC_USE_ABSTRACT_SOCKET", .type = kSwitch, .help = "abstract Unix sockets between processes", .since = "2.29"},
    {.name = "NCCL_LAUNCH_MODE", .help = "PARALLEL or GROUP", .since = "2.1"},
    {.name = "NCCL_LEGACY_CUDA_REGISTER", .type = kSwitch, .help = "register memory of cudaMalloc too", .since = "2.24"},
    {.name = "NCCL_LL_THRESHOLD", .type = kInteger, .help = "size limit of low-latency algorithms", .since = "2.1, gone since 2.5"},
    {.name = "NCCL_LOCAL_REGISTER", .type = kSwitch, .help = "honour ncclCommRegister", .since = "2.19"},
    {.name = "NCCL_MEM_SYNC_DOMAIN", .type = kInteger, .help = "memory synchronisation domain of kernels", .since = "2.16"},
    {.name = "NCCL_MNNVL_CLIQUE_ID", .type = kInteger, .help = "multi-node NVLink: clique", .since = "2.25"},
    {.name = "NCCL_MNNVL_ENABLE", .type = kInteger, .help = "multi-node NVLink", .since = "2.21"},
    {.name = "NCCL_MNNVL_UUID", .type = kInteger, .help = "multi-node NVLink: fabric", .since = "2.25"},
    {.name = "NCCL_NET", .help = "network module to insist on", .since = "2.10"},
    {.name = "NCCL_NETDEVS_POLICY", .help = "which network devices a GPU uses: AUTO, MAX:N, ALL", .since = "2.28"},
    {.name = "NCCL_NET_GDR_C2C", .type = kSwitch, .help = "GPU Direct RDMA over C2C", .since = "2.26"},
    {.name = "NCCL_NET_GDR_LEVEL", .help = "greatest distance for GPU Direct RDMA", .since = "2.4"},
    {.name = "NCCL_NET_GDR_READ", .type = kSwitch, .help = "GPU Direct RDMA for sending", .since = "2.0"},
    {.name = "NCCL_NET_MERGE_LEVEL", .help = "distance up to which adapters are merged", .since = "2.23"},
    {.name = "NCCL_NET_MERGE_POLICY", .help = "which adapters are merged: ALL, RAIL", .since = "2.30.5"},
    {.name = "NCCL_NET_PLUGIN", .help = "network plugin", .since = "2.11"},
    {.name = "NCCL_NET_PLUGIN_REF_COUNT", .type = kInteger, .help = "keeps that plugin loaded", .since = "2.30"},
    {.name = "NCCL_NET_SHARED_BUFFERS", .type = kSwitch, .help = "one buffer pool for all remote peers", .since = "2.8"},
    {.name = "NCCL_NET_SHARED_COMMS", .type = kSwitch, .help = "reuse connections", .since = "2.12"},
    {.name = "NCCL_NO_CACHE", .help = "parameters that are read at each use", .since = "2.30"},
    {.name = "NCCL_NSOCKS_PERTHREAD", .type = kInteger, .help = "sockets per helper thread", .since = "2.4.8"},
    {.name = "NCCL_NTHREADS", .type = kInteger, .help = "threads per CTA", .since = "2.0"},
    {.name = "NCCL_NVB_DISABLE", .type = kSwitch, .help = "no NVLink path through another GPU", .since = "2.11"},
    {.name = "NCCL_NVLS_ENABLE", .type = kInteger, .help = "NVLink multicast", .since = "2.17"},
    {.name = "NCCL_OOB_NET_ENABLE", .type = kSwitch, .help = "bootstrap over the network module", .since = "2.23"},
    {.name = "NCCL_OOB_NET_IFNAME", .help = "device for that", .since = "2.23"},
    {.name = "NCCL_P2P_DIRECT_DISABLE", .type = kSwitch, .help = "no direct access to user buffers within a process", .since = "2.0"},
    {.name = "NCCL_P2P_LL_THRESHOLD", .type = kInteger, .help = "largest send and receive that uses LL", .since = "2.14"},
    {.name = "NCCL_P2P_NET_CHUNKSIZE", .type = kInteger, .help = "message size on the network for send and receive", .since = "2.14"},
    {.name = "NCCL_P2P_PXN_LEVEL", .type = kInteger, .help = "reaching adapters through other GPUs for send and receive", .since = "2.12"},
    {.name = "NCCL_PARAM_DUMP_ALL", .type = kSwitch, .help = "list private parameters too", .since = "2.30"},
    {.name = "NCCL_PROFILER_PLUGIN", .help = "profiler plugin", .since = "2.23"},
    {.name = "NCCL_PXN_C2C", .type = kSwitch, .help = "reaching adapters through other GPUs over C2C", .since = "2.27"},
    {.name = "NCCL_PXN_DISABLE", .type = kSwitch, .help = "do not reach adapters through other GPUs", .since = "2.12"},
    {.name = "NCCL_RINGS", .help = "explicit rings", .since = "2.0, gone"},
    {.name = "NCCL_RMA_PLUGIN", .help = "plugin for one-sided networking", .since = "2.30"},
    {.name = "NCCL_RMA_PLUGIN_REF_COUNT", .type = kInteger, .help = "keeps that plugin loaded", .since = "2.30"},
    {.name = "NCCL_SET_STACK_SIZE", .type = kSwitch, .help = "set the CUDA stack size at start", .since = "2.9"},
    {.name = "NCCL_SINGLE_RING_THRESHOLD", .type = kInteger, .help = "size limit of a single ring", .since = "2.1, gone since 2.3"},
    {.name = "NCCL_SOCKET_MAGIC", .type = kInteger, .help = "number that both ends of a connection compare", .since = "2.30"},
    {.name = "NCCL_SOCKET_NTHREADS", .type = kInteger, .help = "helper threads per connection", .since = "2.4.8"},
    {.name = "NCCL_SOCKET_POLL_TIMEOUT_MSEC", .type = kInteger, .help = "sleep between attempts at start", .since = "2.28"},
    {.name = "NCCL_SYM_GIN_KERNELS_ENABLE", .type = kSwitch, .help = "kernels that start network transfers", .since = "2.29"},
    {.name = "NCCL_TOPO_DUMP_FILE", .help = "file to write the topology to", .since = "2.6"},
    {.name = "NCCL_TOPO_FILE", .help = "file to read the topology from", .since = "2.6"},
    {.name = "NCCL_TREE_THRESHOLD", .type = kInteger, .help = "size limit of trees", .since = "2.4, gone since 2.5"},
    {.name = "NCCL_TUNER_PLUGIN", .help = "tuner plugin", .since = "2.19"},
};
// clang-format on

// The index of a Setting is the index of its row; behind those the rows are sorted by name.
constexpr bool rows_are_in_order() {
  for (std::size_t i = 0; i < std::size(kRows); ++i) {
    const bool active = i < kSettingCount;
    if (active != kRows[i].acted_on()) return false;
    if (active && kRows[i].setting != static_cast<Setting>(i)) return false;
    if (i > kSettingCount && std::string_view(kRows[i - 1].name) >= std::string_view(kRows[i].name)) return false;
  }
  return true;
}
static_assert(rows_are_in_order());

}  // namespace

std::span<const SettingRow> settings_table() { return kRows; }

const SettingRow& row_of(Setting setting) { return kRows[static_cast<std::size_t>(setting)]; }

}  // namespace nitinol
