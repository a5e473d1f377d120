// Arithmetic as GPUs do it, whatever the thread that runs a kernel has set for its own: rounding to nearest, numbers
// that are not flushed to zero, and no traps. Programs change these (a library linked with -ffast-math does, for each
// thread that starts later), and a stream runs in threads that started in the program's, or in one of the program's
// own.
#pragma once

#if defined(__x86_64__)
#include <xmmintrin.h>
#else
#include <cfenv>
#endif

namespace nitinol::cpu {

/// As long as it lives; afterwards the thread has what it had, and no flags of what was computed meanwhile.
class PlainArithmetic {
 public:
  PlainArithmetic(const PlainArithmetic&) = delete;
  PlainArithmetic& operator=(const PlainArithmetic&) = delete;

#if defined(__x86_64__)  // <cfenv> has the old x87 unit besides, which takes longer than a small operation may
  PlainArithmetic() { set(kPlain); }
  ~PlainArithmetic() { set(before_); }

 private:
  /// The compiler is to move no memory access, and so no arithmetic of what it reads and writes, to the other side.
  static void set(unsigned control) {
    asm volatile("" ::: "memory");
    _mm_setcsr(control);
    asm volatile("" ::: "memory");
  }

  static constexpr unsigned kPlain = 0x1f80;  ///< all exceptions masked, and nothing else
  const unsigned before_ = _mm_getcsr();
#else
  PlainArithmetic() {
    std::fegetenv(&before_);
    std::fesetenv(FE_DFL_ENV);
  }
  ~PlainArithmetic() { std::fesetenv(&before_); }

 private:
  std::fenv_t before_;
#endif
};

}  // namespace nitinol::cpu
