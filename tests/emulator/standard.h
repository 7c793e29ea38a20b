// What cuda_on_cpu.h needs of the libraries: most of what g++ reads of a program, and so compiled in advance (translate.py).
#undef _FORTIFY_SOURCE  // its longjmp knows one stack
#include <setjmp.h>
#include <ucontext.h>

#include <algorithm>
#include <climits>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <utility>
#include <vector>
