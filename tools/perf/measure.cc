// Measuring: for each case a check of every library, warm-up, then batches that alternate between the libraries.
#include "measure.h"

#include <algorithm>
#include <chrono>
#include <cstdio>

namespace nitinol::perf {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

}  // namespace

struct Measurer::Gpu {
  int rank = 0;
  int device = 0;
  cudaStream_t stream = nullptr;
  std::unique_ptr<Buffers> buffers;
  float* token = nullptr;              // for the barrier
  std::vector<ncclComm_t> comms;       // one per library
  std::vector<ncclRedOp_t> operators;  // one per library
  std::unique_ptr<Checker> checker;
};

// The iterations of a batch, captured once per GPU of this thread.
class Measurer::Graphs {
 public:
  Graphs(Measurer& measurer, const Case& what, size_t library, int iterations);
  ~Graphs() {
    for (cudaGraphExec_t graph : execs_) cudaGraphExecDestroy(graph);
  }
  Graphs(const Graphs&) = delete;
  Graphs& operator=(const Graphs&) = delete;

  void launch() {
    for (size_t i = 0; i < execs_.size(); ++i) {
      check_cuda(cudaGraphLaunch(execs_[i], measurer_.gpus_[i]->stream), "cudaGraphLaunch");
    }
  }

 private:
  Measurer& measurer_;
  std::vector<cudaGraphExec_t> execs_;
};

Measurer::Graphs::Graphs(Measurer& measurer, const Case& what, size_t library, int iterations) : measurer_(measurer) {
  for (const auto& gpu : measurer.gpus_) {
    check_cuda(cudaSetDevice(gpu->device), "cudaSetDevice");
    check_cuda(cudaStreamBeginCapture(gpu->stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
  }
  for (int i = 0; i < iterations; ++i) measurer.enqueue_once(what, library);
  for (const auto& gpu : measurer.gpus_) {
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t exec = nullptr;
    check_cuda(cudaSetDevice(gpu->device), "cudaSetDevice");
    check_cuda(cudaStreamEndCapture(gpu->stream, &graph), "cudaStreamEndCapture");
    check_cuda(cudaGraphInstantiate(&exec, graph, 0), "cudaGraphInstantiate");
    check_cuda(cudaGraphDestroy(graph), "cudaGraphDestroy");
    execs_.push_back(exec);
  }
}

Measurer::Measurer(Session& session, int thread) : session_(session), thread_(thread) {
  for (int i = 0; i < session.team().gpus; ++i) {
    auto gpu = std::make_unique<Gpu>();
    gpu->rank = session.team().rank(thread, i);
    gpu->device = session.team().device(thread, i);
    check_cuda(cudaSetDevice(gpu->device), "cudaSetDevice");
    check_cuda(cudaStreamCreateWithFlags(&gpu->stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    check_cuda(cudaMalloc(reinterpret_cast<void**>(&gpu->token), sizeof(float)), "cudaMalloc");
    check_cuda(cudaMemsetAsync(gpu->token, 0, sizeof(float), gpu->stream), "cudaMemsetAsync");
    check_cuda(cudaStreamSynchronize(gpu->stream), "cudaStreamSynchronize");
    gpu->checker = std::make_unique<Checker>(gpu->stream);
    gpus_.push_back(std::move(gpu));
  }
}

// Tidying is tear_down()'s; after a failure the process ends without asking the library for anything more.
Measurer::~Measurer() = default;

std::vector<double> Measurer::initialise() {
  std::vector<double> seconds;
  for (size_t i = 0; i < session_.libraries().size(); ++i) {
    const Library& library = session_.libraries()[i];
    session_.meet_everywhere(thread_);  // so that the slowest to start is no part of what the first library takes
    const Clock::time_point start = Clock::now();
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    if (session_.options().non_blocking) config.blocking = 0;
    library.check(library.nccl().group_start(), "ncclGroupStart");
    for (const auto& gpu : gpus_) {
      check_cuda(cudaSetDevice(gpu->device), "cudaSetDevice");
      gpu->comms.push_back(nullptr);
      library.check(library.nccl().comm_init_rank_config(&gpu->comms.back(), session_.team().ranks(), session_.ids()[i],
                                                         gpu->rank, &config),
                    "ncclCommInitRankConfig");
    }
    library.check(library.nccl().group_end(), "ncclCommInitRankConfig");
    settle(i, "ncclCommInitRankConfig");
    seconds.push_back(seconds_since(start));
  }
  return session_.max(thread_, seconds);
}

void Measurer::allocate(const std::vector<Case>& cases) {
  for (const auto& gpu : gpus_) {
    size_t send = 0;
    size_t recv = 0;
    for (const Case& what : cases) {
      const Layout layout = layout_of(what.operation, what.count, gpu->rank, session_.team().ranks());
      send = std::max(send, layout.send * what.type->size);
      recv = std::max(recv, layout.larger() * what.type->size);
    }
    check_cuda(cudaSetDevice(gpu->device), "cudaSetDevice");
    const Options& options = session_.options();
    gpu->buffers = std::make_unique<Buffers>(session_.libraries()[0], options.registration, options.shift, send,
                                             recv + kGuardBytes);
  }
  for (size_t i = 0; i < session_.libraries().size(); ++i) {
    const Library& library = session_.libraries()[i];
    library.check(library.nccl().group_start(), "ncclGroupStart");
    for (const auto& gpu : gpus_) gpu->buffers->register_with(library, gpu->comms[i]);
    library.check(library.nccl().group_end(), "registration");
    settle(i, "registration");
  }
}

void Measurer::settle(size_t index, const char* doing) {
  const Library& library = session_.libraries()[index];
  if (!session_.options().non_blocking) return;
  for (const auto& gpu : gpus_) library.settle(gpu->comms[index], doing);
}

void Measurer::synchronize(size_t index) {
  const Library& library = session_.libraries()[index];
  for (const auto& gpu : gpus_) {
    const cudaError_t result = cudaStreamSynchronize(gpu->stream);
    ncclResult_t state = ncclSuccess;
    library.check(library.nccl().comm_get_async_error(gpu->comms[index], &state), "ncclCommGetAsyncError");
    library.check(state, "an operation failed");
    check_cuda(result, "cudaStreamSynchronize");
  }
}

Call Measurer::call_of(const Gpu& gpu, const Case& what, size_t index) const {
  const int ranks = session_.team().ranks();
  const Layout layout = layout_of(what.operation, what.count, gpu.rank, ranks);
  std::byte* base = static_cast<std::byte*>(gpu.buffers->recv());
  return {
      .operation = what.operation,
      .send = what.in_place ? base + layout.send_offset * what.type->size : gpu.buffers->send(),
      .recv = what.in_place ? base + layout.recv_offset * what.type->size : gpu.buffers->recv(),
      .count = what.count,
      .type = what.type->type,
      .element_size = what.type->size,
      .redop = what.reduction == Reduction::kMulSum ? gpu.operators[index] : builtin_op(what.reduction),
      .where = {gpu.rank, ranks, what.root},
      .comm = gpu.comms[index],
      .stream = gpu.stream,
  };
}

void Measurer::enqueue_once(const Case& what, size_t index) {
  const Library& library = session_.libraries()[index];
  const int steps = steps_of(what.operation, session_.team().ranks());
  for (int step = 0; step < steps; ++step) {
    if (gpus_.size() > 1) library.check(library.nccl().group_start(), "ncclGroupStart");
    for (const auto& gpu : gpus_) {
      library.check(enqueue(library.nccl(), call_of(*gpu, what, index), step), traits_of(what.operation).name);
    }
    if (gpus_.size() > 1) library.check(library.nccl().group_end(), "ncclGroupEnd");
    settle(index, traits_of(what.operation).name);
  }
}

// Inputs in place, everything else poisoned.
void Measurer::prepare(Gpu& gpu, const Case& what) {
  const Layout layout = layout_of(what.operation, what.count, gpu.rank, session_.team().ranks());
  const auto pattern = session_.patterns().get(*what.type, what.reduction, session_.team().ranks());
  check_cuda(cudaSetDevice(gpu.device), "cudaSetDevice");
  gpu.checker->poison(gpu.buffers->recv(), layout.larger() * what.type->size + kGuardBytes);
  void* input = what.in_place ? static_cast<std::byte*>(gpu.buffers->recv()) + layout.send_offset * what.type->size
                              : gpu.buffers->send();
  gpu.checker->upload(pattern->input(gpu.rank), what.type->size, input, layout.send);
}

double Measurer::verify(Gpu& gpu, const Case& what, size_t library) {
  const int ranks = session_.team().ranks();
  const Layout layout = layout_of(what.operation, what.count, gpu.rank, ranks);
  const auto pattern = session_.patterns().get(*what.type, what.reduction, ranks);
  const std::byte* base = static_cast<const std::byte*>(gpu.buffers->recv());
  const std::byte* recv = what.in_place ? base + layout.recv_offset * what.type->size : base;
  size_t wrong = 0;
  check_cuda(cudaSetDevice(gpu.device), "cudaSetDevice");
  for (const Segment& segment : expected_segments(what.operation, what.count, {gpu.rank, ranks, what.root})) {
    wrong += gpu.checker->count_wrong(*pattern, segment, recv);
  }
  const size_t used = what.in_place ? layout.larger() : layout.recv;
  wrong += gpu.checker->count_overwritten(base + used * what.type->size, kGuardBytes);
  const std::string complaint = gpu.checker->take_complaint();
  if (!complaint.empty()) {
    std::fprintf(stderr, "nitinol-perf: WRONG: %s of %zu %s (%s, root %d, %s place), rank %d, library %c: %s\n",
                 traits_of(what.operation).name, what.count, what.type->name, reduction_name(what.reduction), what.root,
                 what.in_place ? "in" : "out of", gpu.rank, static_cast<char>('A' + library), complaint.c_str());
  }
  return static_cast<double>(wrong);
}

double Measurer::check(const Case& what, size_t library) {
  if (session_.options().graph) {
    // At first use a library may allocate or map memory, which not every one can while a stream is captured.
    enqueue_once(what, library);
    synchronize(library);
  }
  for (const auto& gpu : gpus_) prepare(*gpu, what);
  if (session_.options().graph) {
    Graphs once(*this, what, library, 1);
    once.launch();
    synchronize(library);
  } else {
    enqueue_once(what, library);
    synchronize(library);
  }
  return wrong_after(what, library);
}

double Measurer::wrong_after(const Case& what, size_t library) {
  double wrong = 0;
  for (const auto& gpu : gpus_) wrong += verify(*gpu, what, library);
  return wrong;
}

// What unsynchronised iterations leave behind must be right as well. In place they work on each other's results.
double Measurer::check_batch(const Case& what, size_t library, int iterations, Graphs* graphs) {
  if (what.in_place) return 0;
  for (const auto& gpu : gpus_) prepare(*gpu, what);
  timed_batch(what, library, iterations, graphs);
  return wrong_after(what, library);
}

// A tiny all-reduce brings the ranks together, whatever the processes; then the threads leave side by side.
void Measurer::align(size_t index) {
  const Library& library = session_.libraries()[index];
  library.check(library.nccl().group_start(), "ncclGroupStart");
  for (const auto& gpu : gpus_) {
    library.check(
        library.nccl().all_reduce(gpu->token, gpu->token, 1, ncclFloat32, ncclSum, gpu->comms[index], gpu->stream),
        "ncclAllReduce for the barrier");
  }
  library.check(library.nccl().group_end(), "ncclGroupEnd");
  settle(index, "ncclAllReduce for the barrier");
  synchronize(index);
  session_.meet();
}

double Measurer::timed_batch(const Case& what, size_t library, int iterations, Graphs* graphs) {
  align(library);
  const Clock::time_point start = Clock::now();
  if (graphs != nullptr) {
    graphs->launch();
  } else {
    for (int i = 0; i < iterations; ++i) {
      enqueue_once(what, library);
      if (session_.options().sync_each) synchronize(library);
    }
  }
  synchronize(library);
  return seconds_since(start) / iterations;
}

// Warms up, and takes fewer iterations where the budget would not suffice: without warm-up one is timed for that. All
// ranks agree on the number.
int Measurer::choose_iterations(const Case& what) {
  const Options& options = session_.options();
  double slowest = 0;
  for (size_t library = 0; library < session_.libraries().size(); ++library) {
    if (options.warmups == 0 && options.budget <= 0) continue;
    if (options.warmups > 0) timed_batch(what, library, 1, nullptr);
    slowest = std::max(slowest, timed_batch(what, library, 1, nullptr));
    slowest = session_.max(thread_, {slowest})[0];
    const double affordable = options.budget > 0 ? options.budget / 4 / slowest : options.warmups;
    const int warmups = static_cast<int>(std::min<double>(options.warmups, affordable)) - 2;
    if (warmups > 0) timed_batch(what, library, warmups, nullptr);
  }
  if (options.budget <= 0 || slowest <= 0) return options.iterations;
  const double affordable = options.budget / slowest / (options.batches + (options.check ? 1 : 0));
  return std::max(1, static_cast<int>(std::min<double>(options.iterations, affordable)));
}

void Measurer::create_operators(const Case& what) {
  if (what.reduction != Reduction::kMulSum) return;
  for (const auto& gpu : gpus_) {
    std::byte scalar[8];
    const int factor = mul_sum_factor(gpu->rank);
    if (what.type->kind == ElementKind::kFloat) {
      encode_float(*what.type, factor, scalar);
    } else {
      encode_integer(*what.type, static_cast<unsigned long long>(factor), scalar);
    }
    for (size_t i = 0; i < session_.libraries().size(); ++i) {
      const Library& library = session_.libraries()[i];
      gpu->operators.push_back(ncclSum);
      library.check(library.nccl().red_op_create_pre_mul_sum(&gpu->operators.back(), scalar, what.type->type,
                                                             ncclScalarHostImmediate, gpu->comms[i]),
                    "ncclRedOpCreatePreMulSum");
    }
  }
}

void Measurer::destroy_operators() {
  for (const auto& gpu : gpus_) {
    for (size_t i = 0; i < gpu->operators.size(); ++i) {
      const Library& library = session_.libraries()[i];
      library.check(library.nccl().red_op_destroy(gpu->operators[i], gpu->comms[i]), "ncclRedOpDestroy");
    }
    gpu->operators.clear();
  }
}

Row Measurer::measure(const Case& what) {
  const Options& options = session_.options();
  const size_t libraries = session_.libraries().size();
  Row row{.what = what, .libraries = std::vector<Measurement>(libraries)};
  create_operators(what);
  std::vector<double> wrong(libraries, 0);
  for (size_t i = 0; options.check && i < libraries; ++i) wrong[i] = check(what, i);
  row.iterations = choose_iterations(what);

  std::vector<std::unique_ptr<Graphs>> graphs(libraries);
  for (size_t i = 0; options.graph && i < libraries; ++i) {
    graphs[i] = std::make_unique<Graphs>(*this, what, i, row.iterations);
    timed_batch(what, i, row.iterations, graphs[i].get());
  }
  std::vector<double> times;
  for (int batch = 0; batch < options.batches; ++batch) {
    for (size_t i = 0; i < libraries; ++i) times.push_back(timed_batch(what, i, row.iterations, graphs[i].get()));
  }
  for (size_t i = 0; options.check && i < libraries; ++i) {
    wrong[i] += check_batch(what, i, row.iterations, graphs[i].get());
  }
  destroy_operators();
  times = session_.max(thread_, times);
  wrong = session_.sum(thread_, wrong);
  for (size_t i = 0; i < libraries; ++i) {
    for (size_t k = i; k < times.size(); k += libraries) row.libraries[i].microseconds.push_back(times[k] * 1e6);
    if (options.check) row.libraries[i].wrong = wrong[i];
    total_wrong_ += wrong[i];
  }
  return row;
}

double Measurer::run(const std::vector<Case>& cases, RowSink* sink) {
  const std::vector<double> seconds = initialise();
  if (sink != nullptr) sink->initialised(seconds);
  allocate(cases);
  for (size_t i = 0; i < cases.size(); ++i) {
    const Case& what = cases[i];
    if (thread_ == 0) {
      session_.watchdog().progress(std::string("measuring ") + traits_of(what.operation).name + " of " +
                                   std::to_string(what.count) + " " + what.type->name);
    }
    if (sink != nullptr) sink->starting(what, i, cases.size());
    const Row row = measure(what);
    if (sink != nullptr) sink->row(row);
  }
  if (thread_ == 0) session_.watchdog().progress("destroying communicators");
  tear_down();
  return total_wrong_;
}

void Measurer::tear_down() {
  for (const auto& gpu : gpus_) {
    check_cuda(cudaSetDevice(gpu->device), "cudaSetDevice");
    gpu->buffers->release();
    for (size_t i = 0; i < gpu->comms.size(); ++i) {
      const Library& library = session_.libraries()[i];
      library.check(library.nccl().comm_destroy(gpu->comms[i]), "ncclCommDestroy");
    }
    check_cuda(cudaFree(gpu->token), "cudaFree");
    check_cuda(cudaStreamDestroy(gpu->stream), "cudaStreamDestroy");
  }
}

}  // namespace nitinol::perf
