// libcudamem for C++17 and later: RAII objects and exceptions over cudamem.h.
//
// SPDX-License-Identifier: MIT OR Apache-2.0
//
//     cudamem::context context(0);
//     cudamem::stream stream(context);
//     cudamem::pool pool(cudamem::resource::device(context));
//     cudamem::buffer buffer(pool, 4096, stream);
//     buffer.write(0, std::vector<float>(1024, 1.0f));
//
// Every object owns one handle of cudamem.h, and its destructor destroys the handle. Objects can be moved and not
// copied; an object that was moved from holds the null handle, and may be destroyed or assigned. Errors of a destructor
// go to the callback of cudamem_set_drop_error_callback; `close` returns them instead. The rules of cudamem.h on
// threads, offsets and sizes hold here too.
//
// Failures throw cudamem::error. If CUDAMEM_NO_EXCEPTIONS is defined, or the compiler has no exceptions, functions
// return cudamem::expected instead (std::expected in C++23), and static functions replace the constructors. The static
// functions exist with exceptions too:
//
//     auto context = cudamem::context::open_primary(0);
//     if (!context) { puts(context.error().what()); return 1; }
//     auto stream = cudamem::stream::create(*context);
//
// Each part can be included by itself. This header does not include cudamem/cuda_mr.hpp: resources for CCCL's cuda::mr,
// RMM and Thrust.
#ifndef CUDAMEM_HPP
#define CUDAMEM_HPP

#include "cudamem/adaptor.hpp"
#include "cudamem/addresses.hpp"
#include "cudamem/allocator.hpp"
#include "cudamem/bad_alloc.hpp"
#include "cudamem/buffer.hpp"
#include "cudamem/context.hpp"
#include "cudamem/engine.hpp"
#include "cudamem/error.hpp"
#include "cudamem/event.hpp"
#include "cudamem/frames.hpp"
#include "cudamem/interchange.hpp"
#include "cudamem/library.hpp"
#include "cudamem/memory.hpp"
#include "cudamem/memory_resource.hpp"
#include "cudamem/object.hpp"
#include "cudamem/pool.hpp"
#include "cudamem/resource.hpp"
#include "cudamem/sharing.hpp"
#include "cudamem/signal.hpp"
#include "cudamem/stream.hpp"
#include "cudamem/typed_buffer.hpp"
#include "cudamem/values.hpp"
#include "cudamem/view.hpp"

#endif // CUDAMEM_HPP
