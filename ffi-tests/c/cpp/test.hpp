// Shared parts of the C++ header's tests.
#ifndef TEST_HPP
#define TEST_HPP

#include "cudamem.hpp"

#include <cstdio>
#include <cstdlib>
#include <cstring>

#define CHECK(condition)                                                                                                 \
    do {                                                                                                                 \
        if (!(condition)) {                                                                                              \
            const char *last_message = cudamem_last_error_message();                                                     \
            std::fprintf(stderr, "%s:%d: %s\n  last error: %s\n", __FILE__, __LINE__, #condition,                        \
                         last_message != nullptr ? last_message : "none");                                               \
            std::exit(1);                                                                                                \
        }                                                                                                                \
    } while (0)

// Files with and without exceptions, linked into one program.
void with_exceptions();
void other_sources();
void without_exceptions();
void views_with_exceptions();
void typed_buffers();
void faults();

// The test of include/cudamem/sharing.hpp.
void sharing();

// In a process of its own, because the pools of memory by address never end.
void memory_by_address();

// These must end the program.
void give_back_twice();
void give_back_with_another_size();
void ask_for_too_much();
void take_no_value();

#endif
