// A fault that the user can mend: one line that says what was wanted, what came and what to do.
#pragma once

#include <stdexcept>

namespace infer {

class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace infer
