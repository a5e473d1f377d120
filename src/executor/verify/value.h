// What an element can hold while a collective runs: nothing, one rank's input element, or a combination of several.
#pragma once

#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace nitinol::verify {

struct Value {
  enum class Shape : int {
    kNothing,    ///< never written
    kOne,        ///< one rank's element
    kRankOrder,  ///< one reduction of several ranks' elements in rank order
    kInSteps,    ///< the same, but what the first ranks make was rounded before others were added
    kOther,      ///< anything else
  } shape = Shape::kNothing;
  bool scaled = false;  ///< every contribution had the scalar applied
  bool finished = false;
  std::vector<std::pair<int, int>> ranks;  ///< who contributed, as runs [first, last), ascending

  bool operator==(const Value&) const = default;
  std::string text() const;
};

/// Gives each value a number, so that equal values have equal numbers. 0 is nothing.
class Values {
 public:
  Values() { number_of(Value{}); }
  int number_of(const Value& value);
  const Value& operator[](int number) const { return *values_[number]; }

 private:
  struct Hash {
    size_t operator()(const Value& value) const;
  };
  std::unordered_map<Value, int, Hash> numbers_;
  std::vector<const Value*> values_;  // keys of numbers_, which stay where they are
};

/// Elements in a row that hold the same value: the j-th comes from element + j of the inputs.
struct Piece {
  size_t count = 0;
  size_t element = 0;
  int value = 0;
};

/// A run of elements. A message between ranks is one.
using Pieces = std::vector<Piece>;
size_t count_of(const Pieces& pieces);

}  // namespace nitinol::verify
